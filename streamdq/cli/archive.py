"""Commands on the archive: move dead letters to a database, and send them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .. import terminal
from ..archive.archive import Archive, Kicked, Stored
from ..archive.dead_letters import ArchivedJob, RowState, Wanted
from ..errors import ArchiveUnavailable, BodyUnreadable, InvalidInput, ServerError
from ..times.durations import show_ms, to_ms
from .common import EXIT_NO, Json, WithId, answer, commands, open_queue, run_until_signal
from .input import parse_json

_LONGEST_PAUSE_S = 60.0

app = commands()
ARCHIVE = commands(
    help="Keep dead letters in a database, and send them back.", invoke_without_command=True, no_args_is_help=False
)
app.add_typer(ARCHIVE, name="archive", rich_help_panel="Storage")

To = Annotated[
    str | None,
    typer.Option("--to", envvar="STREAMDQ_ARCHIVE", help="sqlite:///FILE or postgresql://user:password@host/database"),
]
From = Annotated[
    str, typer.Option("--from", envvar="STREAMDQ_ARCHIVE", help="The archive: sqlite:///FILE or postgresql://…")
]
TopicOption = Annotated[str | None, typer.Option("--topic", help="One topic instead of all.")]
Group_ = Annotated[str | None, typer.Option("--group", help="One consumer group instead of all.")]
Reason = Annotated[
    list[str] | None, typer.Option("--reason", help="exhausted, buried, invalid or crashed; may be repeated.")
]
TopicArgument = Annotated[str | None, typer.Argument(help="The topic", show_default=False)]
IdArgument = Annotated[str | None, typer.Argument(help="The job's id", show_default=False)]


@ARCHIVE.callback()
def archive(
    context: typer.Context,
    to: To = None,
    topic: TopicOption = None,
    group: Group_ = None,
    reason: Reason = None,
    older_than: Annotated[str, typer.Option(help="Only jobs buried at least this long ago, such as 1h.")] = "0",
    follow: Annotated[bool, typer.Option("--follow", help="Keep archiving until Ctrl-C or SIGTERM.")] = False,
    interval: Annotated[str, typer.Option(help="How often --follow looks for dead letters.")] = "10s",
    as_json: Json = False,
) -> None:
    """Keep dead letters in a database, and send them back.

    \b
    streamdq archive --to sqlite:///dead.db
    streamdq archive --to postgresql://user:password@host/jobs --older-than 1d --follow
    streamdq archive list --from sqlite:///dead.db
    streamdq archive kick --from sqlite:///dead.db order.close order-42

    Without a command, it moves dead letters from Redis to the database of --to (or $STREAMDQ_ARCHIVE, which keeps the
    password out of the process list). A dead letter leaves Redis only after the database has committed it. No dead
    letter is lost or duplicated, even if the command is killed and run again.
    """  # noqa: D301 - typer reads the mark
    if context.invoked_subcommand is not None:
        return
    if not to:
        raise InvalidInput("archive: pass --to sqlite:///FILE or --to postgresql://…")
    older_ms, pause_s = to_ms(older_than, "older-than"), max(0.1, to_ms(interval, "interval") / 1000)

    with open_queue(context) as queue, Archive(to, queue.namespace) as keep:

        def store(stopping: Callable[[], bool]) -> Stored:
            with terminal.progress_bar() as bar:
                return keep.store(
                    queue, topic, group, older_than=older_ms / 1000, reasons=reason or (), progress=bar.reach,
                    stopping=stopping,
                )  # fmt: skip

        def store_and_tell(stopping: Callable[[], bool]) -> None:
            stored = store(stopping)
            if stored.archived or stored.left or not follow:
                answer(as_json, asdict(stored), _stored_text(stored))

        if follow:
            run_until_signal(
                store_and_tell, pause_s, (ArchiveUnavailable, ServerError), longest_pause_s=_LONGEST_PAUSE_S
            )
        else:
            store_and_tell(lambda: False)


def _stored_text(stored: Stored) -> str:
    text = f"{stored.archived:,} archived"
    return text + (f", {stored.left:,} left Redis in another way meanwhile" if stored.left else "")


@ARCHIVE.command(cls=WithId)
def kick(
    context: typer.Context,
    source: From,
    topic: TopicArgument = None,
    id: IdArgument = None,
    every: Annotated[bool, typer.Option("--all", help="All archived jobs, or those of the topic given.")] = False,
    group: Group_ = None,
    reason: Reason = None,
    left: Annotated[
        bool, typer.Option("--left", help="Also jobs that left Redis in another way (`list --state left`).")
    ] = False,
    as_json: Json = False,
) -> None:
    """Send an archived job back, or all with --all.

    It is ready at once for the group that gave it up, and its retry schedule starts again. A job stays archived if
    its id is taken in Redis. Exit code 1: no job was archived, or some stayed archived.
    """
    if (id is None) != every:
        raise InvalidInput("archive: pass either a topic and a job's id, or --all")
    with (
        open_queue(context) as queue,
        Archive(source, queue.namespace, create=False) as keep,
        terminal.progress_bar() as bar,
    ):
        done = keep.kick(queue, topic, id, group, reasons=reason or (), left=left, progress=bar.reach)
    answer(as_json, asdict(done), _kicked_text(done), yes=done.kicked > 0 and not done.live_count and not done.unknown)


def _kicked_text(done: Kicked) -> str:
    lines = [f"{done.kicked:,} kicked"]
    if done.live_count:
        shown = ", ".join(f"{topic} / {id} ({group})" for topic, group, id in done.live[:5])
        lines.append(f"{done.live_count:,} left alone, as their ids are live: {shown}" + " …" * (done.live_count > 5))
    lines += [f"{count:,} stay: {why}" for why, count in done.unknown.items()]
    return "\n".join(lines)


@ARCHIVE.command("list")
def list_(
    context: typer.Context,
    source: From,
    topic: TopicOption = None,
    group: Group_ = None,
    reason: Reason = None,
    state: Annotated[list[RowState] | None, typer.Option(help="May be repeated [archived].")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 100,
    after: Annotated[int, typer.Option(min=0, help="Start after the row with this number.")] = 0,
    as_json: Json = False,
) -> None:
    """List archived jobs.

    Lists them in the order in which they were archived. Redis is not needed.
    """
    wanted = Wanted(topic, group, reasons=reason or (), states=state or (RowState.ARCHIVED,))
    with _opened(context, source) as keep:
        rows = keep.rows(wanted, limit, after)
    if as_json:
        terminal.print_json([_row_json(row, keep) for row in rows])
    else:
        terminal.console().print(_list_view(rows))


@ARCHIVE.command(cls=WithId)
def show(
    context: typer.Context,
    source: From,
    topic: Annotated[str, typer.Argument(help="The topic", show_default=False)],
    id: Annotated[str, typer.Argument(help="The job's id", show_default=False)],
    group: Group_ = None,
    as_json: Json = False,
) -> None:
    """Show an archived job.

    Prints one block for each time it was buried. Exit code 1: the job is not archived.
    """
    with _opened(context, source) as keep:
        rows = keep.rows(Wanted(topic, group, id))
    if as_json:
        terminal.print_json([_row_json(row, keep) for row in rows])
    else:
        terminal.console().print(
            Group(*(_row_view(row, keep) for row in rows)) if rows else Text(f"no job {id!r} of {topic} is archived")
        )
    if not rows:
        raise typer.Exit(EXIT_NO)


def _opened(context: typer.Context, source: str) -> Archive:
    return Archive(source, context.obj.namespace, create=False)


def _row_json(row: ArchivedJob, keep: Archive) -> dict[str, Any]:
    job = asdict(row.dead_letter)
    del job["nonce"], job["sequence"]
    try:
        job["body"] = parse_json(keep.body_json(row.dead_letter), "body")
    except BodyUnreadable as error:
        job |= {"body": None, "body_unreadable": error.why}
    return {
        "number": row.number, "state": row.state.value, **job, "archived_ms": row.archived_ms,
        "kicked_ms": row.kicked_ms,
    }  # fmt: skip


def _list_view(rows: list[ArchivedJob]) -> RenderableType:
    if not rows:
        return Text("nothing is archived", "dim")
    columns = ("number", "topic", "id", "group", "attempts", "reason", "error", "buried")
    made = terminal.table(*columns, numbers=("number", "attempts"))
    states = {row.state for row in rows}
    if states != {RowState.ARCHIVED}:
        made.add_column("state")
    for row in rows:
        job = row.dead_letter
        cells = [
            str(row.number),
            job.topic,
            job.id,
            job.group,
            str(job.attempts),
            job.reason,
        ]
        cells += [job.error, terminal.utc_text(job.buried_ms), row.state.value]
        made.add_row(*map(Text, cells[: len(made.columns)]))
    return made


def _body_text(row: ArchivedJob, keep: Archive) -> str:
    try:
        return keep.body_json(row.dead_letter).decode()
    except BodyUnreadable as error:
        return f"({error.why})"


def _row_view(row: ArchivedJob, keep: Archive) -> RenderableType:
    job = row.dead_letter
    facts = Table.grid(padding=(0, 2))
    lines: dict[str, str | None] = {
        "job": f"{job.topic} / {job.id}",
        "group": job.group,
        "state": row.state.value,
        "reason": job.reason,
        "error": job.error,
        "attempts": f"{job.attempts}, steps used {job.step}, crashes {job.crashes}",
        "created": terminal.utc_text(job.created_ms),
        "due": terminal.utc_text(job.due_ms),
        "buried": terminal.utc_text(job.buried_ms),
        "archived": terminal.utc_text(row.archived_ms),
        "kicked": terminal.utc_text(row.kicked_ms) or None,
        "ttr": None if job.ttr_ms is None else show_ms(job.ttr_ms),
        "retry": job.retry,
        "url": job.url,
        "expire": None if job.expire_ms is None else show_ms(job.expire_ms),
        "body": _body_text(row, keep),
    }
    for name, value in lines.items():
        if value is not None:
            facts.add_row(Text(name, "dim"), Text(value))
    return Group(facts, Text(""))
