"""The demo while it runs: a live view on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..operations.topics.stats import Stats
from ..terminal import console, count_cell, narrow, table

_PLAIN_EVERY_S = 5.0
_COLUMNS = ("delayed", "ready", "running", "dead", "done", "retried", "reclaimed", "cancelled")
_STYLES = {
    "delayed": "cyan", "ready": "yellow", "running": "bold blue", "dead": "bold red", "done": "green",
    "retried": "magenta", "reclaimed": "bold yellow", "cancelled": "",
}  # fmt: skip
_HEADINGS = {"reclaimed": "taken over"}
_NARROW_HEADINGS = {"reclaimed": "taken", "cancelled": "cancel"}
_FRAME_LINES = 15  # in the live view, without introduction and events


@dataclass(frozen=True, slots=True)
class WorkerShown:
    """A worker process in the view."""

    name: str
    group: str
    pid: int
    alive: bool
    done: int


class View(Protocol):
    """Shows what the demo does."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def event(self, text: str, style: str = "", *, rare: bool = False) -> None: ...
    def show(self, phase: str, share: float, stats: Stats, members: Sequence[WorkerShown]) -> None: ...


class LiveView:
    """A picture that is redrawn a few times a second; rare events stay on the terminal."""

    def __init__(self, screen: Console, intro: Sequence[str]) -> None:
        self._intro = intro
        self._started = time.monotonic()
        self._events: deque[Text] = deque(maxlen=100)
        self._rare: list[Text] = []
        self._live = Live(console=screen, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)
        for line in (*(Text(line, "dim") for line in self._intro), Text(""), *self._rare):
            self._live.console.print(line)

    def event(self, text: str, style: str = "", *, rare: bool = False) -> None:
        at = f"{time.monotonic() - self._started:5.1f} s  "
        line = Text.assemble((at, "dim"), (text, f"bold {style}" if rare else style), no_wrap=True, overflow="ellipsis")
        self._events.append(line)
        if rare:
            self._rare.append(line)

    def show(self, phase: str, share: float, stats: Stats, members: Sequence[WorkerShown]) -> None:
        height = self._live.console.height
        events = list(self._events)[-max(3, height - _FRAME_LINES - len(self._intro)) :]
        picture = Group(
            self._header(phase, share),
            *(Text(line, "dim") for line in self._intro),
            Text(""),
            _figures(stats),
            Text(""),
            _members(members),
            Text(""),
            Rule("events", style="dim", align="left"),
            *events,
        )
        self._live.update(picture, refresh=True)

    def _header(self, phase: str, share: float) -> RenderableType:
        line = Table.grid(padding=(0, 2), expand=True)
        line.add_column(no_wrap=True)
        line.add_column(ratio=1)
        line.add_column(justify="right", no_wrap=True)
        title = Text.assemble(("streamdq demo", "bold"), "  ", phase)
        line.add_row(title, ProgressBar(total=1, completed=share), f"{time.monotonic() - self._started:.0f} s")
        return line


def _figures(stats: Stats) -> RenderableType:
    shown = _NARROW_HEADINGS if narrow() else _HEADINGS
    headings = [shown.get(name, name) for name in _COLUMNS]
    made = table("topic", "group", *headings, numbers=headings)
    for name, topic in stats.topics.items():
        for group, figures in topic.groups.items():
            made.add_row(name, group, *(count_cell(getattr(figures, column), _STYLES[column]) for column in _COLUMNS))
    return made


def _members(members: Sequence[WorkerShown]) -> RenderableType:
    made = Table.grid(padding=(0, 2))
    for member in members:
        mark = Text("● active", "green") if member.alive else Text("✘ killed -9", "bold red")
        facts = f"group {member.group}", f"pid {member.pid}", f"{member.done} attempts"
        made.add_row(Text(member.name, "bold"), mark, *facts)
    return made


class PlainView:
    """Lines: the rare events, and a summary every few seconds."""

    def __init__(self, screen: Console, intro: Sequence[str]) -> None:
        self._screen = screen
        self._started = time.monotonic()
        self._summed_up = 0.0
        for line in intro:
            self._say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing."""

    def _say(self, text: str) -> None:
        self._screen.print(Text(text), soft_wrap=True)

    def event(self, text: str, style: str = "", *, rare: bool = False) -> None:  # noqa: ARG002 - as View has it
        if rare:
            self._say(f"{time.monotonic() - self._started:5.1f} s  {text}")

    def show(self, phase: str, share: float, stats: Stats, members: Sequence[WorkerShown]) -> None:
        elapsed = time.monotonic() - self._started
        if elapsed - self._summed_up < _PLAIN_EVERY_S:
            return
        self._summed_up = elapsed
        done = sum(group.done for topic in stats.topics.values() for group in topic.groups.values())
        alive = sum(member.alive for member in members)
        self._say(
            f"{elapsed:5.1f} s  {share:4.0%} {phase}: {stats.delayed} delayed, {stats.ready} ready, {stats.running} "
            f"running, {stats.dead} dead, {done} done, {alive} workers"
        )


def open_view(intro: Sequence[str], *, stderr: bool = False) -> View:
    """Opens the view. ``stderr``: show it there, as stdout is only for the report."""
    screen = console(stderr=stderr)
    stream = sys.stderr if stderr else sys.stdout
    return LiveView(screen, intro) if stream.isatty() else PlainView(screen, intro)
