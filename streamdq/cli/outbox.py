"""Commands on the outbox: create it, relay its jobs to Redis, and decide about rows that were refused."""

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
from ..errors import (
    InvalidInput,
    MissingExtra,
    OutboxMissing,
    OutboxUnavailable,
    OutboxVersion,
    ServerError,
    StreamdqError,
)
from ..job.job import check_id
from ..link.opening import check_namespace
from ..process.logs import log, what
from ..times.durations import show_ms
from .common import Json, OptionalTopic, answer, commands, open_queue, run_until_signal
from .metrics import LOOPBACK, LogFormat, LogLevel, MetricsHost, MetricsPort, begin_logs, served

if TYPE_CHECKING:
    from ..outbox.figures import Figures
    from ..outbox.refused import Refused, RefusedRows
    from ..outbox.relay import Relay, Totals

_REFUSED_SHOWN = 20
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

app = commands()
_NONE = "nothing changed: no such row was refused"
OUTBOX = commands(help="Enqueue jobs in a database's own transactions.")
app.add_typer(OUTBOX, name="outbox", rich_help_panel="Storage")

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
        raise MissingExtra("SQLAlchemy", "database") from None


@OUTBOX.command()
def create(
    source: From,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the statements instead, for a migration of your own.")
    ] = False,
    horizon: Annotated[
        str | None,
        typer.Option(help="From now on, relays leave rows in the database until this long before they are due."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create the outbox's tables, and set its horizon.

    \b
    streamdq outbox create --from postgresql://user:password@host/shop --horizon 1d

    Creates what is missing. With --horizon, it adds an index and sets how long before they are due jobs are put into
    Redis; the outbox may be in use. Redis is not needed.
    """  # noqa: D301 - typer reads the mark
    with _needs_sqlalchemy():
        from ..outbox import rows
    if sql:
        terminal.say("\n".join(f"{statement};" for statement in rows.creation_at(source, horizon)))
        return
    address = rows.create(source, horizon)
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
    log_format: LogFormat = "auto",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    as_json: Json = False,
) -> None:
    """Put the jobs of committed rows into Redis.

    \b
    streamdq outbox create --from postgresql://user:password@host/shop
    streamdq outbox relay --from postgresql://user:password@host/shop --keep

    Runs until SIGTERM or Ctrl-C. Several may run: one is active, and another takes over within 6 s when it dies. No row
    is skipped or relayed twice, even if a relay is killed at any point. Use $STREAMDQ_OUTBOX instead of --from to keep
    the password out of the process list. Logs go to stderr: as text on a terminal, else as JSON lines.
    """  # noqa: D301 - typer reads the mark
    begin_logs(log_level, log_format)
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

    Counts the rows of the namespace by their state, says which relay is active, and lists the first 20 refused rows
    (`streamdq outbox refused` lists more). Rows that are due beyond the horizon are counted as later. Redis is not
    needed.
    """
    with _rows_at(context, source) as rows:
        figures, later, refused = rows.figures(), rows.later(), rows.refused(_REFUSED_SHOWN)
        if as_json:
            states = {state.value: asdict(found) for state, found in figures.states.items()}
            listed = [asdict(row) for row in refused]
            terminal.print_json({
                "outbox": rows.address, "relay": figures.relay, "horizon_ms": rows.horizon_ms, "states": states,
                "later": later, "refused": listed,
            })  # fmt: skip
        else:
            terminal.console().print(_stats_view(figures, later, rows.horizon_ms, refused))


def _namespace_of(context: typer.Context) -> str:
    return check_namespace(Settings().namespace if context.obj.namespace is None else context.obj.namespace)


def _stats_view(figures: Figures, later: int, horizon_ms: int | None, refused: Sequence[Refused]) -> RenderableType:
    counts = terminal.table("state", "rows", "oldest", numbers=("rows", "oldest"))
    if horizon_ms is not None:
        counts.add_row("later", f"{later:,}", "")
    for state, found in figures.states.items():
        if state == "relaying" and horizon_ms is None:  # no relay turns a row into that
            continue
        counts.add_row(state.value, f"{found.rows:,}", "" if found.oldest_ms is None else _age(found.oldest_ms))
    until = "" if horizon_ms is None else f"; rows wait until {show_ms(horizon_ms)} before they are due"
    relay = f"relay {figures.relay} is active" if figures.relay else "no relay is active"
    relay += until
    if not refused:
        return Group(counts, Text(relay))
    return Group(counts, Text(relay), Text(), _refused_view(refused))


def _refused_view(refused: Sequence[Refused]) -> RenderableType:
    made = terminal.table("row", "topic", "id", "refused because", numbers=("row",))
    for row in refused:
        made.add_row(*map(Text, (str(row.number), row.topic, row.id, row.error)))
    return made


def _age(ms: int) -> str:
    return show_ms(max(0, ms if ms < 1000 else ms // 1000 * 1000))


Numbers = Annotated[list[int] | None, typer.Argument(help="Numbers of refused rows", show_default=False)]
AllRefused = Annotated[bool, typer.Option("--all", help="All refused rows of the namespace.")]


@contextlib.contextmanager
def _rows_at(context: typer.Context, source: str) -> Iterator[RefusedRows]:
    with _needs_sqlalchemy():
        from ..outbox.refused import RefusedRows
    with contextlib.closing(RefusedRows(source, _namespace_of(context))) as rows:
        yield rows


@OUTBOX.command("refused")
def list_refused(
    context: typer.Context,
    source: From,
    topic: OptionalTopic = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
    as_json: Json = False,
) -> None:
    """List the rows that were refused, with the reason.

    Their ids were taken, or they are not valid. `streamdq outbox retry` relays them again, `streamdq outbox drop`
    deletes them. Redis is not needed.
    """
    with _rows_at(context, source) as rows:
        refused = rows.refused(limit, topic)
    if as_json:
        terminal.print_json([asdict(row) for row in refused])
    elif refused:
        terminal.console().print(_refused_view(refused))
    else:
        terminal.say("no row was refused")


@OUTBOX.command()
def retry(
    context: typer.Context,
    source: From,
    numbers: Numbers = None,
    every: AllRefused = False,
    id: Annotated[str | None, typer.Option(help="Relay this row's job under another id.")] = None,
    as_json: Json = False,
) -> None:
    """Relay refused rows again, or all with --all.

    A delay still counts from when the row was written. Redis is not needed. Exit code 1: no such row was refused.
    """
    _some_or_all(numbers, every)
    if id is not None and (every or len(set(numbers or ())) != 1):
        raise InvalidInput("outbox: --id needs the number of one row")
    with _rows_at(context, source) as rows:
        count = rows.retry(None if every else numbers, None if id is None else check_id(id))
    answer(as_json, {"retried": count}, f"{count:,} to be relayed again" if count else _NONE, yes=count > 0)


@OUTBOX.command()
def drop(
    context: typer.Context, source: From, numbers: Numbers = None, every: AllRefused = False, as_json: Json = False
) -> None:
    """Delete refused rows permanently, or all with --all.

    Their jobs will not run. Redis is not needed. Exit code 1: no such row was refused.
    """
    _some_or_all(numbers, every)
    with _rows_at(context, source) as rows:
        count = rows.drop(None if every else numbers)
    answer(as_json, {"dropped": count}, f"{count:,} dropped" if count else _NONE, yes=count > 0)


def _some_or_all(numbers: Sequence[int] | None, every: bool) -> None:
    if bool(numbers) == every:
        raise InvalidInput("outbox: pass either the numbers of refused rows or --all")


@OUTBOX.command()
def reconcile(
    context: typer.Context,
    source: From,
    log_level: LogLevel = "warning",
    log_format: LogFormat = "auto",
    as_json: Json = False,
) -> None:
    """Put back what Redis has lost.

    Looks once through the rows that `relay --keep` has kept. If Redis has lost a row's job, in a failover, a flush or
    by an old copy of its data, the row is relayed again. If the job has ended, the row is deleted. `relay --keep` does
    the same all the time; it pauses meanwhile.
    """
    begin_logs(log_level, log_format)
    with _opened(context, source, keep=True) as opened:
        opened.reconcile()
        answer(as_json, asdict(opened.totals), _text(opened.totals))


def _tell_retry(error: StreamdqError, wait_s: float) -> None:
    log.warning("outbox not relayed", error=what(error), next_try_s=wait_s)


def _text(totals: Totals) -> str:
    text = f"{totals.relayed} relayed"
    for count, became in (
        (totals.refused, "refused (streamdq outbox refused)"),
        (totals.ended, "ended"),
        (totals.put_back, "put back, as Redis had lost them"),
    ):
        text += f", {count} {became}" if count else ""
    return text
