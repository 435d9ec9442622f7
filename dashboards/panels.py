"""Panels: how a signal is shown. A panel takes its title, unit and description from its signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grafana_foundation_sdk.builders import bargauge, common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heat
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from .promql import ONE_NAMESPACE, Signal, Where

SOURCE = kinds.DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, RED, BLUE = "green", "orange", "red", "blue"
FULL, HALF, THIRD, QUARTER = 24, 12, 8, 6
_TALL, _LOW = 8, 4

Steps = Sequence[tuple[float | None, str]]
"""Colours by value: each holds from its value upwards, the first (None) from minus infinity."""
NEUTRAL: Steps = ((None, BLUE),)

Panel = bargauge.Panel | heatmap.Panel | stat.Panel | table.Panel | timeseries.Panel


@dataclass(frozen=True, slots=True)
class Shown:
    """A signal with the labels, window and quantile of one query."""

    signal: Signal
    by: tuple[str, ...] = ()
    window: str = "$__rate_interval"
    legend: str = ""
    quantile: str = ""
    instant: bool = False

    def target(self, where: Where) -> prometheus.Dataquery:
        expr = self.signal.expr(by=self.by, window=self.window, where=where, quantile=self.quantile)
        legend = self.legend or self.signal.legend or " ".join(f"{{{{{label}}}}}" for label in self.by)
        query = prometheus.Dataquery().expr(expr).legend_format(legend or self.signal.title).datasource(SOURCE)
        return query.instant() if self.instant else query.range()


def stat_panel(
    shown: Shown,
    steps: Steps,
    *,
    where: Where = ONE_NAMESPACE,
    width: int = 4,
    decimals: int | None = None,
    says: dict[str, tuple[str, str]] | None = None,
    none: str = "no data",
) -> stat.Panel:
    """One number, coloured. ``says``: value -> word and colour; ``none``: the text shown when there is no value."""
    signal = shown.signal
    panel = (
        stat.Panel()
        .title(signal.title)
        .description(signal.description)
        .unit(signal.unit)
        .datasource(SOURCE)
        .with_target(replace(shown, instant=True).target(where).ref_id("A"))
        .thresholds(_thresholds(steps))
        .color_mode(kinds.BigValueColorMode.BACKGROUND if len(steps) > 1 else kinds.BigValueColorMode.VALUE)
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value(none)
        .height(_LOW)
        .span(width)
    )
    if decimals is not None:
        panel = panel.decimals(decimals)
    if says:
        panel = panel.mappings([_mapping(says)])
    return panel


def _within(panel: timeseries.Panel, lowest: float | None, highest: float | None) -> timeseries.Panel:
    """Sets the axis limits; None leaves a limit to the values."""
    if lowest is not None:
        panel = panel.min(lowest)
    return panel if highest is None else panel.max(highest)


def series_panel(
    shown: Shown | Sequence[Shown],
    *,
    where: Where = ONE_NAMESPACE,
    title: str = "",
    description: str = "",
    steps: Steps = (),
    width: int = HALF,
    stacked: bool = False,
    lowest: float | None = 0,
    highest: float | None = None,
) -> timeseries.Panel:
    """Lines over time; ``steps`` draws dashed lines at its values."""
    shown = [shown] if isinstance(shown, Shown) else shown
    signal = shown[0].signal
    panel = (
        timeseries.Panel()
        .title(title or signal.title)
        .description(description or signal.description)
        .unit(signal.unit)
        .datasource(SOURCE)
        .targets([one.target(where).ref_id(chr(ord("A") + i)) for i, one in enumerate(shown)])
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))
        .line_width(1)
        .fill_opacity(30 if stacked else 8)
        .show_points(kinds.VisibilityMode.AUTO)
        .height(_TALL)
        .span(width)
    )
    panel = _within(panel, lowest, highest)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A"))
    if any("topic" in one.by for one in shown):
        panel = panel.data_links([_to_topic()])
    if steps:
        style = common.GraphThresholdsStyleConfig().mode(kinds.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds(_thresholds(steps)).thresholds_style(style)
    return panel


def percentiles(
    signal: Signal, *, where: Where = ONE_NAMESPACE, steps: Steps = (), width: int = HALF
) -> timeseries.Panel:
    """p50, p95 and p99 of a histogram over time."""
    lines = [Shown(signal, quantile=f"0.{number}", legend=f"p{number}") for number in (50, 95, 99)]
    return series_panel(lines, where=where, steps=steps, width=width)


def heat_panel(signal: Signal, *, where: Where = ONE_NAMESPACE, width: int = HALF) -> heatmap.Panel:
    """A histogram over time: one column of buckets per point in time."""
    query = Shown(signal).target(where).format(PromQueryFormat.HEATMAP).ref_id("A")
    colours = (
        heatmap.HeatmapColorOptions()
        .mode(heat.HeatmapColorMode.SCHEME)
        .scheme("Oranges")
        .scale(heat.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.4)
        .steps(64)
        .reverse(False)
    )
    return (
        heatmap.Panel()
        .title(signal.title)
        .description(signal.description)
        .unit("short")
        .datasource(SOURCE)
        .with_target(query)
        .calculate(False)
        .color(colours)
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .y_axis(heatmap.YAxisConfig().unit(signal.unit).axis_placement(kinds.AxisPlacement.LEFT))
        .tooltip(heatmap.HeatmapTooltip().mode(kinds.TooltipDisplayMode.SINGLE).y_histogram(True))
        .show_legend()
        .height(_TALL)
        .span(width)
    )


def bars_panel(
    shown: Shown, *, where: Where = ONE_NAMESPACE, steps: Steps = NEUTRAL, width: int = THIRD, none: str = "none"
) -> bargauge.Panel:
    """One bar per series, for now or for the time range shown."""
    signal = shown.signal
    return (
        bargauge.Panel()
        .title(signal.title)
        .description(signal.description)
        .unit(signal.unit)
        .datasource(SOURCE)
        .with_target(replace(shown, instant=True).target(where).ref_id("A"))
        .thresholds(_thresholds(steps))
        .orientation(kinds.VizOrientation.HORIZONTAL)
        .display_mode(kinds.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value(none)
        .min(0)
        .height(_TALL)
        .span(width)
    )


def table_panel(
    shown: Shown, hidden: Sequence[str], *, where: Where = ONE_NAMESPACE, width: int = HALF, none: str = "none"
) -> table.Panel:
    """One row per series, with its labels as columns except those in ``hidden``."""
    signal = shown.signal
    query = replace(shown, instant=True).target(where).format(PromQueryFormat.TABLE).ref_id("A")
    organise = models.DataTransformerConfig(
        id_val="organize", options={"excludeByName": dict.fromkeys(("Time", *hidden), True)}
    )
    return (
        table.Panel()
        .title(signal.title)
        .description(signal.description)
        .unit(signal.unit)
        .datasource(SOURCE)
        .with_target(query)
        .with_transformation(organise)
        .no_value(none)
        .height(_LOW)
        .span(width)
    )


def _to_topic() -> dashboard.DashboardLink:
    """Links a topic's line to the topic's dashboard, with the same time range."""
    url = (
        "/d/streamdq-topic?var-datasource=${datasource}&var-namespace=${namespace}"
        "&var-topic=${__field.labels.topic}&${__url_time_range}"
    )
    return dashboard.DashboardLink("${__field.labels.topic} in detail").type(models.DashboardLinkType.LINK).url(url)


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    levels = [models.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(levels)


def _mapping(says: dict[str, tuple[str, str]]) -> models.ValueMap:
    options = {
        value: models.ValueMappingResult(text=word, color=colour, index=index)
        for index, (value, (word, colour)) in enumerate(says.items())
    }
    return models.ValueMap(options=options)


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(kinds.LegendDisplayMode.TABLE)
        .placement(kinds.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
