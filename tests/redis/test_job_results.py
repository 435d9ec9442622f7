"""RunningJob.results: in a handler, the results of the jobs that its job waited for."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from streamdq import (
    InvalidInput,
    JobCancelled,
    JobExpired,
    JobFailed,
    NewJob,
    NoResult,
    Queue,
    ResultGone,
    ResultTimeout,
    RunningJob,
    StaleClaim,
    UnknownGroup,
    Worker,
)
from streamdq.operations.results.earlier import failure_of
from streamdq.queue import store_of
from streamdq.store.jobs.links import StoredParent
from streamdq.store.jobs.results import EndState, StoredResult
from tests.redis.harness import NAMESPACE, SETTINGS, Seen, Space

COUNT = 1203
FEW = 303
"""More than two batches of results."""


class Notes(Seen):
    """What handlers note in any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()

    def note(self, one: Any) -> None:
        self._loop.call_soon_threadsafe(self.add, one)


@pytest.fixture
async def seen() -> Notes:
    return Notes()


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def makes_squares(space: Space) -> Worker:
    worker = space.worker()

    @worker.handler("part", result="1h", retry="none")
    async def make(n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return n * n

    return worker


@pytest.mark.parametrize(
    ("is_async", "in_flow"),
    [
        (True, True),
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in [(True, False), (False, True), (False, False)]),
    ],
)
async def test_all_results_come_in_the_order_of_the_jobs(
    space: Space, seen: Notes, *, is_async: bool, in_flow: bool
) -> None:
    worker = makes_squares(space)

    @worker.handler("join")
    def join(_: str, job: RunningJob) -> None:
        seen.note([(one.topic, one.id, one.outcome, one.result) for one in job.results()])

    @worker.handler("async-join")
    async def async_join(_: str, job: RunningJob) -> None:
        seen.note([(one.topic, one.id, one.outcome, one.result) async for one in job.results()])

    topic = "async-join" if is_async else "join"
    space.queue.configure("part", shards=4, result="1h", create=True)
    new = [NewJob(n, id=f"p{n}") for n in reversed(range(FEW))]
    async with space.serving(worker):
        if in_flow:
            with space.queue.flow("f") as flow:
                flow.enqueue(topic, "x", after=flow.enqueue_many("part", new))
        else:
            space.queue.enqueue_many("part", new)
            space.queue.enqueue(topic, "x", after=[("part", one.id) for one in new])
        await seen.count(1)
    assert seen.all == [[("part", f"p{n}", "done", n * n) for n in reversed(range(FEW))]]


