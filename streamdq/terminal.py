"""The commands' output: tables for people, and JSON for programs."""

from __future__ import annotations

import codecs
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from .job.job import GroupProgress, HandlerProgress
from .job.retry import RetrySchedule
from .process.logs import hide_credentials, visible, visible_json
from .times.durations import show_ms

if TYPE_CHECKING:
    from rich.progress import Progress

    from .config import GroupSettings, TopicSettings
    from .job.after import Dependencies
    from .job.flow import FlowStatus, FlowTimes, StageTimes
    from .job.job import GroupProgress, Job
    from .operations.checks.audit import Audit, Balance
    from .operations.checks.redis_server import Finding
    from .operations.find.actions import Acted
    from .operations.history.job_history import JobEvent
    from .operations.keys.busiest import KeyLoad
    from .operations.schedules.define import PutSchedule
    from .operations.schedules.read import Schedule
    from .operations.topics.scale import Scale
    from .operations.topics.stats import Stats, TopicStats
    from .schedules.definition import Definition

_PIPE_WIDTH, _WIDE, _NAMES_AND_DUE, _NAMES_AND_COUNTS, _BODY_WIDTH = 200, 106, 64, 74, 60
_MARKS = {"ok": ("✔", "green"), "advice": ("!", "yellow"), "problem": ("✘", "red")}
_WAITING = "waiting"
_SCHEDULE_STYLES = {"active": "green", "paused": "yellow", "ended": "dim"}
_STYLES = {
    _WAITING: "magenta", "delayed": "cyan", "ready": "yellow", "running": "blue", "dead": "red", "done": "green",
    "ended": "dim",
}  # fmt: skip


class _Screen(Console):
    """Shows control characters as escapes instead of sending them to the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; without a terminal, wide enough for any table."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return _Screen(stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


class ProgressBar:
    """The progress of something that takes long."""

    def __init__(self, bar: Progress, what: str) -> None:
        self._bar = bar
        self._task = bar.add_task(what, total=None, count="", rate="")
        self._done = 0

    def reach(self, done: int, total: int | None = None, counted: int | None = None) -> None:
        """Sets the progress to ``done`` of ``total``. ``counted`` is shown instead, such as lines when they are
        bytes.
        """
        self._done = done
        number = done if counted is None else counted
        of_all = f"/{total}" if total and counted is None else ""
        elapsed = self._bar.tasks[0].elapsed
        rate = f"{number / elapsed:,.0f}/s" if elapsed else ""
        self._bar.update(self._task, completed=done, total=total, count=f"{number}{of_all}", rate=rate)

    def work_on(self, what: str, done: int, total: int) -> None:
        """Sets the progress to ``done`` of ``total`` parts; ``what`` is next."""
        self._bar.update(self._task, description=what)
        self.reach(done, total)

    def advance(self, count: int, total: int | None = None) -> None:
        """Advances by ``count``; with a ``total``, starts again from 0."""
        if total is not None:
            self._bar.reset(self._task, total=total)
            self._done = 0
        self.reach(self._done + count, total or _whole(self._bar.tasks[0].total))


def _whole(total: float | None) -> int | None:
    return None if total is None else int(total)


@contextmanager
def progress_bar(what: str = "", *, shown: bool = True) -> Iterator[ProgressBar]:
    """A bar on stderr with the rate and the time left; nothing is drawn if stderr is not a terminal."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    to = console(stderr=True)
    hidden = not (shown and to.is_terminal)
    with Progress(*columns, console=to, transient=True, disable=hidden, redirect_stdout=False) as bar:
        yield ProgressBar(bar, what)


def say(text: str) -> None:
    """Prints one plain line on stdout."""
    console().print(Text(text), soft_wrap=True)


def complain(text: str, error: BaseException | None = None) -> None:
    """Prints one line on stderr, without passwords: the text, and the notes of the error. A stderr that is full or
    closed changes no exit code.
    """
    whole = "; ".join([text, *getattr(error, "__notes__", ())])
    line = " ".join(hide_credentials(whole).split())
    with suppress(OSError):
        console(stderr=True).print(Text.assemble(("streamdq: ", "bold red"), line), soft_wrap=True)


