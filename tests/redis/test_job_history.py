"""What became of one job, with what failed in each attempt."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from streamdq import Bury, Job, Retry, Snooze, UnknownTopic, Worker
from tests.redis.harness import Space
from tests.servers import Server


def refused(text: str) -> str:
    if text:
        raise ValueError("not swordfish again")
    return text


class Body(BaseModel):
    text: Annotated[str, AfterValidator(refused)]


async def deep() -> None:
    await asyncio.sleep(0)
    raise ConnectionError("no answer from the bank")


async def test_each_attempt_that_failed_tells_what_failed(space: Space) -> None:
    worker = space.worker()

    @worker.handler("t", retry="0 0 0 0")
    async def handle(_body: Any, job: Job) -> None:
        if job.attempt == 1:
            await deep()
        if job.attempt == 2:
            raise Retry("1ms", "busy")
        if job.attempt == 3 and job.snoozed == 0:
            raise Snooze("1ms", "not yet")
        if job.attempt == 3:
            raise KeyError("x")
        if job.attempt == 4:
            raise Bury("no such order")

    space.queue.enqueue("t", 1, id="j")
    space.queue.enqueue("t", 1, id="other")
    await space.burst(worker)
    space.queue.kick("t", "j")
    await space.burst(worker)
    events = space.queue.job_history("t", "j")
    assert [(one.row.event, one.row.error, one.message) for one in events] == [
        ("retry", "ConnectionError", "ConnectionError: no answer from the bank"),
        ("retry", "Retry", "Retry: busy"),
        ("released", "Snooze", ""),
        ("retry", "KeyError", "KeyError: 'x'"),
        ("dead", "Bury", "no such order"),
        ("kicked", "", ""),
        ("done", "", ""),
    ]
    traced = {one.row.attempt: one.traceback for one in events if one.traceback}
    assert list(traced) == [1, 3]
    handled, raised = traced[1].index(", in test_each_attempt"), traced[1].index(", in deep\n")
    assert handled < raised
    assert traced[1].endswith("\nConnectionError: no answer from the bank")


@pytest.mark.parametrize("show", [True, False])
async def test_a_worker_that_shows_no_errors_keeps_none(space: Space, redis_server: Server, show: bool) -> None:
    """Neither with the history nor with the job: whatever the handler, its model or its validator says."""
    worker = Worker(space.url, "test", settings=space.settings, show_errors=show)

    @worker.handler("t", retry="none")
    async def handle(_body: Any, job: Job) -> None:
        if job.id == "bury":
            raise Bury("swordfish")
        if job.id == "model":
            Body.model_validate({"text": "swordfish"})
        raise RuntimeError("swordfish")

    @worker.handler("typed")
    async def typed(_body: Body) -> None:
        raise AssertionError

    for id in ("fails", "bury", "model"):
        space.queue.enqueue("t", 1, id=id)
    space.queue.enqueue("typed", {"text": "x"}, id="invalid")
    await space.burst(worker)
    assert len(space.queue.dead("t")) + len(space.queue.dead("typed")) == 4
    with redis_server.client() as client:
        kept = [str(client.dump(key)) for key in client.scan_iter("*") if b":jobs" not in key]
        found = sum("swordfish" in text for text in kept)
        failures = list(client.scan_iter("*:failures"))
    assert (bool(found), bool(failures)) == (show, show)
    if not show:
        errors = {job.id: job.groups["default"].error for job in space.queue.dead("t")}
        assert errors["fails"] == "RuntimeError: its message is not kept"
        assert [one.row.error for one in space.queue.job_history("t", "fails")] == ["RuntimeError"]
        assert [one.row.error for one in space.queue.job_history("t", "bury")] == ["Bury"]


@pytest.mark.parametrize("shards", [1, 4])
def test_it_is_found_in_any_shard_and_page(space: Space, monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    monkeypatch.setattr("streamdq.operations.history.job_history._PAGE", 3)
    space.queue.configure("t", shards=shards, retry="none", create=True)
    for number in range(20):
        space.queue.enqueue("t", 1, id=f"j{number}", key=f"key {number}")
        with space.queue.take("t") as claim:
            assert claim is not None
            claim.fail(f"Failed: {number}")
    for number in (0, 7, 19):
        (event,) = space.queue.job_history("t", f"j{number}")
        assert (event.row.id, event.message, event.traceback) == (f"j{number}", f"Failed: {number}", "")
    assert space.queue.job_history("t", "none") == []


def test_an_unknown_topic(space: Space) -> None:
    with pytest.raises(UnknownTopic):
        space.queue.job_history("none", "j")
