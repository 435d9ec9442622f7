"""Commands on the history: history, dump, compact, forget-dump, simulate-history."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from .. import terminal
from ..demo.simulated import START_MS, simulate
from ..dump.compaction import compact
from ..dump.dumper import Dumped, Dumper
from ..dump.open_folder import open_folder
from ..errors import FolderBusy, FolderError, InvalidInput, ServerError, ServerUnavailable
from ..operations.json_out import event_json
from ..store.history.rows import Event
from ..terminal import counted
from ..times.durations import to_ms
from .common import EXIT_NO, Id, Json, Topic, WithId, answer, commands, open_queue, run_until_signal

app = commands()

START = f"{datetime.fromtimestamp(START_MS / 1000, UTC):%Y-%m-%d}"

_LOOK_S, _PAUSE_S, _LONGEST_PAUSE_S = 1, 0.05, 5.0  # of tail

Out = Annotated[str, typer.Option(help="The dump's folder, or a URL that fsspec supports.", show_default=False)]


@app.command(name="simulate-history", rich_help_panel="History")
def simulate_history(
    out: Out,
    events: Annotated[int, typer.Option(min=1, help="How many rows.")] = 1_000_000,
    days: Annotated[int, typer.Option(min=1, max=3660, help="Over how many days.")] = 28,
    seed: Annotated[int, typer.Option(min=0, help="The same seed writes the same rows.")] = 1,
    start: Annotated[str, typer.Option(help="The first day, UTC.")] = START,
    as_json: Json = False,
) -> None:
    """Write test data: a simulated shop's history.

    Writes a dump of six topics with a daily and a weekly rhythm, bursts, failures, retries, dead letters, cancels and
    crashes. The folder must not hold a dump yet.
    """
    begun = time.perf_counter()
    try:
        first = datetime.strptime(start, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidInput(f"start: {start!r} is not a day; write it as 2026-01-31") from None
    folder = open_folder(out)
    with terminal.progress_bar("simulated", shown=not as_json) as bar:
        bar.advance(0, events)
        made = simulate(folder, events, days, seed, int(first.timestamp() * 1000), bar.advance)
    took_s = time.perf_counter() - begun
    result = {"rows": made.rows, "files": made.files, "out": folder.url, "seconds": round(took_s, 3)}
    text = f"{made.rows:,} rows in {made.files:,} files of {folder.url}, {made.rows / took_s:,.0f} a second"
    answer(as_json, result, text)


@app.command(cls=WithId, rich_help_panel="History")
def history(
    context: typer.Context,
    topic: Topic,
    id: Id,
    tracebacks: Annotated[
        bool, typer.Option("--tracebacks", help="Also show the traceback of each failed attempt.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what became of a job.

    Each attempt and change in the topic's history, in order. Redis keeps the last 100,000 rows of each shard for a week
    (STREAMDQ_HISTORY_LENGTH, STREAMDQ_HISTORY_AGE_S). It keeps message and traceback of the last 5,000 failed attempts
    (STREAMDQ_FAILURES_LENGTH). Exit code 1: there is nothing of this job.
    """
    with open_queue(context) as queue:
        events = queue.job_history(topic, id)
    if as_json:
        terminal.print_json([{**asdict(one.row), "message": one.message, "traceback": one.traceback} for one in events])
    elif events:
        terminal.console().print(terminal.history_view(events, tracebacks=tracebacks))
    else:
        terminal.say(f"no history of {id!r} in {topic!r}: nothing has become of it yet, or it was too long ago")
    if not events:
        raise typer.Exit(EXIT_NO)