def print_json(value: Any) -> None:
    """Prints one line of JSON."""
    in_ascii = codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8"  # JSON has no other encoding
    sys.stdout.write(visible_json(json.dumps(value, ensure_ascii=in_ascii, default=str)) + "\n")
    sys.stdout.flush()


# -- for people


def narrow() -> bool:
    """Whether the terminal has no room for wide tables."""
    return console().width < _WIDE


class _Table(Table):
    """Makes room for control characters as they are shown; else they are cut off at the width that they have."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(_as_shown, cells), **options)


def _as_shown(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, str):
        return visible(cell)
    if isinstance(cell, Text) and (shown := visible(cell.plain)) != cell.plain:
        return Text(shown, cell.style, justify=cell.justify, overflow=cell.overflow, no_wrap=cell.no_wrap)
    return cell


def table(*columns: str, title: str | None = None, numbers: Sequence[str] = ()) -> Table:
    """A table in the common style. ``numbers``: columns that are aligned to the right."""
    padding = (0, 0) if narrow() else (0, 1)
    made = _Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, show_edge=False, padding=padding
    )
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", no_wrap=name in numbers)
    return made


def utc_text(ms: int | None) -> str:
    """The time for people, in UTC with milliseconds."""
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "milliseconds")[:-6] + " UTC"


def time_text(ms: int | None) -> str:
    """As utc_text, and by the clocks of this computer, if these don't show UTC."""
    if ms is None:
        return ""
    local = local_text(ms)
    return f"{utc_text(ms)} ({local})" if local else utc_text(ms)


def local_text(ms: int) -> str:
    """The time by the clocks of this computer; empty if these show UTC."""
    local = datetime.fromtimestamp(ms / 1000).astimezone()
    return f"{local:%a %H:%M:%S %Z}" if local.utcoffset() else ""


