"""Reports for the tests: no Spark is needed to look at one."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from streamdq_spark.report import TABLES, About, render
from streamdq_spark.spans import Span
from streamdq_spark.summary import Summary
from tests.spark import plain
from tests.spark.answers import answered
from tests.spark.plain import Happened

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MADE_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = "<script>alert('x')</script>\"><img src=http://evil.example/x onerror=alert(1)>"


MANY = 1500
"""Events that take plain Python longer than DuckDB."""


def tables_of(log: Sequence[Happened], spans: plain.Spans | None = None) -> dict[str, list[dict[str, Any]]]:
    """`spans`: those that are compared."""
    names = [name for name in TABLES if name != "compared"]
    rows = answered(log, names) if len(log) > MANY else {name: getattr(plain, name)(log) for name in names}
    rows["compared"] = plain.compared(log, spans)
    return {name: [_timed(row) for row in own] for name, own in rows.items()}


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    times = {
        key: EPOCH + timedelta(milliseconds=row[key])
        for key in ("hour", "day", "first", "last", "first_hour", "last_hour")
        if key in row
    }
    return row | times


def report_of(log: Sequence[Happened], **about: Any) -> str:
    days = [(EPOCH + timedelta(milliseconds=e.finished)).date() for e in log] or [date(2026, 1, 5)]
    first, second = (Span.parse(text) for text in about.get("compare", ("2026-01-05..2026-01-05",) * 2))
    tables = tables_of(log, ((first.since, first.until), (second.since, second.until)))
    own = {name: about.pop(name) for name in ("page", "settings") if name in about}
    return render(tables, About(covered(min(days), max(days), len(log), **about), MADE_AT, **own))


def covered(first: date, last: date, events: int = 1, **more: Any) -> Summary:
    return replace(Summary(first, last, events, 1, 0, 0, 0, []), **more)


def hostile(log: Sequence[Happened]) -> list[Happened]:
    """Every name that a stranger may have chosen is HTML."""
    return [
        e._replace(
            topic=HOSTILE + e.topic,
            id=HOSTILE + e.id,
            group=HOSTILE + (e.group or ""),
            consumer=e.consumer and HOSTILE + e.consumer,
            error=e.error and HOSTILE + e.error,
        )
        for e in log
    ]
