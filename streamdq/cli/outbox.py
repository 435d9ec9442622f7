"""Commands on the outbox: create it, and relay its jobs to Redis."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from .. import terminal
from ..errors import MissingExtra, OutboxMissing, OutboxUnavailable, OutboxVersion, ServerError
from ..exporter.exporter import served
from .common import Json, answer, commands, open_queue, run_until_signal
from .metrics import LOOPBACK, LogLevel, MetricsHost, MetricsPort, begin_logs

if TYPE_CHECKING:
    from ..outbox.relay import Relay, Totals

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

app = commands()
OUTBOX = commands(help="Enqueue jobs in a database's own transactions.")
app.add_typer(OUTBOX, name="outbox")

From = Annotated[
    str,
    typer.Option("--from", envvar="STREAMDQ_OUTBOX", help="sqlite:///FILE or postgresql://user:password@host/database"),
]


@contextlib.contextmanager
def _opened(context: typer.Context, source: str, keep: bool) -> Iterator[Relay]:
    with _needs_sqlalchemy():
        from ..outbox.relay import Relay
    with open_queue(context) as queue, Relay(source, queue, keep=keep) as relay:
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
            stack.enter_context(served(metrics_host, metrics_port))
        opened = stack.enter_context(_opened(context, source, keep))
        if burst:
            opened.run(burst=True)
        else:
            run_until_signal(
                opened.run, _PAUSE_S, (OutboxUnavailable, ServerError), final=(OutboxMissing, OutboxVersion),
                longest_pause_s=_LONGEST_PAUSE_S,
            )  # fmt: skip
        answer(as_json, asdict(opened.totals), _text(opened.totals))


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


def _text(totals: Totals) -> str:
    text = f"{totals.relayed} relayed"
    for count, what in (
        (totals.refused, "refused, as their ids are taken"),
        (totals.ended, "ended"),
        (totals.put_back, "put back, as Redis had lost them"),
    ):
        text += f", {count} {what}" if count else ""
    return text
