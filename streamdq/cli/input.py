"""Reads what users pass: bodies, points in time, and files of jobs with one JSON value per line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO

from pydantic_core import from_json

from ..config import MAX_BATCH
from ..errors import InvalidInput, StreamdqError
from ..job.durability import check_level
from ..job.job import NewJob, check_topic
from ..job.uniqueness import OnConflict
from ..operations.jobs.enqueue import check_at_most, put
from ..operations.jobs.ndjson import Lines, NumberedLine, longest_line
from ..queue import Queue, carry_out, store_of
from ..store.jobs.records import Encoded, encode
from ..terminal import counted
from ..times.durations import Moment

JOB_FIELDS = tuple(NewJob.__dataclass_fields__)
SHOWN_IDS = 100
_MOST_AT_ONCE = 1024 * 1024


def parse_json(text: str | bytes, what: str) -> Any:
    """The JSON value.

    Raises:
        InvalidInput: it is not JSON, or not UTF-8.
    """
    # Bytes from the shell that are not UTF-8 get an error that says so.
    given = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    try:
        return from_json(given, allow_inf_nan=False)
    except ValueError as error:
        hint = "; write a text with its quotes: '\"hello\"'" if given[:1].isalpha() else ""
        if isinstance(text, str) and given[:1] == b"{":  # a shell has taken the quotes
            hint = "; put it in single quotes, and names in double ones: '{\"order_id\": 42}'"
        raise InvalidInput(f"{what}: not JSON: {error}{hint}") from None


def parse_moment(text: str | int, what: str = "at") -> Moment:
    """Unix milliseconds of 13 digits, or an ISO 8601 time with its zone; enqueue checks them further.

    Raises:
        InvalidInput: the text is neither.
    """
    if isinstance(text, int) or (text.isascii() and text.isdigit()):
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise InvalidInput(
            f"{what}: can't read {str(text)[:80]!r}; write 2030-01-31T09:00:00+08:00, or Unix milliseconds (13 digits)"
        ) from None


@dataclass(frozen=True, slots=True)
class Loaded:
    """How many of a file's jobs were enqueued. ``existing_ids``: the first of the ids that were taken. ``lines``: how
    many lines are done with. ``batch``: the jobs of the lines after these.
    """

    lines: int = 0
    created: int = 0
    existing: int = 0
    existing_ids: list[str] = field(default_factory=list)
    batch: list[Encoded] = field(default_factory=list)

    def after(self, lines: int, existing: list[int]) -> Loaded:
        """With the batch enqueued; ``existing`` are the places of those whose ids were taken."""
        created = len(self.batch) - len(existing)
        ids = [self.batch[i].id for i in existing[: SHOWN_IDS - len(self.existing_ids)]]
        return Loaded(lines, self.created + created, self.existing + len(existing), self.existing_ids + ids)


class BadLine(InvalidInput):
    """A line is not a valid job. The jobs of the lines before it were enqueued; the rest of the file was not read."""

    def __init__(self, number: int, why: str, loaded: Loaded) -> None:
        before = (
            f"The lines before it were enqueued ({counted(loaded.created, 'job')} created, {loaded.existing:,} existed "
            f"already); fix this line and continue with: tail -n +{number}"
        )
        super().__init__(f"line {number}: {why}. {before if number > 1 else 'Nothing was enqueued'}")
        self.number = number
        self.loaded = loaded


def new_job(line: bytes, defaults: Mapping[str, Any]) -> NewJob:
    """One line's job. An object with a ``body`` is a job and may have every field of NewJob; any other value is a body.

    Raises:
        InvalidInput: not JSON, or an object with a ``body`` and a field that no job has.
    """
    value = parse_json(line, "job")
    if not (isinstance(value, dict) and "body" in value):
        return NewJob(value, **defaults)
    unknown = [name for name in value if name not in JOB_FIELDS]
    if unknown:
        raise InvalidInput(
            f"a job has no field {unknown[0]!r}, only {', '.join(JOB_FIELDS)}; write a body that has a field 'body' "
            'itself as {"body": {"body": …}}'
        )
    given = {name: given for name, given in value.items() if given is not None or name == "body"}
    if isinstance(given.get("at"), str | int):
        given["at"] = parse_moment(given["at"])
    when = {"delay", "at"} & given.keys()  # either on the line overrides both defaults
    return NewJob(**{**{name: v for name, v in defaults.items() if not (when and name in ("delay", "at"))}, **given})


def load_jobs(
    queue: Queue,
    topic: str,
    source: BinaryIO,
    *,
    defaults: Mapping[str, Any],
    on_conflict: OnConflict,
    durable: str | None = None,
    progress: Callable[[int, int], None],
) -> Loaded:
    """Enqueues every line of a file of any length, in batches; blank lines are skipped. ``progress`` is called with
    the bytes and lines read.

    Raises:
        InvalidInput: the topic's name or ``durable`` is invalid; nothing was read.
        BadLine: a line is not a valid job; the lines before it were enqueued.
        StreamdqError, OSError, KeyboardInterrupt: Redis failed, or the file, or the user has had enough; a note says
            how far it came.
    """
    topic = check_topic(topic)
    check_level(durable)
    store, loaded = store_of(queue), Loaded()  # replaced as a whole: Ctrl-C comes before or after, never between
    limit, seal = store.session.bodies.most_json_bytes, store.session.bodies.seal(topic)
    longest = longest_line(limit)
    lines = Lines(longest)

    def flush(lines_done: int) -> None:
        nonlocal loaded
        batch = loaded.batch
        existing = carry_out(queue, put(store, topic, batch, on_conflict, durable)).existing if batch else []
        loaded = loaded.after(lines_done, existing)
        progress(lines.bytes_read, lines.lines_read)

    def read() -> None:
        for number, line in _read(source, lines):
            try:
                if line is None:
                    raise InvalidInput(f"longer than {longest} bytes; each line must hold one JSON value")
                job = encode(new_job(line, defaults), limit, seal)
                check_at_most([job], on_conflict)
                loaded.batch.append(job)
            except InvalidInput as error:
                flush(number - 1)
                raise BadLine(number, str(error), loaded) from None
            if len(loaded.batch) == MAX_BATCH:
                flush(number)
        flush(lines.lines_read)

    try:
        read()
    except BadLine:
        raise
    except (StreamdqError, OSError, KeyboardInterrupt) as error:
        error.add_note(_how_far(loaded))
        raise
    return loaded


def _how_far(loaded: Loaded) -> str:
    done = f"the jobs of the first {loaded.lines:,} lines were enqueued ({counted(loaded.created, 'job')} created)"
    unknown = f"; of the next {len(loaded.batch)} jobs some may have been" if loaded.batch else ""
    return f"{done}{unknown}; continue with: tail -n +{loaded.lines + 1}"


def _read(source: BinaryIO, lines: Lines) -> Iterator[NumberedLine]:
    """Yields each line as soon as it is complete, because the file may still be growing."""
    while chunk := source.readline(_MOST_AT_ONCE):
        yield from lines.feed(chunk)
    yield from lines.end()
