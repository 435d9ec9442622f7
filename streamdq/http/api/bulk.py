"""Bulk uploads: enqueues a stream of JSON lines in batches, with bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ...config import MAX_BATCH
from ...errors import (
    BodyStorageUnavailable,
    DurabilityUnsupported,
    InvalidInput,
    NotDurable,
    ParentUnknown,
    ServerError,
)
from ...job.job import check_own_topic
from ...job.uniqueness import OnConflict
from ...link.session import Op
from ...operations.jobs.enqueue import check_at_most, put
from ...operations.jobs.ndjson import Lines, NumberedLine, longest_line
from ...process.loop import cancel_and_wait
from ...store.jobs.records import Encoded, encode
from ...store.redis_store import RedisStore
from ..problems import KINDS, ProblemError, kind_of, place
from ..request_body import without_collection
from .models.common import JobId
from .models.jobs import BulkLine, BulkOut, JobIn

_BATCH_BYTES = 4 * 1024 * 1024
_SHOWN = 100
_YIELD_LINES = 100  # then other requests get their turn, even if no line is a job


class JobLine(JobIn):
    """A line: a job, perhaps with its id."""

    id: JobId | None = None


@dataclass(slots=True)
class _Line:
    number: int
    job: Encoded


class Loader:
    """Loads one request's lines into one topic. ``check_topics`` raises a ProblemError if the caller's token is not for
    all of these topics; jobs may only wait for jobs of topics that it is for.
    """

    def __init__(
        self,
        store: RedisStore,
        topic: str,
        on_conflict: OnConflict,
        durable: str | None,
        do: Callable[[Op[Any]], Awaitable[Any]],
        stopping: asyncio.Event,
        check_topics: Callable[[Iterable[str]], None],
    ) -> None:
        self.result = BulkOut(lines=0, created=0, existing=0, invalid=0, problems=[])
        self._store = store
        self._topic = check_own_topic(topic)
        self._on_conflict = on_conflict
        self._durable = durable
        self._do = do
        self._stopping = stopping
        self._check_topics = check_topics
        self._limit, self._seal = store.session.bodies.most_json_bytes, store.session.bodies.seal(topic)
        self._batch: list[_Line] = []
        self._bytes = 0

    async def load(self, chunks: AsyncIterable[bytes]) -> None:
        """Reads all lines.

        Raises:
            ProblemError: Redis failed, or the server stops. It says how many lines were read; their jobs are enqueued.
        """
        try:
            ended = await self._read(chunks)
            await self._send()
        except (ServerError, BodyStorageUnavailable) as error:
            read = self.result.lines - len(self._batch)
            is_named = isinstance(error, NotDurable | DurabilityUnsupported | BodyStorageUnavailable)
            failed = "The storage of large bodies" if isinstance(error, BodyStorageUnavailable) else "Redis"
            raise ProblemError(
                kind_of(error) if is_named else "redis-unavailable",
                f"{failed} failed after {read} lines; with ids, all can be sent again",
                lines_read=read,
            ) from error
        if not ended:
            raise ProblemError(
                "stopping",
                f"the server ends, after {self.result.lines} lines; send the rest again, or with ids all of it",
                {"Connection": "close"},
                lines_read=self.result.lines,
            )

    async def _read(self, chunks: AsyncIterable[bytes]) -> bool:
        """Reads the lines; returns False if the server was asked to stop. The last batch remains to be sent."""
        longest = longest_line(self._limit)
        try:
            async with aclosing(until(self._stopping, chunks)) as parts, aclosing(lines_of(parts, longest)) as lines:
                async for number, line in lines:
                    self.result.lines += 1
                    self._add(number, line)
                    if self.result.lines % _YIELD_LINES == 0:
                        await asyncio.sleep(0)
                    if len(self._batch) >= MAX_BATCH or self._bytes >= _BATCH_BYTES:
                        await self._send()
                        if self._stopping.is_set():
                            return False
        except Stopped:
            return False
        return True

    def _add(self, number: int, line: bytes | None) -> None:
        try:
            if line is None:
                raise InvalidInput("the line is too long")
            job = encode(_parse(line), self._limit, self._seal)
            check_at_most([job], self._on_conflict)
            self._check_topics(parent.topic for parent in (job.waits.parents if job.waits else ()))
        except (InvalidInput, ValidationError, ProblemError) as error:
            self.result.invalid += 1
            kind = error.kind if isinstance(error, ProblemError) else "invalid-input"
            if len(self.result.problems) < _SHOWN:
                self._tell(BulkLine(line=number, problem=kind, detail=_what(error)[:300]))
            return
        self._batch.append(_Line(number, job))
        self._bytes += len(job.rest)

    def _tell(self, line: BulkLine) -> None:
        if len(self.result.problems) < _SHOWN:
            self.result.problems.append(line)

    async def _send(self) -> None:
        """Those that wait for others are sent one by one, after the rest, which they may wait for: each of them may be
        refused.
        """
        plain = [line for line in self._batch if line.job.waits is None]
        if plain:
            await self._put(plain)
        for line in self._batch:
            if line.job.waits is not None:
                await self._put_after(line)
        self._batch, self._bytes = [], 0

    async def _put_after(self, line: _Line) -> None:
        try:
            await self._put([line])
        except (ParentUnknown, InvalidInput) as error:
            self.result.invalid += 1
            self._tell(BulkLine(line=line.number, problem=kind_of(error), detail=str(error)[:300], id=line.job.id))

    async def _put(self, lines: Sequence[_Line]) -> None:
        jobs = [line.job for line in lines]
        reply = await self._do(put(self._store, self._topic, jobs, self._on_conflict, self._durable))
        existing = [lines[i] for i in reply.existing]
        self.result.created += len(lines) - len(existing)
        self.result.existing += len(existing)
        for line in existing:
            title = KINDS["job-exists"][1]
            self._tell(BulkLine(line=line.number, problem="job-exists", detail=title, id=line.job.id))


class Stopped(Exception):
    """The server is shutting down."""


async def until(stopping: asyncio.Event, chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The chunks.

    Raises:
        Stopped: the server was asked to stop while it waited for the next chunk.
    """
    parts = aiter(chunks)
    stopped = asyncio.create_task(stopping.wait())
    following: asyncio.Task[bytes | None] | None = None
    try:
        while not stopping.is_set():
            following = asyncio.create_task(_next(parts))
            await asyncio.wait((following, stopped), return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                chunk = following.result()
                if chunk is None:
                    return
                yield chunk
        raise Stopped
    finally:
        await cancel_and_wait([stopped] if following is None else [stopped, following])


async def _next(parts: AsyncIterator[bytes]) -> bytes | None:
    return await anext(parts, None)


def _parse(line: bytes) -> Any:
    with without_collection():
        found = JobLine.model_validate_json(line)
    return found.new_job(found.id)


def _what(error: InvalidInput | ValidationError | ProblemError) -> str:
    if isinstance(error, InvalidInput):
        return str(error)
    if isinstance(error, ProblemError):
        return error.detail
    first = error.errors(include_url=False, include_input=False)[0]
    where = place(first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


async def lines_of(chunks: AsyncIterable[bytes], longest: int) -> AsyncGenerator[NumberedLine]:
    """(number, line) for each line that is not blank. A line longer than ``longest`` is skipped and comes as None."""
    lines = Lines(longest)
    async for chunk in chunks:
        for line in lines.feed(chunk):
            yield line
    for line in lines.end():
        yield line
