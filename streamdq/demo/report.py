"""The demo's report. Every figure is computed from the history rows, the counters and the effects that the workers
recorded; nothing is assumed.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..job.retry import DEFAULT_RETRY, RetrySchedule
from ..operations.checks.audit import Audit
from ..operations.json_out import audit_json
from ..operations.topics.stats import Stats
from ..store.history.rows import Event, HistoryRow
from ..terminal import balances_view, count_cell, table
from ..times.durations import show_ms
from .shop import NOTIFY, SHOP_GROUP, Scale, effects_file

AFTER_KILL_S = 5.0  # after a kill: the TTR has to pass, and perhaps the mover's lease
_ATTEMPTS = (Event.DONE, Event.RETRY, Event.DEAD, Event.RECLAIMED, Event.RELEASED)


@dataclass(frozen=True, slots=True)
class AttemptLateness:
    """Attempt start minus due time, in ms."""

    attempts: int
    p50_ms: int
    p99_ms: int
    max_ms: int
    early: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the retry schedule: how long it should be, how often it was taken, how long it was."""

    number: int
    documented: str
    scaled_ms: int
    taken: int
    waited_p50_ms: int | None


@dataclass(slots=True)
class Report:
    """The demo's result."""

    audit: Audit
    counters: dict[str, int]
    lateness: dict[str, AttemptLateness]
    steps: list[Step]
    reclaimed: list[str]
    takeover_ms: int | None  # from the kill to the start of the last job taken over
    duplicates: int
    missing: list[str] = field(default_factory=list)  # acts of the demo that did not take place

    @property
    def good(self) -> bool:
        return self.audit.balanced and self.audit.left == 0 and not self.missing


def lateness(rows: Iterable[HistoryRow]) -> AttemptLateness:
    """The lateness of the attempts among the rows."""
    values = sorted(row.started_ms - row.due_ms for row in _attempts(rows))  # type: ignore[operator]
    return AttemptLateness(
        len(values), _quantile(values, 0.5), _quantile(values, 0.99), values[-1] if values else 0,
        sum(value < 0 for value in values),
    )  # fmt: skip


def lateness_by_kill(rows: Sequence[HistoryRow], killed_ms: int | None) -> dict[str, AttemptLateness]:
    """Separates the attempts that the kill could delay. A lost job keeps its due time, so its next attempt may have
    been due before the kill.
    """
    hit = {
        id(row)
        for row in _attempts(rows)
        if killed_ms is not None
        and (row.started_ms or 0) >= killed_ms
        and (row.due_ms or 0) <= killed_ms + AFTER_KILL_S * 1000
    }
    return {
        "undisturbed": lateness(row for row in rows if id(row) not in hit),
        f"lost by the kill, or due within {AFTER_KILL_S:.0f} s": lateness(row for row in rows if id(row) in hit),
        "all": lateness(rows),
    }


def _attempts(rows: Iterable[HistoryRow]) -> list[HistoryRow]:
    return [row for row in rows if row.event in _ATTEMPTS and row.started_ms is not None and row.due_ms is not None]


def _quantile(values: Sequence[int], share: float) -> int:
    """Of sorted values; the larger of two neighbours."""
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0


def steps_of(rows: Iterable[HistoryRow], scale: Scale) -> list[Step]:
    """How often each step of the notices' schedule was taken, and how long it took until the next attempt began."""
    by_job: dict[str, list[HistoryRow]] = defaultdict(list)
    for row in rows:
        if row.topic == NOTIFY and row.group == SHOP_GROUP:
            by_job[row.id].append(row)
    waited: dict[int, list[int | None]] = defaultdict(list)
    for history in by_job.values():
        for step, waited_ms in _waits(sorted(history, key=lambda row: row.place)):
            waited[step].append(waited_ms)
    documented = RetrySchedule.of(DEFAULT_RETRY).steps_ms
    steps = []
    for i, (shown_ms, scaled_ms) in enumerate(zip(documented, scale.retry.steps_ms, strict=True), 1):
        known = sorted(ms for ms in waited[i] if ms is not None)
        steps.append(Step(i, show_ms(shown_ms), scaled_ms, len(waited[i]), _quantile(known, 0.5) if known else None))
    return steps