@app.command(rich_help_panel="History")
def tail(
    context: typer.Context,
    topic: Topic,
    since: Annotated[
        str | None,
        typer.Option(help='From then on: "-1h", a moment, or the position of an event (--json).', show_default="now"),
    ] = None,
    event: Annotated[list[Event] | None, typer.Option(help="Only these events; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Follow a topic: each attempt that ends, as it ends.

    It shows the rows of the history as they are written, until Ctrl-C or SIGTERM. While Redis can't be reached, it
    waits, and then goes on where it was. --json prints a line for each event.
    """
    with open_queue(context) as queue:
        found = queue.events(topic, since=since, timeout=_LOOK_S)

        def follow(stopping: Callable[[], bool]) -> None:
            for one in found:
                is_wanted = not event or one.row.event in event
                if is_wanted and as_json:
                    terminal.print_json({**event_json(one), "id": one.row.id, "position": found.position})
                elif is_wanted:
                    terminal.console().print(terminal.event_line(one))
                if stopping():
                    return

        run_until_signal(follow, _PAUSE_S, (ServerUnavailable,), longest_pause_s=_LONGEST_PAUSE_S)


@app.command(rich_help_panel="History")
def dump(
    context: typer.Context,
    out: Out,
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic; may be repeated.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep dumping until Ctrl-C or SIGTERM.")] = False,
    every: Annotated[str, typer.Option(help="How often --follow writes.")] = "60s",
    once: Annotated[
        bool, typer.Option("--once", help="Unregister the dump afterwards: Redis keeps no rows for it.")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Only unregister the dump: Redis keeps no more rows for it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write new history to Parquet files.

    \b
    streamdq dump --out /var/lib/streamdq/history
    streamdq dump --out s3://bucket/history --follow --every 5m

    No row is lost or duplicated, even if the command is killed and run again. From the first run on, Redis keeps every
    row until this dump has it, however many that are: run it regularly, or --forget it. Exit code 1: rows were lost
    before they could be dumped.
    """  # noqa: D301 - typer reads the mark
    pause_s = max(0.1, to_ms(every, "every") / 1000)
    dumper = Dumper(open_folder(out), context.obj.url, context.obj.namespace, topics=topic or ())
    with dumper.opened():
        if forget:
            dumper.forget()
            answer(as_json, {"forgotten": out}, f"Redis no longer keeps history for {out}")
        elif follow:
            _follow(dumper, pause_s, out, as_json)
        else:
            done = _run(dumper, lambda: False, as_json)
            if once:
                dumper.forget()
            answer(as_json, _dumped_json(done), _dumped_text(done, out), yes=done.whole)


def _run(dumper: Dumper, stopping: Callable[[], bool], as_json: bool) -> Dumped:
    with terminal.progress_bar("dumped", shown=not as_json) as bar:
        return dumper.dump(stopping, bar.advance)


def _dumped_json(done: Dumped) -> dict[str, float]:
    return {**asdict(done), "seconds": round(done.seconds, 3)}


def _dumped_text(done: Dumped, out: str) -> str:
    rate = f", {done.rows / done.seconds:,.0f} a second" if done.rows and done.seconds else ""
    lines = [f"{counted(done.rows, 'row')} in {counted(done.files, 'file')} of {out}{rate}"]
    if done.skipped:
        lines.append(f"{done.skipped:,} older rows had been trimmed before the dump began")
    if done.lost:
        lines.append(f"LOST: {done.lost:,} rows were trimmed before they were dumped, or deleted with their topic")
    if done.resets:
        lines.append(f"LOST: Redis has lost {done.resets:,} history streams; how many rows they held is not known")
    if done.unreadable:
        lines.append(f"{done.unreadable:,} entries are not history rows of this version and were left out")
    return "\n".join(lines)


def _follow(dumper: Dumper, pause_s: float, out: str, as_json: bool) -> None:
    """Dumps until a signal comes; then a run under way still writes the rows that it has read. If Redis or the folder
    can't be reached, waits for it.
    """
    whole = True

    def dump(stopping: Callable[[], bool]) -> None:
        nonlocal whole
        done = _run(dumper, stopping, as_json)
        whole = whole and done.whole
        if done.rows or not done.whole:
            answer(as_json, _dumped_json(done), _dumped_text(done, out))

    run_until_signal(dump, pause_s, (ServerError, FolderError), final=(FolderBusy,))
    if not whole:
        raise typer.Exit(EXIT_NO)


@app.command(name="forget-dump", rich_help_panel="History")
def forget_dump(
    context: typer.Context,
    dump: Annotated[str, typer.Argument(help="The dump's id, as `streamdq doctor` shows it", show_default=False)],
    as_json: Json = False,
) -> None:
    """Unregister a dump whose folder is gone.

    Redis then keeps no more rows for it. If the folder still exists, use streamdq dump --out DIR --forget.
    """
    with open_queue(context) as queue:
        found = queue.forget_dump(dump)
    text = f"Redis no longer keeps history for dump {dump}" if found else f"no dump {dump} is registered"
    answer(as_json, {"dump": dump, "forgotten": found}, text, yes=found)


@app.command(name="compact", rich_help_panel="History")
def compact_(
    out: Out,
    grace: Annotated[str, typer.Option(help="How long replaced files stay for readers that still use them.")] = "1h",
    as_json: Json = False,
) -> None:
    """Merge a dump's small files into one per hour.

    May run beside dump --follow. The current hour is left as it is.
    """
    folder = open_folder(out)
    with terminal.progress_bar("merged", shown=not as_json) as bar:
        done = compact(folder, to_ms(grace, "grace") / 1000, bar.advance)
    text = (
        f"{counted(done.joined, 'file')} of {counted(done.hours, 'hour')} merged, {counted(done.rows, 'row')}; "
        f"{counted(done.removed, 'old file')} removed"
    )
    answer(as_json, asdict(done), text)
