"""Builds a flow: its jobs are put in while its block runs, and start when the block has ended.

Each of its jobs waits for a gate, beside what else it waits for (lua/lib/flows.lua). At the end of the block the
flow's own job is put in, which waits for all of them; with that the flow is complete, and its gates are opened. If this
process is killed before, the mover withdraws the flow after a while, and its jobs are cancelled; if it is killed after,
the mover opens it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

from ... import forks
from ...config import MAX_BATCH
from ...errors import FlowExists, FlowWithdrawn, InvalidInput, StreamdqError
from ...job.after import MAX_PARENTS, After, OnFailure, Parent, Waits
from ...job.durability import check_level
from ...job.flow import FLOWS, FlowJob
from ...job.job import NewJob, Priority, check_id, check_own_topic
from ...job.retry import RetryInput
from ...keys import shard_of
from ...link.connection import AsyncLink, Link
from ...link.session import Op, arun, run
from ...options import suggesting
from ...process.logs import log
from ...store.batches import MAX_BYTES
from ...store.flows import decisions, parents, shards
from ...store.jobs.links import Known, follower
from ...store.jobs.records import Encoded, as_waiting, encode
from ...store.redis_store import RedisStore
from ...store.scripts.flows import Run
from ...store.topics.changes import expect_links
from ...store.topics.topics import changing
from ...times.durations import Duration, to_ms
from ..jobs.after import InFlow, put_in_flow, put_own
from ..jobs.enqueue import NO_BODY
from ..jobs.enqueue_many import as_new_job
from ..jobs.get import REPAIRS

MOST_STAGES = 1_000
_WITHIN_MS = 3_600_000
"""A flow is withdrawn so long after the last call of its builder."""


class Building:
    """A flow that is being built: what Flow and AsyncFlow have in common."""

    def __init__(
        self,
        store: RedisStore,
        name: str,
        deadline: Duration | None,
        keep: Duration,
        durable: str | None,
        receipt: str = "",
    ) -> None:
        self._receipt = receipt  # of a database's outbox; kept with the flow
        self.name = check_id(name)
        self._store = store
        self._deadline_ms = 0 if deadline is None else max(1, to_ms(deadline, "deadline"))
        self._keep_ms = to_ms(keep, "keep")
        self._durable = durable
        check_level(durable)
        self._run = Run(store.session.keys.shard(FLOWS, 0), self.name, os.urandom(8).hex())
        self._jobs: list[Parent] = []  # all of them
        self._stages: list[list[Any]] = []  # topic, jobs, the stages that they wait for, on_failure; and other parents
        self._number_of: dict[Parent, int] = {}
        self._stage_of: list[int] = []  # by the numbers of the jobs
        self._parents: list[list[parents.Run]] = []  # of each stage
        self._unsent: list[_Added] = []
        self._shards: dict[int, int] = {}  # of those that were put in, by their numbers
        self._unsent_bytes = self._gates = 0
        self._block_of: int | None = None  # the process whose block runs, by its forks.depth
        self._has_own = False  # whether the flow's own job is put in, or was

    def begin(self) -> Op[None]:
        """Raises:
        FlowExists
        """
        store = self._store
        for _ in range(REPAIRS):
            named = self.name, self._run.life
            code, run = yield from shards.begin(
                store.session, store.scripts, store.topics, named, _WITHIN_MS, self._deadline_ms
            )
            if code == 1:
                self._run, self._block_of = run, forks.depth
                return
            # -2: another process builds one, or was killed.
            if code == -1 or (yield from self._decide(run, "withdraw")) == "o":
                raise FlowExists(self.name)
        raise changing(FLOWS)

    def add(self, topic: str, new: NewJob) -> Op[FlowJob]:
        """Adds a job, and sends those that were added if these are enough.

        Raises:
            InvalidInput: an argument is, or the block has not begun, or has ended: nobody would send the job.
        """
        if self._block_of != forks.depth:
            raise InvalidInput(f"flow {self.name!r}: add jobs inside its block: with queue.flow(…) as flow")
        return (yield from self.add_encoded(topic, self._encoded(topic, new)))

    def add_encoded(self, topic: str, job: Encoded) -> Op[FlowJob]:
        """The same with a job that waits for nothing but others of the flow, or of elsewhere. Its nonce must be new."""
        waits = job.waits
        assert waits is not None
        added = Parent(topic, job.id, job.key, job.nonce)
        self._note(added, waits)
        self._unsent.append(_Added(len(self._jobs) - 1, topic, job))
        self._unsent_bytes += len(job.rest)
        if len(self._unsent) >= MAX_BATCH or self._unsent_bytes >= MAX_BYTES:
            yield from self._send()
        return FlowJob(*added)

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked in the block. It leaves the block, too, and the flow is its parent's."""
        return self._block_of not in (None, forks.depth)

    def _encoded(self, topic: str, new: NewJob) -> Encoded:
        bodies, is_root = self._store.session.bodies, new.after is None
        checked = replace(new, after=(FLOWS, self.name)) if is_root else new
        job = encode(checked, bodies.most_json_bytes, bodies.seal(topic))
        waits = job.waits or Waits((), new.on_failure, 0 if new.delay is None else to_ms(new.delay))
        others = () if is_root else waits.parents
        return as_waiting(job, Waits(others, waits.on_failure, waits.delay_ms, waits.gates))

    def _note(self, added: Parent, waits: Waits) -> None:
        """The stage of a job that was added."""
        if len(self._jobs) == MAX_PARENTS:
            raise InvalidInput(f"flow: more than {MAX_PARENTS} jobs; make several flows of them")
        numbers = sorted(self._number_of[one] for one in waits.parents if one in self._number_of)
        after = sorted({self._stage_of[number] for number in numbers})
        stage = [added.topic, 0, after, waits.on_failure]
        if not self._stages or self._stages[-1][::2] != stage[::2] or self._stages[-1][3] != stage[3]:
            if len(self._stages) == MOST_STAGES:
                raise InvalidInput(
                    f"flow: more than {MOST_STAGES} stages; add jobs of a topic that wait for the same ones together"
                )
            self._stages.append(stage)
            self._parents.append([])
        self._stages[-1][1] += 1
        parents.add_to(self._parents[-1], parents.ranges_of(numbers))
        self._number_of[added] = len(self._jobs)
        self._stage_of.append(len(self._stages) - 1)
        self._jobs.append(added)

    def _send(self) -> Op[None]:
        """Puts in what was added. If the number of shards of a topic changes meanwhile, the rest gets another gate."""
        for _ in range(REPAIRS):
            if not self._unsent:
                return
            gate = yield from self._add_gate()
            left: list[_Added] = []
            for some in _together(self._unsent):
                # What comes behind a job that was not put in may wait for it.
                left += some if left else (yield from self._put(some, gate))
            self._unsent, self._unsent_bytes = left, 0
        raise changing(self._unsent[0].topic)

    def _put(self, some: Sequence[_Added], gate: Known) -> Op[list[_Added]]:
        """Returns those that were not put in."""
        shard = self._run.shard
        new = []
        for number, _, job in some:
            own = follower(FLOWS, shard.shard, number, self._run.life, self.name)
            others = job.waits.parents if job.waits else ()
            new.append(InFlow(job, own, frozenset(one for one in others if one in self._number_of)))
        homes = yield from put_in_flow(self._store, some[0].topic, new, gate, self._durable)
        self._shards |= {one.number: home for one, home in zip(some, homes, strict=True) if home is not None}
        return [one for one, home in zip(some, homes, strict=True) if home is None]

    def _add_gate(self) -> Op[Known]:
        """A gate for all that was added."""
        lines: list[str] = []
        with_keys = {topic for _, topic, job in self._unsent if job.key is not None}
        settings = {}
        for topic in dict.fromkeys(one.topic for one in self._unsent):
            settings[topic] = yield from expect_links(self._store.topics, topic, has_keys=topic in with_keys)
        for _, topic, job in self._unsent:
            shard = shard_of(job.id, settings[topic].shards, job.key)
            lines.append(follower(topic, shard, 0, job.nonce, job.id))
        if not (yield from self._store.scripts.add_gate(self._run, self._gates, _WITHIN_MS, lines)):
            raise FlowWithdrawn(self.name)
        self._gates += 1
        place = self._run.shard
        return Known(place.topic, place.shard, f"{self.name}~{self._gates - 1}", self._run.life, 0, "")

    def complete(self) -> Op[None]:
        """The end of the block.

        Raises:
            FlowWithdrawn
        """
        self._block_of = None
        try:
            yield from self._send()
            if self._jobs:
                yield from self._open()
        except Exception:
            if (yield from self.withdraw()) != "o":
                raise
        else:
            if not self._jobs:
                yield from self.withdraw()

    def _open(self) -> Op[None]:
        known = [Known(one.topic, self._shards[i], one.id, one.life, 0, "") for i, one in enumerate(self._jobs)]
        own = self._own()
        self._has_own = True
        yield from put_own(self._store, self._run.shard, own, known, self._durable)
        if (yield from self._decide(self._run, "open")) != "o":
            raise FlowWithdrawn(self.name)

    def _decide(self, run: Run, how: str) -> Op[str]:
        store = self._store
        return decisions.decide(store.session, store.scripts, store.topics, run, how)

    def _own(self) -> Encoded:
        """The flow's own job."""
        kept = parents.written([(jobs, *after) for _, jobs, after, _ in self._stages], self._parents)
        body: dict[str, Any] = {"stages": self._stages}
        body |= {"outbox": self._receipt} if self._receipt else {}
        body |= {} if kept == {} else {"parents": kept}
        try:
            job = self._encoded_own(body)
        except InvalidInput:  # it is too large
            job = self._encoded_own({**body, "parents": None})
        waits = Waits(tuple(self._jobs), "run", self._keep_ms, self._gates)
        return as_waiting(job, waits, self._run.life)

    def _encoded_own(self, body: Any) -> Encoded:
        bodies = self._store.session.bodies
        return encode(NewJob(body, id=self.name), bodies.most_json_bytes, bodies.seal(FLOWS))

    def withdraw(self) -> Op[str]:
        """Leaves nothing behind, unless the flow is open: then it returns "o". What can't be reached is left to the
        mover.
        """
        self._block_of = None
        try:
            state = yield from self._decide(self._run, "withdraw")
            if state != "o" and self._has_own:
                yield from self._drop_own()
            return state
        except StreamdqError as error:
            log.warning("a flow was not withdrawn; the mover does so later", flow=self.name, error=str(error))
            return ""

    def _drop_own(self) -> Op[None]:
        store, shard = self._store, self._run.shard
        settings = yield from store.topics.get(FLOWS)
        yield from store.scripts.abort_each(shard, settings, [(self.name, self._run.life)])


