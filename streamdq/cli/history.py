"""Commands on the history: dump, compact, forget-dump, simulate-history."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from .. import terminal
from ..demo.simulated import START_MS, simulate
from ..dump.compaction import compact
from ..dump.dumper import Dumped, Dumper
from ..dump.open_folder import open_folder
from ..durations import to_ms
from ..errors import FolderBusy, FolderError, InvalidInput, ServerError
from .common import EXIT_NO, Json, answer, commands, open_queue

app = commands()

START = f"{datetime.fromtimestamp(START_MS / 1000, UTC):%Y-%m-%d}"

Out = Annotated[str, typer.Option(help="The dump's folder, or a URL that fsspec supports.", show_default=False)]


class RateColumn(ProgressColumn):
    """Rows per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="progress.data.speed")


@contextmanager
def progress(what: str, shown: bool) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on stderr with the rate and the time left, shown only on a terminal. Yields a function that advances it by
    a number of rows; called with a total, it starts again.
    """
    console = terminal.console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, disable=not (shown and console.is_terminal), redirect_stdout=False
    ) as bar:
        task = bar.add_task(what, total=None)

        def tell(count: int, total: int | None = None) -> None:
            if total is not None:
                bar.reset(task, total=total)
            bar.advance(task, count)

        yield tell


@app.command(name="simulate-history")
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
    with progress("simulated", not as_json) as tell:
        tell(0, events)
        made = simulate(folder, events, days, seed, int(first.timestamp() * 1000), tell)
    took_s = time.perf_counter() - begun
    result = {"rows": made.rows, "files": made.files, "out": folder.url, "seconds": round(took_s, 3)}
    text = f"{made.rows:,} rows in {made.files:,} files of {folder.url}, {made.rows / took_s:,.0f} a second"
    answer(as_json, result, text)


@app.command()
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
    with progress("dumped", not as_json) as tell:
        return dumper.dump(stopping, tell)


def _dumped_json(done: Dumped) -> dict[str, float]:
    return {**asdict(done), "seconds": round(done.seconds, 3)}


def _dumped_text(done: Dumped, out: str) -> str:
    rate = f", {done.rows / done.seconds:,.0f} a second" if done.rows and done.seconds else ""
    lines = [f"{done.rows:,} rows in {done.files:,} files of {out}{rate}"]
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
    """Dumps until a signal comes, after which a run under way still writes what it has. Waits for a Redis or folder
    that can't be reached.
    """
    stop, whole = threading.Event(), True
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        try:
            done = _run(dumper, stop.is_set, as_json)
        except FolderBusy:
            raise
        except (ServerError, FolderError) as error:
            terminal.complain(f"{error}; next try in {pause_s:g} s")
        else:
            whole = whole and done.whole
            if done.rows or not done.whole:
                answer(as_json, _dumped_json(done), _dumped_text(done, out))
        stop.wait(pause_s)
    if not whole:
        raise typer.Exit(EXIT_NO)


@app.command(name="forget-dump")
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


@app.command(name="compact")
def compact_(
    out: Out,
    grace: Annotated[str, typer.Option(help="How long replaced files stay for readers that still use them.")] = "1h",
    as_json: Json = False,
) -> None:
    """Merge a dump's small files into one per hour.

    May run beside dump --follow. The current hour is left as it is.
    """
    folder = open_folder(out)
    with progress("merged", not as_json) as tell:
        done = compact(folder, to_ms(grace, "grace") / 1000, tell)
    text = (
        f"{done.joined:,} files of {done.hours:,} hours merged, {done.rows:,} rows; {done.removed:,} old files removed"
    )
    answer(as_json, asdict(done), text)
