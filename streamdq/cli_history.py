"""Commands on the history: what becomes of it outside Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from . import cli_views as views
from .cli_common import Json, answer, commands
from .errors import InvalidInput
from .folder import open_folder
from .simulate import START_MS, simulate

app = commands()

START = f"{datetime.fromtimestamp(START_MS / 1000, UTC):%Y-%m-%d}"

Out = Annotated[str, typer.Option(help="The dump's folder, or a URL that fsspec knows.", show_default=False)]


class RateColumn(ProgressColumn):
    """Rows in a second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="progress.data.speed")


@contextmanager
def progress(what: str, total: int | None, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr with the rate and the time left; hidden where nobody looks. Yields what advances it."""
    console = views.console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@app.command(name="simulate-history")
def simulate_history(
    out: Out,
    events: Annotated[int, typer.Option(min=1, help="How many rows.")] = 1_000_000,
    days: Annotated[int, typer.Option(min=1, max=3660, help="Over how many days.")] = 28,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other rows; the same, the same.")] = 1,
    start: Annotated[str, typer.Option(help="The first day, UTC.")] = START,
    as_json: Json = False,
) -> None:
    """Write test data: the history that a shop's queue might have.

    Six topics with a daily and a weekly rhythm, bursts, failures, retries, dead letters, cancels and crashes, in the
    layout of a dump. The folder must not hold a dump yet.
    """
    begun = time.perf_counter()
    try:
        first = datetime.strptime(start, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidInput(f"start: {start!r} is not a day; write for example 2026-01-31") from None
    folder = open_folder(out)
    with progress("simulated", events, not as_json) as tell:
        made = simulate(folder, events, days, seed, int(first.timestamp() * 1000), tell)
    took_s = time.perf_counter() - begun
    result = {"rows": made.rows, "files": made.files, "out": folder.url, "seconds": round(took_s, 3)}
    text = f"{made.rows:,} rows in {made.files:,} files of {folder.url}, {made.rows / took_s:,.0f} a second"
    answer(as_json, result, text)
