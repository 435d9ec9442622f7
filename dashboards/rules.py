"""The rules file: recording rules and alerts as Prometheus reads them."""

from __future__ import annotations

from typing import Any

import yaml

from .alerts import PAGES, Alert, alerts
from .promql import Scale
from .records import Record, records

HEADER = "# Built by `make dashboards` from dashboards/*.py; changes here are lost.\n"


def rules(scale: Scale | None = None, *, interval: str = "15s", pages: str = PAGES) -> str:
    """The rules as YAML. ``pages``: the address of the page that explains the alerts."""
    scale = scale or Scale()
    groups = [
        {"name": "streamdq-records", "interval": interval, "rules": [_record(record) for record in records(scale)]},
        {
            "name": "streamdq-alerts",
            "interval": interval,
            "rules": [_alert(alert, scale, pages) for alert in alerts(scale)],
        },
    ]
    return HEADER + yaml.safe_dump({"groups": groups}, sort_keys=False, width=120, allow_unicode=True)


def _record(record: Record) -> dict[str, Any]:
    labels = {"labels": dict(record.labels)} if record.labels else {}
    return {"record": record.name, "expr": record.expr, **labels}


def _alert(alert: Alert, scale: Scale, pages: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": scale.window(alert.patience) if alert.patience != "0s" else "0s",
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": _words(alert.summary),
            "description": _words(alert.description),
            **_runbook(alert, pages),
        },
    }


def _runbook(alert: Alert, pages: str) -> dict[str, str]:
    """Only a full address becomes a link: from an alert, nobody can open a path within this project."""
    if "://" in pages:
        return {"runbook_url": f"{pages.rstrip('/')}/{alert.page}#{alert.anchor}"}
    return {"runbook": f"{pages}/{alert.page}.md#{alert.anchor}"}


def _words(text: str) -> str:
    """Replaces ``@topic`` and ``@namespace`` by Prometheus's templates."""
    topic = "{{ $labels.namespace }}/{{ $labels.topic }}"
    return text.replace("@topic", topic).replace("@namespace", "{{ $labels.namespace }}")