def counted(number: int, word: str) -> str:
    """The number and the word, which is plural unless the number is 1: ``1 file``, ``1,205 files``."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def count_cell(value: int, style: str) -> Text:
    """A count; zero is dimmed, so that other values stand out."""
    return Text(f"{value:,}", style if value else "dim")


def _body_text(job: Job) -> Text:
    why = job.why_unreadable
    return Text(f"({why})", "yellow") if why else Text(json.dumps(job.body, ensure_ascii=False))


def _of_groups(values: Mapping[str, Sequence[str]]) -> str:
    several = len(values) > 1
    return "; ".join(f"{value} ({', '.join(names)})" if several else value for value, names in values.items())


def job_view(job: Job, settings: TopicSettings) -> RenderableType:
    ttrs = settings.by_value(lambda group: show_ms(settings.ttr_of(group)))
    retries = settings.by_value(lambda group: str(settings.retry_of(group)))
    facts = Table.grid(padding=(0, 2))
    rows: dict[str, Any] = {
        "job": f"{job.topic} / {job.id}",
        "state": Text(job.state, _STYLES[job.state]),
        "due": _due_text(job, time_text),
        "waits for": _waits_text(job.waits_for),
        "created": time_text(job.created_ms),
        "ttr": _of_groups(ttrs) if job.ttr_ms is None else show_ms(job.ttr_ms),
        "retry": _of_groups(retries) if job.retry is None else str(RetrySchedule.of(job.retry)),
        "url": job.url,
        "key": job.key,
        "priority": job.priority,
        "expire": None if job.expire_ms is None else show_ms(job.expire_ms),
        "version": str(job.version),
        "body": _body_text(job),
    }
    for name, value in rows.items():
        if value is not None:
            facts.add_row(Text(name, "dim"), value if isinstance(value, Text) else Text(value))
    groups = table("group", "state", "attempt", "step", "due", "consumer", "details", numbers=("attempt", "step"))
    for name, progress in job.groups.items():
        groups.add_row(
            name, Text(progress.state, _STYLES[progress.state]), str(progress.attempt), str(progress.step),
            _due_text(progress, utc_text), progress.consumer or "", Text(_why(progress)),
        )  # fmt: skip
    return Group(facts, groups)


def _due_text(one: Job | GroupProgress, text: Callable[[int | None], str]) -> str:
    """One that waits for other jobs has no due time."""
    return "" if one.state == _WAITING else text(one.due_ms)


def _waits_text(waits: Dependencies | None) -> str | None:
    if waits is None:
        return None
    text = f"{counted(waits.total, 'job')}, of which {waits.done:,} are done and {waits.failed:,} have failed"
    text += f" (on failure: {waits.on_failure})" + ("; it is blocked" if waits.blocked else "")
    open_jobs = [one for one in waits.jobs if one.outcome != "done"]
    return "\n".join([text, *(f"{one.topic} / {one.id}: {one.outcome or 'has not ended'}" for one in open_jobs[:10])])


def _why(progress: GroupProgress) -> str:
    stops = "aborted, and has yet to stop" if progress.aborted else None
    return ": ".join(part for part in (progress.reason, progress.error, stops, _done(progress.progress)) if part)


def _done(progress: HandlerProgress | None) -> str:
    """How far a running attempt is, as its handler says."""
    if progress is None:
        return ""
    share = "" if progress.fraction is None else f"{progress.fraction:.0%}"
    return " ".join(filter(None, (share, progress.text)))


_ALWAYS = ("delayed", "ready", "running", "dead", "done")
_WHERE_ANY = ("retried", "snoozed", "reclaimed", "cancelled", "expired")  # shown if any is not 0


MOST_SHOWN = 200
"""Topics of a table. Nobody reads thousands of lines, and to lay them out takes seconds."""


def stats_view(stats: Stats, most: int = MOST_SHOWN) -> RenderableType:
    """At most so many topics; if there are more, those that somebody should look at come first."""
    if not stats.topics:
        return Text("no topics yet: enqueue a job, or start a worker", "dim")
    if (left := len(stats.topics) - most) > 0:
        from .operations.topics.stats import Concern, by_concern

        order = by_concern(stats.topics)
        shown = replace(stats, topics={name: stats.topics[name] for _, name in order[:most]})
        hidden = sum(1 for why, _ in order[most:] if why is not Concern.NONE)
        return Group(_stats_table(shown), Text(""), _left_out(left, hidden), _totals_line(stats))
    return _stats_table(stats)


def _left_out(topics: int, troubled: int) -> Text:
    """``troubled``: so many of them should be looked at as well."""
    what = f", {troubled:,} of which are in trouble" if troubled else ""
    style = "yellow" if troubled else "dim"
    return Text(f"{counted(topics, 'more topic')}{what}: --all shows them, --json as well", style)


def _totals_line(stats: Stats) -> Text:
    figures = ", ".join(f"{getattr(stats, name):,} {name}" for name in ("delayed", "ready", "running", "dead"))
    return Text(f"all {len(stats.topics):,} topics: {figures}")


def _stats_table(stats: Stats) -> RenderableType:
    columns = (*_ALWAYS, *_rare_columns(stats))
    with_due = console().width >= _NAMES_AND_DUE
    due = ("next due",) if with_due else ()
    made = table("topic", "group", *columns, *due, numbers=(*columns, *due))
    for name, topic in stats.topics.items():
        shown, soon = Text(name), _next_due(topic)  # the name only in the topic's first row
        for at, (group_name, figures) in enumerate(topic.groups.items()):
            cells = [count_cell(getattr(figures, column), _STYLES.get(column, "")) for column in columns]
            last = [soon if at == 0 or figures.delayed else Text("")]
            made.add_row(Text("") if at else shown, group_name, *cells, *last[: len(due)])
    return made


def _rare_columns(stats: Stats) -> list[str]:
    """The rare columns that have values, if there is room for them."""
    if narrow():
        return []
    groups = [group for topic in stats.topics.values() for group in topic.groups.values()]
    return [name for name in _WHERE_ANY if any(getattr(group, name) for group in groups)]


def _next_due(topic: TopicStats) -> Text:
    if topic.unreachable:
        return Text(f"{topic.unreachable} of {topic.shards} shards not reachable", "bold red")
    if topic.paused:
        return Text("paused", "bold yellow")
    if topic.overdue_ms > 1000:
        return Text(f"overdue by {show_ms(topic.overdue_ms)}", "bold red")
    return Text(utc_text(topic.next_due_ms)[5:19])


def upcoming_view(totals: Mapping[str, int]) -> RenderableType:
    made = table("within", "jobs due", numbers=("jobs due",))
    for window, count in totals.items():
        made.add_row(window, count_cell(count, ""))
    return made


def scale_view(found: Scale) -> RenderableType:
    made = Table.grid(padding=(0, 2))
    whence = f"{found.attempts:,} measured" if found.attempts else "as given"
    took = f"{show_ms(round(found.attempt_ms))} ({whence})"
    for name, value in (
        ("replicas now", f"{found.replicas_now:,}"),
        (f"replicas within {show_ms(found.within_ms)}", f"{found.replicas_ahead:,}"),
        ("ready", f"{found.ready:,}"),
        ("running", f"{found.running:,}"),
        (f"due within {show_ms(found.within_ms)}", f"{found.due:,}"),
        ("an attempt takes", took if found.attempts or found.attempt_ms else "not known: nothing was measured"),
    ):
        made.add_row(Text(name, "dim"), Text(value))
    return made


def keys_view(loads: Sequence[KeyLoad]) -> RenderableType:
    if not loads:
        return Text("no key that jobs wait for", "green")
    made = table("key", "waiting", "running", "", numbers=("waiting", "running"))
    for load in loads:
        paused = Text("paused" if load.paused else "", "bold yellow")
        made.add_row(Text(load.key), count_cell(load.waiting, ""), count_cell(load.running, ""), paused)
    return made


def dead_view(jobs: Sequence[Job], group: str, *, topics: bool = False) -> RenderableType:
    """``topics``: of several topics."""
    if not jobs:
        return Text("no dead letters", "green")
    made = table(*_topic_column(topics), "id", "attempts", "reason", "error", "created", numbers=("attempts",))
    for job in jobs:
        progress = job.groups[group]
        made.add_row(
            *([Text(job.topic)] if topics else []), Text(job.id), str(progress.attempt), progress.reason or "",
            Text(progress.error or ""),
            utc_text(job.created_ms),
        )  # fmt: skip
    return made


def _topic_column(topics: bool) -> list[str]:
    return ["topic"] if topics else []


def jobs_view(jobs: Sequence[Job], what: str, *, topics: bool = False) -> RenderableType:
    """The jobs of a list; ``what``: of which kind, if there are none. ``topics``: of several topics."""
    if not jobs:
        return Text(f"no {what}", "dim")
    made = table(*_topic_column(topics), "id", "state", "due", "attempts", "body", numbers=("attempts",))
    for job in jobs:
        body = _body_text(job)
        body.truncate(_BODY_WIDTH, overflow="ellipsis")
        made.add_row(
            *([Text(job.topic)] if topics else []), Text(job.id), Text(job.state, _STYLES[job.state]),
            _due_text(job, utc_text), str(job.attempt), body,
        )  # fmt: skip
    return made


def history_view(events: Sequence[JobEvent], *, tracebacks: bool = False) -> RenderableType:
    """What became of a job, in its order. ``tracebacks``: below, those of the attempts that failed."""
    local = ["local"] if events and local_text(events[0].row.finished_ms) else []
    due = [] if narrow() else ["due"]
    made = table("when", *local, "event", "group", "attempt", *due, "took", "why", numbers=("attempt", "took"))
    for event in events:
        ms = event.row.finished_ms
        made.add_row(utc_text(ms), *[local_text(ms) for _ in local], *_event_cells(event, with_due=bool(due)))
    traced = [event for event in events if event.traceback] if tracebacks else []
    return Group(made, *(part for event in traced for part in _traceback_parts(event)))


def event_line(event: JobEvent) -> Text:
    """One event of a topic, for a list that grows."""
    row = event.row
    what, group, attempt, took, why = _event_cells(event, with_due=False)
    of = f"{group} {attempt}".strip()
    line = Text(f"{utc_text(row.finished_ms)}  {what!s:<9}  ", overflow="fold")
    return line.append(visible(row.id), "bold").append(f"  {of}  {took}  ").append(why)


def _event_cells(event: JobEvent, *, with_due: bool) -> Iterator[str | Text]:
    row = event.row
    yield from (row.event.value, row.group, str(row.attempt) if row.group and row.attempt else "")
    if with_due:
        yield utc_text(row.due_ms)
    yield "" if row.started_ms is None else show_ms(max(0, row.finished_ms - row.started_ms))
    yield Text(": ".join(part for part in (row.reason, event.message or row.error) if part))


def _traceback_parts(event: JobEvent) -> Iterator[RenderableType]:
    yield Text(f"\nattempt {event.row.attempt}, group {event.row.group}", "bold")
    yield Text(visible(event.traceback))


def found_view(jobs: Sequence[Job], count: int, unreadable: int, *, topics: bool = False) -> RenderableType:
    """The first of the jobs that a search has found. ``unreadable``: bodies that could not be looked into. ``topics``:
    of several topics.
    """
    parts: list[RenderableType] = []
    if jobs:
        parts += [jobs_view(jobs, "jobs", topics=topics), Text("")]
    more = f", {count - len(jobs):,} of them not shown" if jobs and count > len(jobs) else ""
    parts.append(Text(f"{counted(count, 'job')} found{more}", "bold" if count else "green"))
    if unreadable:
        bodies = "1 body" if unreadable == 1 else f"{unreadable:,} bodies"
        parts.append(Text(f"not looked into: {bodies} that can't be read here", "yellow"))
    return Group(*parts)


_DONE_WORDS = {"cancel": "cancelled", "reschedule": "rescheduled", "kick": "kicked", "purge": "purged"}


def acted_text(action: str, acted: Acted) -> str:
    left = {"changed since": acted.changed, "ended since": acted.gone, "in another state": acted.refused}
    alone = ", ".join(f"{number:,} {why}" for why, number in left.items() if number)
    return f"{acted.done:,} {_DONE_WORDS[action]}" + (f"; left alone: {alone}" if alone else "")


_AUDIT_COLUMNS = ("enqueued", "done", "dead", "cancelled", "expired", "live", "missing")
_AUDIT_NARROW = ("enqueued", "live", "missing")


def audit_view(audit: Audit) -> RenderableType:
    """If there are many accounts, only those that don't balance."""
    shown = audit.balances
    if len(shown) > MOST_SHOWN:
        shown = [balance for balance in shown if balance.imbalance]
    left = len(audit.balances) - len(shown)
    parts: list[RenderableType] = [balances_view(shown)] if shown else []
    parts += [Text(f"{left:,} accounts balance; --json has them", "dim")] if left else []
    return Group(*parts, _orphans_view(audit), Text(""), _verdict(audit))


