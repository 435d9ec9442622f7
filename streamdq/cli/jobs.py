"""Commands on jobs: enqueue, get, cancel, reschedule, and those on dead letters."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from .. import terminal
from ..config import DEFAULT_GROUP
from ..errors import InvalidInput, UnknownGroup, UnknownTopic
from ..job.job import Job, JobState, check_topic
from ..operations import json_out
from ..operations.known import topic_names
from ..queue import Queue, carry_out, store_of
from ..store.topics.misspelt import meant_by_new
from .common import (
    At,
    Delay,
    Durable,
    Expire,
    GroupOption,
    Id,
    Json,
    OptionalTopic,
    PriorityChoice,
    Retry,
    Topic,
    Ttr,
    WithId,
    answer,
    commands,
    open_queue,
    option,
    topics_of,
)  # fmt: skip
from .input import BadLine, Loaded, load_jobs, parse_json, parse_moment

app = commands()
DEAD = commands(help="List dead letters, send them back, or delete them.")
app.add_typer(DEAD, name="dead")


class OnConflictChoice(StrEnum):
    """What to do with an id that is taken."""

    REJECT = "reject"
    KEEP = "keep"
    REPLACE = "replace"
    POSTPONE = "postpone"


Key = Annotated[
    str | None, typer.Option(help="The job's key, if it has one; without it, the job is found all the same.")
]


class UniqueAfterChoice(StrEnum):
    """From when --unique-for counts."""

    ENQUEUE = "enqueue"
    FINISH = "finish"


class OnFailureChoice(StrEnum):
    """What becomes of a job if one fails that it waits for."""

    BLOCK = "block"
    RUN = "run"
    CANCEL = "cancel"


# -- enqueuing


@app.command()
def enqueue(
    context: typer.Context,
    topic: Topic,
    body: Annotated[
        str | None, typer.Argument(help="The body, as JSON; - reads it from stdin; {} if not given", show_default=False)
    ] = None,
    file: Annotated[str | None, typer.Option(help="A file of jobs, one JSON value per line; - is stdin.")] = None,
    delay: Delay = None,
    at: At = None,
    id: Annotated[str | None, option("id")] = None,
    ttr: Ttr = None,
    retry: Retry = None,
    url: Annotated[str | None, option("url", more="That of Redis goes before enqueue.")] = None,
    expire: Expire = None,
    tz: Annotated[str | None, option("tz", more="Such as Europe/Paris.")] = None,
    quiet: Annotated[str | None, option("quiet", more="Such as 21:00-08:00.")] = None,
    window: Annotated[str | None, option("window")] = None,
    key: Annotated[str | None, option("key")] = None,
    priority: Annotated[PriorityChoice | None, option("priority")] = None,
    version: Annotated[int, option("version")] = 1,
    unique_for: Annotated[str | None, option("unique_for")] = None,
    unique_after: Annotated[UniqueAfterChoice, option("unique_after")] = UniqueAfterChoice.ENQUEUE,
    rate_of_id: Annotated[str | None, option("rate_of_id", more="Such as 3/h, or 1/10m.")] = None,
    at_most: Annotated[str | None, option("at_most")] = None,
    after: Annotated[list[str] | None, option("after", more="TOPIC/ID; pass it once for each.")] = None,
    on_failure: Annotated[OnFailureChoice, option("on_failure")] = OnFailureChoice.BLOCK,
    on_conflict: Annotated[OnConflictChoice, option("on_conflict")] = OnConflictChoice.REJECT,
    durable: Durable = None,
    as_json: Json = False,
) -> None:
    """Enqueue one job, or a file of jobs.

    \b
    streamdq enqueue order.close '{"order_id": 42}' --delay 30m --id order-42
    streamdq enqueue sms.remind '"hello"' --at 2030-01-31T09:00:00+08:00
    streamdq enqueue order.close --file jobs.ndjson --delay 30m
    zcat jobs.ndjson.gz | streamdq enqueue order.close --file -

    A line of a file is either a body or an object: {"body": {"order_id": 42}, "delay": "30m"}. The object may have
    delay, at, id, ttr, retry, url, expire, tz, quiet, version, unique_for, unique_after, rate_of_id, at_most, key,
    priority, after and on_failure. The options of the command are the defaults of all lines. A file of any length is
    read as a stream. The first invalid line stops it with exit code 2; the jobs of the lines before it stay enqueued.
    If Redis fails or you press Ctrl-C, it says how far it came. Taken ids don't stop it; with "reject" the exit code is
    then 1.
    """  # noqa: D301 - typer reads the mark
    if body is not None and file is not None:
        raise InvalidInput("enqueue: pass either a body or --file")
    given: dict[str, Any] = {
        "delay": delay, "at": None if at is None else parse_moment(at), "ttr": ttr, "retry": retry, "url": url,
        "expire": expire, "tz": tz, "quiet": quiet, "window": window, "version": version, "unique_for": unique_for,
        "unique_after": unique_after.value, "rate_of_id": rate_of_id, "at_most": at_most, "key": key,
        "on_failure": on_failure.value, "priority": priority,
    }  # fmt: skip
    fields = {name: value for name, value in given.items() if value is not None}
    with open_queue(context) as queue:
        if after:
            fields["after"] = _parents(queue, after)
        _ask_about_slip(queue, topic)
        if file is None:
            text = sys.stdin.buffer.read() if body == "-" else "{}" if body is None else body
            job = queue.enqueue(
                topic, parse_json(text, "body"), id=id, on_conflict=on_conflict.value, durable=durable, **fields
            )
            answer(as_json, json_out.job_json(job), f"{job.topic} / {job.id}, {_due(job)}")
            return
        if id is not None:
            raise InvalidInput('id: the jobs of a file have ids of their own; put "id" on each line')
        _enqueue_file(queue, topic, file, fields, on_conflict, durable, as_json)


def _due(job: Job) -> str:
    if job.state is JobState.WAITING:
        return "waits for other jobs"
    return f"due {terminal.time_text(job.due_ms)}"


def _parents(queue: Queue, after: list[str]) -> list[tuple[str, str]]:
    are_clear = all(text.count("/") < 2 for text in after)
    topics = [] if are_clear else carry_out(queue, topic_names(store_of(queue), None))
    return [_parent(text, topics) for text in after]


def _parent(text: str, topics: Sequence[str]) -> tuple[str, str]:
    """Topics and ids may have slashes: of several ways to read it, the one counts whose topic exists."""
    ways = [(text[:i], text[i + 1 :]) for i, letter in enumerate(text) if letter == "/"]
    if not ways:
        raise InvalidInput(f"after: {text!r:.80} is not TOPIC/ID")
    known = [way for way in ways if way[0] in topics]
    if len(known) > 1:
        names = " and ".join(topic for topic, _ in known)
        raise InvalidInput(f'after: {text!r:.80} may be of {names}: pass --file, with {{"after": {{"topic": …}}}}')
    return (known or ways)[0]


def _ask_about_slip(queue: Queue, topic: str) -> None:
    """A new topic whose name is like another one is probably a slip. Without a terminal, the log warns of it."""
    if not sys.stdin.isatty():
        return
    meant = carry_out(queue, meant_by_new(store_of(queue).topics, check_topic(topic)))
    question = f"There is no topic {topic}: did you mean {meant}? Make {topic} anyway?"
    if meant is not None and not typer.confirm(question, err=True):
        raise typer.Abort


def _enqueue_file(
    queue: Queue,
    topic: str,
    file: str,
    fields: dict[str, Any],
    on_conflict: OnConflictChoice,
    durable: str | None,
    as_json: bool,
) -> None:
    with _source(file) as source, terminal.progress_bar("lines") as bar:
        total = _size_of(source)
        try:
            loaded = load_jobs(
                queue, topic, source, defaults=fields, on_conflict=on_conflict.value, durable=durable,
                progress=lambda size, lines: bar.reach(size, total, counted=lines),
            )  # fmt: skip
        except BadLine as error:
            if as_json:
                terminal.print_json({**_loaded_json(error.loaded), "bad_line": error.number, "error": str(error)})
            raise
        except KeyboardInterrupt as interrupt:  # which typer makes an exit code of
            terminal.complain("interrupted", interrupt)
            raise
    text = f"{terminal.counted(loaded.created, 'job')} created"
    if loaded.existing:
        were = "id was" if loaded.existing == 1 else "ids were"
        text += f", {loaded.existing:,} {were} taken: {', '.join(loaded.existing_ids[:5])}"
        text += " …" if loaded.existing > 5 else ""
    refused = loaded.existing and on_conflict is OnConflictChoice.REJECT
    answer(as_json, _loaded_json(loaded), text, yes=not refused)


def _size_of(source: BinaryIO) -> int | None:
    """The file's size in bytes; None for a pipe or anything else that is not a file."""
    try:
        return os.fstat(source.fileno()).st_size or None
    except io.UnsupportedOperation:
        return None


