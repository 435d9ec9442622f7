"""Each attempt, and each call of a function that is called with one, starts in a context of its own."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from streamdq import Bury, Job, RunningJob
from streamdq.operations.attempts.ends import AttemptResult, End
from streamdq.threads import HandlerThreads
from streamdq.worker.middleware import Attempt, AttemptEnd, listen, tell
from streamdq.worker.reports import DeadLetterNotices
from tests.unit.worker.rig import Rig, held, member_of, running_job

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


async def test_a_job_that_waited_for_a_thread_which_was_given_up() -> None:
    """The thread's end makes room, and its context must not be that of the job which starts then."""
    began, goes_on, found = threading.Event(), threading.Event(), []

    def handle(body: int) -> None:
        found.append(tenant.get())
        tenant.set(f"of {body}")
        if body == 1:
            began.set()
            goes_on.wait()

    async def around(attempt: Attempt, call_next: Any) -> None:
        found.append(tenant.get())
        tenant.set(f"around {attempt.jobs[0].id}")
        await call_next()

    rig = Rig(handle, concurrency=1, middleware=[around])
    first, second = held("1"), held("2")
    rig.runner.take([first])
    await asyncio.to_thread(began.wait)
    rig.runner.take([second])
    rig.deadlines.lost(first)
    await rig.have_ended(1)
    goes_on.set()
    assert await rig.have_ended(2) == {"1": AttemptResult.RELEASED, "2": AttemptResult.DONE}
    assert found == ["nobody", "around 1", "nobody", "around 2"]
    await rig.close()


async def test_what_was_set_for_the_runner_is_found_by_every_attempt() -> None:
    found = []

    async def handle(_body: int) -> None:
        found.append(tenant.get())
        tenant.set("mine")

    rig = Rig(handle, concurrency=1)
    rig.runner.context.run(tenant.set, "of the worker")
    await rig.run(held("1"), held("2"))
    assert found == ["of the worker", "of the worker"]


def test_calls_of_one_thread() -> None:
    threads = HandlerThreads(1)

    def call() -> str:
        before = tenant.get()
        tenant.set("somebody")
        return before

    assert [threads.submit(call).result(60) for _ in range(2)] == ["nobody", "nobody"]
    threads.shutdown()


@pytest.mark.parametrize("in_thread", [False, True])
async def test_calls_of_an_on_dead_function(in_thread: bool) -> None:
    found: list[str] = []
    reported = asyncio.Event()
    loop = asyncio.get_running_loop()

    def note(_job: Job) -> None:
        found.append(tenant.get())
        tenant.set("somebody")
        if len(found) == 2:
            loop.call_soon_threadsafe(reported.set)

    async def note_here(job: Job) -> None:
        note(job)

    notices = DeadLetterNotices([note if in_thread else note_here], member_of(None))
    for number in range(2):
        notices.put(held(str(number)).job)
    await reported.wait()
    await notices.close(60)
    assert found == ["nobody", "nobody"]


def test_calls_of_an_on_end_function() -> None:
    found = []

    def note(_end: AttemptEnd) -> None:
        found.append(tenant.get())
        tenant.set("somebody")

    ends = [End(held(str(number)), AttemptResult.DONE) for number in range(2)]
    for end in ends:
        attempt = Attempt("t", "g", [running_job(end.held.job.id)], 0)
        attempt.on_end(note)
        listen(attempt, [end.held])
    tell(ends, set())
    assert found == ["nobody", "nobody"]


async def test_a_touch_from_a_thread_leaves_its_context_there() -> None:
    seen = []

    def handle(_body: int, job: RunningJob) -> None:
        tenant.set("somebody")
        job.touch()

    rig = Rig(handle)
    touches: Any = SimpleNamespace(put=lambda *_: seen.append(tenant.get()))
    rig.deadlines._touches = touches
    await rig.run(held("1"))
    assert seen == ["nobody"]


def test_without_uvloop_no_exception_comes_from_its_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from streamdq import Queue, Worker

    monkeypatch.setitem(sys.modules, "uvloop", None)
    worker = Worker("memory://no-uvloop")
    raised: list[BaseException] = []

    @worker.middleware
    async def keep(_attempt: Attempt, call_next: Any) -> None:
        try:
            await call_next()
        except Bury as error:
            raised.append(error)
            raise

    @worker.handler("t")
    async def fail(_body: int) -> None:
        raise Bury("as told")

    with Queue("memory://no-uvloop") as queue:
        queue.enqueue("t", 1)
        worker.run(burst=True)
    (error,) = raised
    assert error.__context__ is None