def balances_view(balances: Iterable[Balance]) -> Table:
    """Where there is no room for all counts, the names of topic and group are worth more than most of them."""
    columns = _AUDIT_COLUMNS if console().width >= _NAMES_AND_COUNTS else _AUDIT_NARROW
    made = table("topic", "group", *columns, numbers=columns)
    for b in balances:
        cells = [count_cell(getattr(b, name), _STYLES.get(name, "")) for name in columns[:-1]]
        made.add_row(Text(b.topic), b.group, *cells, count_cell(b.imbalance, "bold red"))
    return made


def _orphans_view(audit: Audit) -> RenderableType:
    if not audit.orphans:
        return Text("no orphans", "dim")
    made = table("topic", "orphan", "what is wrong")
    for orphan in audit.orphans:
        made.add_row(Text(orphan.topic), Text(orphan.id), Text(orphan.what))
    return made


def _verdict(audit: Audit) -> Text:
    if audit.balanced:
        return Text("✔ balanced: enqueued = done + dead + cancelled + expired + live", "bold green")
    return Text("✘ not balanced: see the column missing and the orphans", "bold red")


def doctor_view(findings: Iterable[Finding]) -> RenderableType:
    made = Table.grid(padding=(0, 1))
    for finding in findings:
        mark, style = _MARKS[finding.verdict]
        made.add_row(Text(mark, f"bold {style}"), Text(finding.what))
        if finding.advice:
            made.add_row("", Text(f"→ {finding.advice}", style))
    return made


