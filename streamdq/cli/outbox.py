"""Commands on the outbox: create it, and relay its jobs to Redis."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from .. import terminal
from ..config import Settings
from ..durations import show_ms
from ..errors import MissingExtra, OutboxMissing, OutboxUnavailable, OutboxVersion, ServerError, StreamdqError
from ..exporter.exporter import served
from ..link.session import check_namespace
from ..logs import log, what
from .common import Json, answer, commands, open_queue, run_until_signal
from .metrics import LOOPBACK, LogLevel, MetricsHost, MetricsPort, begin_logs

if TYPE_CHECKING:
    from ..outbox.relay import Relay, Totals
    from ..outbox.rows import Figures, Refused

_REFUSED_SHOWN = 20
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

app = commands()
OUTBOX = commands(help="Enqueue jobs in a database's own transactions.")
app.add_typer(OUTBOX, name="outbox")

From = Annotated[
    str,
    typer.Option(
        "--from",
        envvar="STREAMDQ_OUTBOX",
        help="sqlite:///FILE, or postgresql:// or mysql://user:password@host/database",
    ),
]


@contextlib.contextmanager
def _opened(context: typer.Context, source: str, keep: bool, look_every: str | None = None) -> Iterator[Relay]:
    with _needs_sqlalchemy():
        from ..outbox.relay import Relay
    with open_queue(context) as queue, Relay(source, queue, keep=keep, look_every=look_every) as relay:
        yield relay


@contextlib.contextmanager
def _needs_sqlalchemy() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise MissingExtra("SQLAlchemy", "outbox") from None


@OUTBOX.command()
def create(
    source: From,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the statements instead, for a migration of your own.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create the outbox's tables.

    Creates what is missing, and changes nothing that is there. Redis is not needed.
    """
    with _needs_sqlalchemy():
        from ..outbox import rows
    if sql:
        terminal.say("\n".join(f"{statement};" for statement in rows.creation_at(source)))
        return
    address = rows.create(source)
    answer(as_json, {"outbox": address}, f"there is an outbox at {address}")


@OUTBOX.command()
def relay(
    context: typer.Context,
    source: From,
    keep: Annotated[
        bool, typer.Option("--keep", help="Rows stay until their jobs have ended; jobs that Redis loses are put back.")
    ] = False,
    burst: Annotated[bool, typer.Option("--burst", help="Exit when no row waits.")] = False,
    look_every: Annotated[
        str | None,
        typer.Option(
            help="How often to look for commits, where the database does not tell; else 50ms in MySQL, 10ms in SQLite."
        ),
    ] = None,
    log_level: LogLevel = "info",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    as_json: Json = False,
) -> None:
    """Put the jobs of committed rows into Redis.

    \b
    streamdq outbox create --from postgresql://user:password@host/shop
    streamdq outbox relay --from postgresql://user:password@host/shop --keep

    Runs until SIGTERM or Ctrl-C. Several may run: one is at work, and another takes over within 6 s when it dies. No
    row is skipped or relayed twice, even if a relay is killed at any point. $STREAMDQ_OUTBOX instead of --from keeps
    the password out of the process list. Logs go to stderr: as text on a terminal, else as JSON lines.
    """  # noqa: D301 - typer reads the mark
    begin_logs(log_level)
    with contextlib.ExitStack() as stack:
        if metrics_port is not None:
            with _needs_sqlalchemy():
                from ..outbox.collector import OutboxCollector
            counted = stack.enter_context(contextlib.closing(OutboxCollector(source, _namespace_of(context))))
            stack.enter_context(served(metrics_host, metrics_port, counted))
        opened: list[Relay] = []

        def run(stopping: Callable[[], bool] = lambda: False) -> None:
            if not opened:  # the database may be away at first, too
                opened.append(stack.enter_context(_opened(context, source, keep, look_every)))
            opened[0].run(stopping, burst=burst)

        if burst:
            run()
        else:
            run_until_signal(
                run, _PAUSE_S, (OutboxUnavailable, ServerError), final=(OutboxMissing, OutboxVersion),
                longest_pause_s=_LONGEST_PAUSE_S, tell=_tell_retry,
            )  # fmt: skip
        with _needs_sqlalchemy():
            from ..outbox.relay import Totals
        totals = opened[0].totals if opened else Totals()
        answer(as_json, asdict(totals), _text(totals))


@OUTBOX.command()
def stats(context: typer.Context, source: From, as_json: Json = False) -> None:
    """Show how many rows wait, and which were refused.

    Counts the rows of the namespace by their state, says which relay is at work, and lists the first 20 rows that were
    refused. Redis is not needed.
    """
    with _needs_sqlalchemy():
        from ..outbox.rows import Rows
    with contextlib.closing(Rows(source, _namespace_of(context))) as rows:
        figures, refused = rows.figures(), rows.refused(_REFUSED_SHOWN)
        if as_json:
            states = {state.value: asdict(found) for state, found in figures.states.items()}
            listed = [asdict(row) for row in refused]
            terminal.print_json({"outbox": rows.address, "relay": figures.relay, "states": states, "refused": listed})
        else:
            terminal.console().print(_stats_view(figures, refused))


def _namespace_of(context: typer.Context) -> str:
    return check_namespace(Settings().namespace if context.obj.namespace is None else context.obj.namespace)


def _stats_view(figures: Figures, refused: Sequence[Refused]) -> RenderableType:
    counts = terminal.table("state", "rows", "oldest", numbers=("rows", "oldest"))
    for state, found in figures.states.items():
        counts.add_row(state.value, f"{found.rows:,}", "" if found.oldest_ms is None else _age(found.oldest_ms))
    relay = f"relay {figures.relay} is at work" if figures.relay else "no relay is at work"
    if not refused:
        return Group(counts, Text(relay))
    made = terminal.table("row", "topic", "id", "refused because", numbers=("row",))
    for row in refused:
        made.add_row(*map(Text, (str(row.number), row.topic, row.id, row.error)))
    return Group(counts, Text(relay), Text(), made)


def _age(ms: int) -> str:
    return show_ms(max(0, ms if ms < 1000 else ms // 1000 * 1000))


@OUTBOX.command()
def reconcile(context: typer.Context, source: From, log_level: LogLevel = "warning", as_json: Json = False) -> None:
    """Put back what Redis has lost.

    Looks once through the rows that `relay --keep` has kept: those whose jobs Redis has lost, in a failover, a flush or
    with an old copy of its data, are relayed again; those whose jobs have ended are deleted. `relay --keep` does the
    same all the time; it pauses meanwhile.
    """
    begin_logs(log_level)
    with _opened(context, source, keep=True) as opened:
        opened.reconcile()
        answer(as_json, asdict(opened.totals), _text(opened.totals))


def _tell_retry(error: StreamdqError, wait_s: float) -> None:
    log.warning("can't relay", error=what(error), next_try_s=wait_s)


def _text(totals: Totals) -> str:
    text = f"{totals.relayed} relayed"
    for count, became in (
        (totals.refused, "refused, as their ids are taken"),
        (totals.ended, "ended"),
        (totals.put_back, "put back, as Redis had lost them"),
    ):
        text += f", {count} {became}" if count else ""
    return text
