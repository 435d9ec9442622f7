"""The command what-if."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from streamdq import terminal
from streamdq.cli.common import EXIT_NO, Json, commands
from streamdq.errors import InvalidInput, MissingExtra
from streamdq.job.retry import RetrySchedule
from streamdq.operations.topics.configure import check_rate
from streamdq.terminal import counted
from streamdq.times.durations import show_ms, to_ms

from .options import DAY, Master, Memory, Quarantine, Verbose, date_of, set_aside

if TYPE_CHECKING:
    from ..whatif import Answer, QueueAnswer
    from ..whatif.answer import Figures, PoolAnswer

app = commands()

_Retry = Annotated[str | None, typer.Option(help="Another retry schedule, such as '15s 3m 1h', or none.")]
_Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="The topic that --retry, --ttr and --rate are for; may be repeated [all]."),
]
_Was = Annotated[int | None, typer.Option(min=1, help="The handlers at once of each worker as it was [as seen].")]


@app.command(name="what-if", rich_help_panel="History")
def replay_with(
    dump: Annotated[str, typer.Argument(help="The folder or URL of a dump.", show_default=False)],
    retry: _Retry = None,
    ttr: Annotated[str | None, typer.Option(help="Another TTR, such as 20s.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0, help="The jobs of a topic that become ready in a second; 0: no limit.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="This many worker processes, all the time.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="This many handlers at once in each worker.")] = None,
    topics: _Topics = None,
    concurrency_was: _Was = None,
    first: Annotated[datetime | None, typer.Option("--from", help="The first UTC day [the dump's].", **DAY)] = None,
    last: Annotated[datetime | None, typer.Option("--to", help="The last UTC day [the dump's].", **DAY)] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed by which attempts that nobody saw are drawn.")] = 1,
    master: Master = None,
    memory: Memory = None,
    verbose: Verbose = False,
    quarantine: Quarantine = False,
    as_json: Json = False,
) -> None:
    """Replay the history with other settings.

    What would they have changed? Shows attempts, dead letters, lateness and worker hours as they were seen, as a replay
    with the same settings has them, and with the changed ones. Exit code 1 if the replay is too far from what was seen
    to be believed. Needs streamdq[spark].
    """
    try:
        from ..days import open_days
        from ..read_days import events_of
        from ..session import session, settings_for
        from ..whatif import Change, what_if
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "pyspark", "spark") from error
    change = Change(
        None if retry is None else RetrySchedule.of(retry).steps_ms,
        None if ttr is None else _above_zero(to_ms(ttr, "ttr")),
        _rate_in(rate),
        workers,
        concurrency,
        frozenset(topics or ()),
    )
    if change == Change(topics=change.topics):
        raise InvalidInput("nothing to change: pass --retry, --ttr, --rate, --workers or --concurrency")
    days = open_days(dump, date_of(first), date_of(last), quarantine=quarantine)
    settings = settings_for(days.events, master)
    started = session(master, settings=settings, memory=memory, verbose=verbose)
    with terminal.progress_bar("starting Spark", shown=not as_json) as bar, started as spark:
        bar.work_on("replaying", 0, 1)
        with events_of(spark, days) as events:
            answer = what_if(spark, events, change, had_concurrency=concurrency_was, seed=seed)
    if as_json:
        terminal.print_json(asdict(answer) | {"good": answer.good})
    else:
        terminal.console().print(_view(answer))
        if days.impossible:
            terminal.console().print(Text(f"left out: {set_aside(days.impossible)}", "bold yellow"))
    if not answer.good:
        raise typer.Exit(EXIT_NO)


def _rate_in(rate: float | None) -> float | None:
    return None if rate is None else check_rate(rate)


def _above_zero(ms: int) -> int:
    if ms < 1:
        raise InvalidInput("ttr: must be at least 1 ms")
    return ms


# -- for people

_COLUMNS = ("attempts", "done", "dead", "late p50", "late p99", "busy h")
_HOUR_MS = 3_600_000
_NAMED = 3


def _view(answer: Answer) -> RenderableType:
    made = terminal.table("topic", "group", "", *_COLUMNS, numbers=_COLUMNS)
    for queue in answer.queues:
        name, group = Text(queue.topic, "bold"), queue.group or ""
        made.add_row(name, group, Text("seen", "dim"), *_cells(queue.seen, None))
        made.add_row("", "", Text("replayed", "dim"), *_cells(queue.replayed, None))
        made.add_row("", "", Text("what if", "cyan"), *_cells(queue.changed, queue.replayed))
    lines = [*map(_workers, answer.pools), *_notes(answer)]
    return Group(made, Text(""), *lines, _verdict(answer))


def _cells(own: Figures, before: Figures | None) -> Iterator[Text]:
    """``before``: what is worse than there is red, what is better green."""
    shown = (
        f"{own.attempts:,}", f"{own.done:,}", f"{own.dead:,}", _ms(own.p50_ms), _ms(own.p99_ms),
        f"{own.busy_ms / _HOUR_MS:,.2f}",
    )  # fmt: skip
    worse = (0, -1, 1, 1, 1, 0)  # 0: neither more nor less is better
    for text, sign, now, then in zip(shown, worse, _values(own), _values(before or own), strict=True):
        differs = sign * (now - then) if abs(now - then) > abs(then) * 0.01 else 0
        yield Text(text, "red" if differs > 0 else "green" if differs < 0 else "")


def _values(figures: Figures) -> tuple[float, ...]:
    late = figures.p50_ms or 0.0, figures.p99_ms or 0.0
    return figures.attempts, figures.done, figures.dead, *late, figures.busy_ms


def _ms(value: float | None) -> str:
    return "–" if value is None else show_ms(value)


def _workers(pool: PoolAnswer) -> Text:
    before = f"{counted(pool.workers, 'worker')} × {pool.concurrency:,}"
    after = f"{counted(pool.changed_workers, 'worker')} × {pool.changed_concurrency:,}"
    hours = f"{pool.worker_ms / _HOUR_MS:,.2f} → {pool.changed_worker_ms / _HOUR_MS:,.2f} worker hours"
    return Text(f"{_topics(pool.queues)}: at most {before} at once → {after}; {hours}")


def _topics(queues: list[QueueAnswer]) -> str:
    topics = list(dict.fromkeys(queue.topic for queue in queues))
    more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
    return f"{', '.join(topics[:_NAMED])}{more}"


def _notes(answer: Answer) -> Iterator[Text]:
    counts = map(attrgetter, ("drawn", "unknown", "changed.open"))
    drawn, unknown, waiting = (sum(map(count, answer.queues)) for count in counts)
    if drawn:
        yield Text(f"{counted(drawn, 'attempt')} that nobody saw: drawn by the measured chance of their step")
    if unknown:
        yield Text(
            f"{counted(unknown, 'attempt')} cut off at the TTR before: taken to be cut off at the new one as well"
        )
    if waiting:
        yield Text(
            f"{counted(waiting, 'job')} of the changed replay {'has' if waiting == 1 else 'have'} not ended at its end"
        )
    for queue in answer.queues:
        if queue.is_near_full:
            low, high = _ms(queue.changed_low_ms), _ms(queue.changed_high_ms)
            yield Text(f"{queue.topic}: a p99 of {low} to {high}, as handlers may run 5 % shorter or longer", "yellow")


def _verdict(answer: Answer) -> Text:
    judged = [queue for queue in answer.queues if queue.judged]
    if not judged:
        return Text("Too few attempts to say whether the replay can be trusted: a topic's group needs 100", "yellow")
    median, p99 = (max(queue.errors[n] for queue in judged) for n in (0, 1))
    off = f"Replayed as it was, the median is off by at most {median:.1%}, the p99 by {p99:.1%}"
    if answer.good:
        few = [queue for queue in judged if queue.p99_by_chance]
        chance = f" (that of {_topics(few)} by no more than chance, with so few attempts)" if few else ""
        return Text(f"{off}{chance}: good enough (5 %, 15 %)", "green")
    bad = (queue for queue in judged if not queue.good)
    worst = max(bad, key=lambda queue: max(queue.errors[0] * 3, queue.errors[1]))
    return Text(f"{off}, most in {worst.topic}: DON'T TRUST IT (good enough: 5 %, 15 %)", "bold red")