# -- schedules


def flow_view(flow: FlowStatus) -> RenderableType:
    times = flow.times
    columns = ["waited", "ran"] if times else []
    made = table("stage", "topic", "jobs", "after", "if one fails", *columns, "states", numbers=("jobs", *columns))
    for number, one in enumerate(flow.stages):
        states = ", ".join(f"{count:,} {state}" for state, count in sorted(one.counts.items()))
        took = _took(times.stages[number]) if times else ()
        after = ", ".join(map(str, one.after))
        made.add_row(str(number), one.topic, f"{one.jobs:,}", after, one.on_failure, *took, states)
    head = Text(f"{flow.name}: {flow.state.value}", "bold")
    return Group(head, made, *(_path_parts(times) if times else ()))


def _took(stage: StageTimes) -> tuple[str, str]:
    return (show_ms(stage.waited_ms), show_ms(stage.ran_ms)) if stage.known else ("", "")


def _path_parts(times: FlowTimes) -> Iterator[RenderableType]:
    if times.why_no_path:
        yield Text(f"\nno critical path: {times.why_no_path}")
        return
    if any(stage.known > 1 for stage in times.stages):
        yield Text("waited, ran: the median of the stage's jobs", "dim")
    total = "" if times.ended_ms is None else f": {show_ms(times.ended_ms - times.begun_ms)}"
    yield Text(f"\ncritical path{total}", "bold")
    made = table("stage", "job", "waited", "ran", "state", numbers=("waited", "ran"))
    for one in times.path:
        took = [f"{'' if ms is None else show_ms(ms)}" for ms in (one.waited_ms, one.ran_ms)]
        made.add_row(str(one.stage), f"{one.topic}/{one.id}", *took, one.state)
    yield made