class _Added(NamedTuple):
    """A job that was added: its number among those of the flow, and its topic."""

    number: int
    topic: str
    job: Encoded


def _together(added: Sequence[_Added]) -> Iterator[list[_Added]]:
    """Those that can be put in at the same time: in one topic, with different ids, and none waits for another one."""
    some, ids = list[_Added](), set[str]()
    for one in added:
        topic, job = one.topic, one.job
        assert job.waits is not None
        waits = any(parent.topic == topic and parent.id in ids for parent in job.waits.parents)
        if some and (some[0].topic != topic or job.id in ids or waits):
            yield some
            some, ids = [], set()
        some.append(one)
        ids.add(job.id)
    if some:
        yield some


class Flow:
    """A flow that is being built. Use it in a ``with`` statement: its jobs start when the block has ended, and if it
    raises, nothing is left of them. It is for one thread.
    """

    def __init__(self, link: Link, building: Building) -> None:
        self._link = link
        self._building = building
        self.name = building.name

    @suggesting
    def enqueue(
        self,
        topic: str,
        body: Any = NO_BODY,
        *,
        delay: Duration | None = None,
        id: str | None = None,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        url: str | None = None,
        expire: Duration | None = None,
        version: int = 1,
        key: str | None = None,
        priority: Priority | None = None,
        after: After | None = None,
        on_failure: OnFailure = "block",
    ) -> FlowJob:
        """Adds a job. ``delay``: from the end of those that it waits for, or of the block. ``after``: jobs of this
        flow, or any others. The arguments are those of ``Queue.enqueue``. It may be sent later, with others.

        Raises:
            InvalidInput: an argument is invalid.
            JobExists: the id of one that was sent is taken.
            FlowWithdrawn: the flow was cancelled, or begun anew by another process.
        """
        new = NewJob(
            body, delay, id, ttr=ttr, retry=retry, url=url, expire=expire, version=version, key=key,
            priority=priority, after=after, on_failure=on_failure,
        )  # fmt: skip
        return self._add(check_own_topic(topic), new)

    def enqueue_many(self, topic: str, jobs: Iterable[NewJob | Mapping[str, Any]]) -> list[FlowJob]:
        """Adds any number of jobs, and holds the bodies of at most 500 of them in memory. ``jobs``: as for
        ``Queue.enqueue_many``. Raises the same as ``enqueue``.
        """
        topic = check_own_topic(topic)
        return [self._add(topic, as_new_job(job)) for job in jobs]

    def _add(self, topic: str, new: NewJob) -> FlowJob:
        return run(self._link, self._building.add(topic, new))

    def __enter__(self) -> Self:
        run(self._link, self._building.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._building.is_of_parent:
            return
        try:
            run(self._link, self._building.complete() if error is None else self._building.withdraw())
        except (KeyboardInterrupt, SystemExit):
            run(self._link, self._building.withdraw())
            raise


class AsyncFlow:
    """Like Flow, for ``async with``. Its methods are awaited."""

    def __init__(self, link: AsyncLink, building: Building) -> None:
        self._link = link
        self._building = building
        self._lock = asyncio.Lock()
        self.name = building.name

    @suggesting
    async def enqueue(
        self,
        topic: str,
        body: Any = NO_BODY,
        *,
        delay: Duration | None = None,
        id: str | None = None,
        ttr: Duration | None = None,
        retry: RetryInput | None = None,
        url: str | None = None,
        expire: Duration | None = None,
        version: int = 1,
        key: str | None = None,
        priority: Priority | None = None,
        after: After | None = None,
        on_failure: OnFailure = "block",
    ) -> FlowJob:
        """Like Flow.enqueue."""
        new = NewJob(
            body, delay, id, ttr=ttr, retry=retry, url=url, expire=expire, version=version, key=key,
            priority=priority, after=after, on_failure=on_failure,
        )  # fmt: skip
        return await self._add(check_own_topic(topic), new)

    async def enqueue_many(
        self, topic: str, jobs: Iterable[NewJob | Mapping[str, Any]] | AsyncIterable[NewJob | Mapping[str, Any]]
    ) -> list[FlowJob]:
        """Like Flow.enqueue_many; ``jobs`` may be asynchronous."""
        topic = check_own_topic(topic)
        return [await self._add(topic, as_new_job(job)) async for job in _each(jobs)]

    async def _add(self, topic: str, new: NewJob) -> FlowJob:
        async with self._lock:
            return await arun(self._link, self._building.add(topic, new))

    async def __aenter__(self) -> Self:
        await arun(self._link, self._building.begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._building.is_of_parent:
            return
        try:
            async with self._lock:  # another task may be adding jobs
                await arun(self._link, self._building.complete() if error is None else self._building.withdraw())
        except asyncio.CancelledError:
            await arun(self._link, self._building.withdraw())
            raise


async def _each(jobs: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    if isinstance(jobs, AsyncIterable):
        async for job in jobs:
            yield job
    else:
        for job in jobs:
            yield job