def _waits(history: Sequence[HistoryRow]) -> Iterator[tuple[int, int | None]]:
    """(step, ms until the next attempt began) of each retry of one job; None: it has not begun."""
    step = 0
    for row, following in zip(history, [*history[1:], None], strict=True):
        if row.event is Event.KICKED:
            step = 0
        if row.event is Event.RETRY:
            step += 1
            begun = None if following is None else following.started_ms
            yield step, None if begun is None else begun - row.finished_ms


def duplicates_in(directory: Path) -> int:
    """Effects that happened more than once for one job and group; a queue guarantees at-least-once."""
    path = effects_file(directory)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    effects = Counter((e["topic"], e["group"], e["id"]) for e in map(json.loads, lines))
    return sum(count - 1 for count in effects.values())


def takeover_ms(rows: Sequence[HistoryRow], killed_ms: int | None) -> int | None:
    """The time from the kill until the last job taken over was started again."""
    if killed_ms is None:
        return None
    lost = {(row.topic, row.group, row.id, row.attempt) for row in rows if row.event is Event.RECLAIMED}
    again = [
        row.started_ms
        for row in _attempts(rows)
        if (row.topic, row.group, row.id, row.attempt - 1) in lost and row.started_ms is not None
    ]
    return max(again) - killed_ms if again else None


def build(
    audit: Audit, stats: Stats, rows: list[HistoryRow], directory: Path, scale: Scale, killed_ms: int | None
) -> Report:
    groups = [group for topic in stats.topics.values() for group in topic.groups.values()]
    counters = {name: sum(getattr(g, name) for g in groups) for name in ("done", "retried", "reclaimed", "cancelled")}
    counters["kicked"] = sum(row.event is Event.KICKED for row in rows)
    return Report(
        audit,
        counters,
        lateness_by_kill(rows, killed_ms),
        steps_of(rows, scale),
        [row.id for row in rows if row.event is Event.RECLAIMED],
        takeover_ms(rows, killed_ms),
        duplicates_in(directory),
    )


def report_json(report: Report) -> dict[str, Any]:
    return {
        "good": report.good,
        "audit": audit_json(report.audit),
        "counters": report.counters,
        "lateness": {name: dataclasses.asdict(value) for name, value in report.lateness.items()},
        "steps": [dataclasses.asdict(step) for step in report.steps],
        "reclaimed": report.reclaimed,
        "takeover_ms": report.takeover_ms,
        "duplicates": report.duplicates,
        "missing": report.missing,
    }


def report_view(report: Report, scale: Scale) -> RenderableType:
    late = table(
        "lateness, ms", "attempts", "p50", "p99", "max", "early", numbers=("attempts", "p50", "p99", "max", "early")
    )
    for name, value in report.lateness.items():
        figures = (value.attempts, value.p50_ms, value.p99_ms, value.max_ms)
        late.add_row(name, *(count_cell(figure, "bold") for figure in figures), count_cell(value.early, "bold red"))
    names = ("documented", "here", "retries", "waited, p50")
    steps = table("retry step", *names, numbers=names)
    for step in report.steps:
        waited = "" if step.waited_p50_ms is None else f"{step.waited_p50_ms / 1000:.3f} s"
        here = f"{step.scaled_ms / 1000:.3f} s"
        steps.add_row(str(step.number), step.documented, here, count_cell(step.taken, "bold"), waited)
    parts = (balances_view(report.audit.balances), late, steps, _crash_line(report, scale), _verdict(report))
    return Group(*(line for part in parts for line in (Text(""), part)))


def _crash_line(report: Report, scale: Scale) -> Text:
    lost = len(report.reclaimed)
    text = Text(f"kill -9     {lost} running job{'s' if lost != 1 else ''} taken over")
    if report.takeover_ms is not None:
        ttr = show_ms(scale.ttr_s * 1000)
        text.append(f", started again {report.takeover_ms / 1000:.1f} s after it (TTR {ttr})")
    text.append(f"\nduplicates  {report.duplicates} effects took place twice")
    return text.append(f"\nkicked      {report.counters['kicked']} dead letter, after all nine steps")


def _verdict(report: Report) -> Text:
    if report.good:
        return Text("✔ balanced: enqueued = done + dead + cancelled + expired + live; nothing is left", "bold green")
    wrong = [] if report.audit.balanced else ["the counters do not balance"]
    wrong += [f"{report.audit.left} jobs are left"] if report.audit.left else []
    return Text(f"✘ {'; '.join(wrong + report.missing)}", "bold red")