def schedules_view(schedules: Sequence[Schedule]) -> RenderableType:
    if not schedules:
        return Text("no schedules", "dim")
    counts = () if narrow() else ("fired", "skipped", "missed")
    made = table("topic", "id", "when", "zone", "next (UTC)", "state", *counts, numbers=("next (UTC)", *counts))
    for one in schedules:
        cells = [count_cell(getattr(one, name), "red" if name == "missed" else "") for name in counts]
        state = Text(one.state, _SCHEDULE_STYLES[one.state])
        made.add_row(Text(one.topic), Text(one.id), one.text, one.definition.tz, _next_text(one), state, *cells)
    states = Counter[str](one.state for one in schedules)
    return Group(
        made, Text(", ".join(f"{states[state]:,} {state}" for state in _SCHEDULE_STYLES if states[state]), "dim")
    )


def _next_text(schedule: Schedule) -> str:
    return civil_text(schedule.next_ms[0], "UTC", "%Y-%m-%d %H:%M:%S") if schedule.next_ms else ""


def schedule_view(schedule: Schedule) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    rows: dict[str, str | Text | None] = {
        "schedule": f"{schedule.topic} / {schedule.id}",
        "state": Text(schedule.state, _SCHEDULE_STYLES[schedule.state]),
        **_definition_rows(schedule.definition),
        "ttr": _optional_ms(schedule.ttr_ms),
        "retry": schedule.retry and str(RetrySchedule.of(schedule.retry)),
        "url": schedule.url,
        "expire": _optional_ms(schedule.expire_ms),
        "version": None if schedule.version == 1 else str(schedule.version),
        "body": json.dumps(schedule.body, ensure_ascii=False),
        "so far": f"{schedule.fired:,} enqueued, {schedule.skipped:,} skipped, {schedule.missed:,} missed",
        "waiting": "one, until the last job has ended" if schedule.waiting else None,
        "last job": schedule.previous,
    }
    for name, value in rows.items():
        if value is not None:
            facts.add_row(Text(name, "dim"), value if isinstance(value, Text) else Text(value))
    return Group(facts, Text(), times_view(schedule))


