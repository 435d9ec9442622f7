"""What all dashboards share: variables, links to each other, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from .panels import SOURCE, Panel

TAG = "streamdq"
PanelRow = tuple[str, Sequence[Panel]]


def board(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[PanelRow],
    variables: Sequence[dashboard.QueryVariable] = (),
    since: str = "now-1h",
) -> str:
    """One dashboard as the JSON that Grafana imports."""
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .refresh("10s")
        .time(since, "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .link(_siblings())
    )
    namespace = choice("namespace", "Namespace", "label_values(streamdq_up, namespace)", every=False)
    for variable in (namespace, *variables):
        built = built.with_variable(variable)
    for heading, panels in rows:
        built = built.with_row(dashboard.Row(heading))
        for panel in panels:
            built = built.with_panel(panel)
    model = built.build()
    for number, each in enumerate(model.panels or [], start=1):
        each.id_val = number
    for link in model.links or []:
        link.placement = None  # type: ignore[assignment]  # the library puts the link in a menu; we want it above the panels
    return json.dumps(model, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def choice(name: str, label: str, query: str, *, every: bool) -> dashboard.QueryVariable:
    """A variable with a label's values. ``every``: users may choose several of them, or all."""
    variable = (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if every:
        every_one = models.VariableOption(text="All", value="$__all", selected=True)
        variable = variable.multi(True).include_all(True).all_value(".*").current(every_one)
    return variable


def _siblings() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("streamdq").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.as_dropdown(False).keep_time(True).include_vars(True)