async def test_they_are_read_in_batches_when_they_are_needed(
    space: Space, seen: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = makes_squares(space)
    calls: list[int] = []

    @worker.handler("join")
    def join(_: str, job: RunningJob) -> None:
        session = store_of(job.queue).session
        plain = session.call

        def counted(commands: Any, **more: Any) -> Any:
            calls.append(len(commands))
            return plain(commands, **more)

        monkeypatch.setattr(session, "call", counted)
        results = iter(job.results())
        before = len(calls)
        found = [next(results)]
        first = len(calls)
        found += results
        in_order = [one.result for one in found] == [n * n for n in range(COUNT)]
        seen.note((before, first <= 6, in_order, len(calls) - first))

    async with space.serving(worker):
        with space.queue.flow("f") as flow:
            flow.enqueue("join", "x", after=flow.enqueue_many("part", (NewJob(n) for n in range(COUNT))))
        await seen.count(1)
    # With the gate, parts of 500, 500 and 204, each of them 5, 5 and 3 times a batch.
    assert seen.all == [(0, True, True, 14)]
    assert max(calls) == 100


async def test_what_has_failed_has_its_outcome_and_raises_why(space: Space, seen: Notes) -> None:
    worker = makes_squares(space)

    @worker.handler("plain")
    async def plain(_: int) -> None: ...

    @worker.handler("join")
    def join(_: str, job: RunningJob) -> None:
        for one in job.results():
            try:
                seen.note((one.id, one.outcome, one.result))
            except (JobFailed, JobCancelled, NoResult, ResultTimeout) as error:
                seen.note((one.id, one.outcome, str(error)))

    space.queue.configure("part", result="1h", create=True)
    space.queue.configure("plain", create=True)
    space.queue.enqueue("part", -1, id="dead")
    space.queue.enqueue("part", 7, id="cancelled", delay="1h")
    space.queue.enqueue("part", -2, id="purged")
    space.queue.enqueue("plain", 1, id="plain")
    space.queue.enqueue("part", 3, id="done")
    names = [("part", "dead"), ("part", "cancelled"), ("part", "purged"), ("plain", "plain"), ("part", "done")]
    space.queue.enqueue("join", "x", id="join", after=names, on_failure="run")
    space.queue.cancel("part", "cancelled")
    async with space.serving(worker):
        found = await seen.count(5)
    assert [one[:2] for one in found] == [
        ("dead", "dead"), ("cancelled", "cancelled"), ("purged", "dead"), ("plain", "done"), ("done", "done"),
    ]  # fmt: skip
    assert found[0][2].endswith("was buried (exhausted): ValueError: negative")
    assert found[1][2] == "job 'cancelled' of topic 'part' was cancelled"
    assert found[3][2].startswith("topic 'plain' keeps no results; start a worker")
    assert found[4][2] == 9


@pytest.mark.parametrize(
    ("outcome", "kept", "error", "message"),
    [
        ("dead", StoredResult(EndState.DEAD, b"buried|Bury: no"), JobFailed, r"was buried \(buried\): Bury: no"),
        ("dead", StoredResult(EndState.DONE, b"1"), JobFailed, r"was buried \(dead\)"),
        ("purged", None, JobFailed, r"was buried \(purged\)"),
        ("archived", None, JobFailed, r"was buried \(archived\)"),
        ("cancelled", None, JobCancelled, "was cancelled"),
        ("replaced", None, JobCancelled, "was replaced"),
        ("replaced", StoredResult(EndState.DEAD, b"buried|of the new job"), JobCancelled, "was replaced"),
        ("expired", None, JobExpired, "would have started too late"),
        ("left", None, ResultGone, "neither a job"),
        ("lost", None, ResultGone, "neither a job"),
        (None, None, ResultTimeout, "was kicked since"),
    ],
)
def test_what_each_end_raises(
    outcome: str | None, kept: StoredResult | None, error: type[Exception], message: str
) -> None:
    found = failure_of(StoredParent("t", 0, "", "a", outcome), kept)
    assert type(found) is error
    assert re.search(message, str(found))


async def test_the_group_is_named_if_several_keep_results(space: Space, seen: Notes) -> None:
    worker, bills = space.worker(), space.worker("billing")

    @worker.handler("part", result="1h")
    async def make(_: int) -> str:
        return "made"

    @bills.handler("part", result="1h")
    async def bill(_: int) -> str:
        return "billed"

    @worker.handler("join")
    def join(_: str, job: RunningJob) -> None:
        def read(group: str | None) -> Any:
            (one,) = job.results(group=group)
            try:
                return one.result
            except (InvalidInput, UnknownGroup) as error:
                return type(error).__name__

        seen.note([read(group) for group in ("billing", "default", "none", None)])

    async with space.serving(worker, bills):
        made = space.queue.enqueue("part", 1)
        space.queue.enqueue("join", "x", after=made)
        assert await seen.count(1) == [["billed", "made", "UnknownGroup", "InvalidInput"]]


async def test_results_in_files_are_read_with_the_others(space: Space, seen: Notes, tmp_path: Path) -> None:
    worker = space.worker(codec="offload", offload=f"file://{tmp_path}", offload_over_bytes=1000)

    @worker.handler("part", result="1h")
    async def make(n: int) -> str:
        return "x" * (3000 if n % 2 else 3)

    @worker.handler("join")
    async def join(_: str, job: RunningJob) -> None:
        seen.note([len(one.result) async for one in job.results()])

    async with space.serving(worker):
        with space.queue.flow("f") as flow:
            flow.enqueue("join", "x", after=flow.enqueue_many("part", (NewJob(n) for n in range(20))))
        assert await seen.count(1) == [[3, 3000] * 10]
    assert len(files_in(tmp_path)) == 10


async def test_a_job_that_waited_for_none_has_none(space: Space, seen: Notes) -> None:
    worker = space.worker()

    @worker.handler("join")
    def join(_: str, job: RunningJob) -> None:
        seen.note(list(job.results()))

    async with space.serving(worker):
        space.queue.enqueue("join", "x")
        assert await seen.count(1) == [[]]


async def test_it_belongs_in_a_handler_and_blocks_no_event_loop(space: Space, seen: Notes) -> None:
    worker = space.worker()
    kept: list[Any] = []

    @worker.handler("join")
    async def join(_: str, job: RunningJob) -> None:
        kept.extend([job, job.results()])
        with pytest.raises(InvalidInput, match="write async for, not for"):
            list(job.results())
        seen.note(1)

    async with space.serving(worker):
        space.queue.enqueue("join", "x")
        await seen.count(1)
    job, results = kept
    with pytest.raises(StaleClaim, match="results belongs in its handler"):
        job.results()
    with pytest.raises(StaleClaim, match="belongs in its handler"):
        [one async for one in results]


@pytest.mark.thorough
async def test_it_says_so_if_the_job_was_taken_over_and_has_ended(space: Space, seen: Notes) -> None:
    worker = makes_squares(space)

    @worker.handler("join")
    def join(_: str, job: RunningJob) -> None:
        results = iter(job.results())
        next(results)
        with Queue(space.url, NAMESPACE, settings=SETTINGS) as other:
            other.delete_topic("join", force=True)
        with pytest.raises(StaleClaim, match="has ended elsewhere"):
            list(results)
        with pytest.raises(StaleClaim, match="has ended elsewhere"):
            list(job.results())
        seen.note(1)

    async with space.serving(worker):
        with space.queue.flow("f") as flow:
            flow.enqueue("join", "x", after=flow.enqueue_many("part", (NewJob(n) for n in range(700))))
        await seen.count(1)