def _definition_rows(definition: Definition) -> dict[str, str | Text | None]:
    catch_up = definition.catch_up
    return {
        "when": definition.phrase,
        "in words": definition.words if definition.cron else None,
        "zone": definition.tz,
        "dst": definition.dst if definition.dst != "once" else None,
        "jitter": _optional_ms(definition.jitter_ms or None),
        "start": utc_text(definition.start_ms) or None,
        "until": utc_text(definition.until_ms) or None,
        "overlap": definition.overlap,
        "catch up": show_ms(catch_up) if isinstance(catch_up, int) else catch_up,
        "declared": "by a worker" if definition.declared else None,
    }


def _optional_ms(ms: int | None) -> str | None:
    return None if ms is None else show_ms(ms)


def put_view(put: PutSchedule) -> RenderableType:
    """What a schedule was and will be: when it runs next."""
    after = put.after
    head = Text.assemble((f"{after.topic} / {after.id}", "bold"), f"  {after.definition.words}, {after.definition.tz}")
    if put.before is None or put.before == after:
        return Group(head, times_view(after))
    return Group(head, times_view(put.before, "before: "), times_view(after, "after: "))


def times_view(schedule: Schedule, which: str = "") -> RenderableType:
    """When a schedule runs next, in its zone and in UTC."""
    if not schedule.next_ms:
        return Text(f"{which}it is paused" if schedule.state == "paused" else f"{which}no time follows", "yellow")
    tz = schedule.definition.tz
    columns = [f"{which}{tz}", *(["UTC"] if tz != "UTC" else [])]
    made = table(*columns, numbers=columns)
    for ms in schedule.next_ms:
        made.add_row(*(civil_text(ms, name) for name in dict.fromkeys((tz, "UTC"))))
    return made


def civil_text(ms: int, tz: str, form: str = "%a %Y-%m-%d %H:%M:%S %Z") -> str:
    """What clocks in that zone show then."""
    from .schedules.civil import zone

    return datetime.fromtimestamp(ms / 1000, zone(tz)).strftime(form)


# -- settings


def settings_view(topic: str, settings: TopicSettings) -> RenderableType:
    made = Table.grid(padding=(0, 2))
    rows = {
        "topic": topic,
        "shards": _shards_line(settings),
        "ttr": show_ms(settings.ttr_ms),
        "retry": str(RetrySchedule.of(settings.retry)),
        "max_deliveries": str(settings.max_deliveries),
        "dead_for": show_ms(settings.dead_for_ms) if settings.dead_for_ms else "until kicked or purged",
        "rate": "no limit" if settings.rate is None else f"{settings.rate:,.12g} jobs/s",
        "durable": settings.durable or "as each process is configured",
        "key_concurrency": str(settings.key_concurrency or "no limit"),
        "key_order": settings.key_order or "none",
        "key_rate": settings.key_rate or "no limit",
        "paused": "yes" if settings.paused else "no",
    }
    for name, value in rows.items():
        made.add_row(Text(name, "dim"), Text(value))
    for name, group in settings.groups.items():
        made.add_row(Text("group", "dim"), Text(_group_line(name, group)))
    return made


def _shards_line(settings: TopicSettings) -> str:
    before = ", ".join(map(str, settings.former))
    return f"{settings.shards}, resharding: jobs from when it had {before}" if before else str(settings.shards)


def _group_line(name: str, group: GroupSettings) -> str:
    own = [f"ttr {show_ms(group.ttr_ms)}"] if group.ttr_ms is not None else []
    own += [f"retry {RetrySchedule.of(group.retry)}"] if group.retry is not None else []
    own += [f"results kept {show_ms(group.result_ms)}"] if group.result_ms else []
    return f"{name} ({', '.join(own)})" if own else name