def _loaded_json(loaded: Loaded) -> dict[str, Any]:
    return {"created": loaded.created, "existing": loaded.existing, "existing_ids": loaded.existing_ids}


@contextmanager
def _source(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        source = Path(file).open("rb")  # noqa: SIM115 - closed below; here only its failure is reported
    except OSError as error:
        raise InvalidInput(f"file: can't read {file}: {error.strerror}") from None
    with source:
        yield source


# -- one job


@app.command(cls=WithId)
def get(context: typer.Context, topic: Topic, id: Id, key: Key = None, as_json: Json = False) -> None:
    """Show a job and its progress.

    Shows its body, due time, and the state of each group. Exit code 1: no such job (it has ended, or never existed).
    """
    with open_queue(context) as queue:
        job = queue.get(topic, id, key=key)
        if job is None:
            answer(as_json, None, _why_missing(queue, topic, id), yes=False)
        elif as_json:
            terminal.print_json(json_out.job_json(job))
        else:
            terminal.console().print(terminal.job_view(job, queue.configure(topic)))  # without options, it only reads


@app.command(cls=WithId)
def result(
    context: typer.Context,
    topic: Topic,
    id: Id,
    timeout: Annotated[str, typer.Option(help="How long to wait for the job to end.")] = "0",
    group: Annotated[str | None, typer.Option(help="Whose result, if several groups keep theirs.")] = None,
    key: Key = None,
) -> None:
    """Show what a job's handler returned, as JSON.

    The topic has to keep results: @worker.handler(topic, result="1d"), or topic configure --result 1d. Exit code 1: the
    job has not ended in time, or without a result: it is dead, cancelled or expired, or nothing is known of it.
    """
    with open_queue(context) as queue:
        found = queue.result(topic, id, timeout=timeout, group=group, key=key)
    terminal.print_json(found)


def _why_missing(queue: Queue, topic: str, id: str) -> str:
    try:
        queue.configure(topic)  # without options, it only reads
    except UnknownTopic as error:  # its name may be misspelt
        return str(error)
    words = " ".join(shlex.quote(word) for word in (topic, *(["--"] if id.startswith("--") else []), id))
    return f"no job {id!r} in {topic!r}: it has ended, or never existed; for past attempts: streamdq history {words}"


@app.command(cls=WithId)
def cancel(
    context: typer.Context, topic: Topic, id: Id, key: Key = None, durable: Durable = None, as_json: Json = False
) -> None:
    """Cancel a waiting job.

    No new attempt of it starts, in any group. Exit code 1: no such job, or it is running or dead.
    """
    with open_queue(context) as queue:
        yes = queue.cancel(topic, id, key=key, durable=durable)
    answer(as_json, {"cancelled": yes}, "cancelled" if yes else _unchanged(id), yes=yes)


@app.command(cls=WithId)
def abort(
    context: typer.Context,
    topic: Topic,
    id: Id,
    group: Annotated[
        str | None, typer.Option("--group", help="Abort it for this consumer group alone. Default: for all.")
    ] = None,
    key: Key = None,
    durable: Durable = None,
    as_json: Json = False,
) -> None:
    """Abort a job, also while it runs.

    If it waits, it is cancelled. If it runs, its handler is stopped; however that ends, the job is cancelled and not
    tried again. Exit code 1: no such job, or it is dead.
    """
    with open_queue(context) as queue:
        result = queue.abort(topic, id, group=group, key=key, durable=durable)
    yes = result in ("cancelled", "aborting")
    answer(as_json, {"result": result.value}, _ABORTED[result.value].format(id=id), yes=yes)


_ABORTED = {
    "cancelled": "cancelled",
    "aborting": "aborting: its handler is told to stop, and the job ends as cancelled",
    "waiting": "nothing changed: no group has begun with {id!r}; leave out --group",
    "ended": "nothing changed: {id!r} has ended, or is dead, or never was",
}


@app.command(cls=WithId)
def reschedule(
    context: typer.Context,
    topic: Topic,
    id: Id,
    delay: Delay = None,
    at: At = None,
    key: Key = None,
    durable: Durable = None,
    as_json: Json = False,
) -> None:
    """Give a waiting job another due time.

    Pass --delay (from now) or --at. Exit code 1: no such job is waiting.
    """
    with open_queue(context) as queue:
        moment = None if at is None else parse_moment(at)
        yes = queue.reschedule(topic, id, delay=delay, at=moment, key=key, durable=durable)
    answer(as_json, {"rescheduled": yes}, "rescheduled" if yes else _unchanged(id), yes=yes)


def _unchanged(id: str) -> str:
    return f"nothing changed: no job {id!r} is waiting (it has ended, is running or dead, or never existed)"


# -- dead letters


@DEAD.command("list")
def dead_list(
    context: typer.Context,
    topic: OptionalTopic = None,
    group: GroupOption = DEFAULT_GROUP,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, of each topic.")] = 100,
    as_json: Json = False,
) -> None:
    """List a group's dead letters, of one topic or of all.

    Those buried first come first, with reason and error.
    """
    jobs: list[Job] = []
    with open_queue(context) as queue:
        for name in topics_of(queue, topic):
            with suppress(*(() if topic else (UnknownGroup,))):
                jobs += queue.dead(name, group, limit)
    if as_json:
        terminal.print_json([json_out.job_json(job) for job in jobs])
    else:
        terminal.console().print(terminal.dead_view(jobs, group, topics=topic is None))


OptionalId = Annotated[str | None, typer.Argument(help="The job's id", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All dead letters of the group.")]


@DEAD.command("kick", cls=WithId)
def dead_kick(
    context: typer.Context,
    topic: Topic,
    id: OptionalId = None,
    every: All = False,
    group: GroupOption = DEFAULT_GROUP,
    as_json: Json = False,
) -> None:
    """Send a dead job back, or all with --all.

    It is ready at once, and its retry schedule starts again. Exit code 1: no job was dead.
    """
    _one_or_all("dead kick", id, every)
    with open_queue(context) as queue:
        count = queue.kick(topic, id, group)
    _answer_count("kicked", count, topic, id, group, as_json)


@DEAD.command("purge", cls=WithId)
def dead_purge(
    context: typer.Context,
    topic: Topic,
    id: OptionalId = None,
    every: All = False,
    group: GroupOption = DEFAULT_GROUP,
    as_json: Json = False,
) -> None:
    """Delete a dead job permanently, or all with --all.

    Exit code 1: no job was dead.
    """
    _one_or_all("dead purge", id, every)
    with open_queue(context) as queue:
        count = queue.purge(topic, id, group=group, all=every)
    _answer_count("purged", count, topic, id, group, as_json)


def _answer_count(done: str, count: int, topic: str, id: str | None, group: str, as_json: bool) -> None:
    which = "has no dead letters" if id is None else f"has no dead letter {id!r}"
    none = f"nothing changed: group {group!r} of topic {topic!r} {which}"
    answer(as_json, {done: count}, f"{count:,} {done}" if count else none, yes=count > 0)


def _one_or_all(command: str, id: str | None, every: bool) -> None:
    if (id is None) != every:
        raise InvalidInput(f"{command}: pass either a job's id or --all")
