"""No script call gets more to do than takes a few milliseconds: what is large goes in parts. Counted, not timed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from streamdq import NewJob
from streamdq.link.session import Op
from streamdq.operations.dead_letters.kick_throttle import SLICE
from streamdq.store.batches import MAX_BYTES, REPLACED_BYTES
from streamdq.store.scripts import Scripts
from streamdq.times.clock import ManualClock
from tests.redis.harness import Seen, Space
from tests.waiting import eventually

LARGE = "x" * 100_000


class Calls:
    """Script calls of this process, by name: the arguments of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._all: list[tuple[str, list[Any]]] = []
        original = Scripts._run

        def run(
            scripts: Scripts, name: str, keys: Sequence[str], args: Iterable[Any], *rest: Any, **options: Any
        ) -> Op[Any]:
            arguments = list(args)
            self._all.append((name, arguments))
            return original(scripts, name, keys, arguments, *rest, **options)

        monkeypatch.setattr(Scripts, "_run", run)

    def of(self, name: str) -> list[list[Any]]:
        return [arguments for each, arguments in self._all if each == name]

    def clear(self) -> None:
        self._all.clear()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def bytes_in(arguments: list[Any]) -> int:
    return sum(len(value) for value in arguments if isinstance(value, bytes | str))


@pytest.mark.parametrize("on_conflict", ["reject", "replace"])
def test_large_jobs_go_in_by_parts(space: Space, calls: Calls, on_conflict: Any) -> None:
    jobs = [NewJob(LARGE, id=f"j{n}", delay="1h") for n in range(20)]
    for existing in ([], [] if on_conflict == "replace" else [f"j{n}" for n in range(20)]):
        calls.clear()
        result = space.queue.enqueue_many("t", jobs, on_conflict=on_conflict)
        assert (result.created, result.existing) == (20 - len(existing), existing)
        sent = calls.of("enqueue") + calls.of("replace")
        most = REPLACED_BYTES if on_conflict == "replace" else MAX_BYTES
        assert len(sent) >= 20 * len(LARGE) // most
        assert max(map(bytes_in, sent)) < most + 1000


def test_a_replacement_looks_at_each_group_so_that_many_make_it_smaller(space: Space, calls: Calls) -> None:
    space.queue.configure("t", groups=[f"g{n}" for n in range(30)])
    jobs = [NewJob("small", id=f"j{n}", delay="1h") for n in range(100)]
    assert space.queue.enqueue_many("t", jobs, on_conflict="replace").created == 100
    assert space.queue.enqueue_many("t", jobs, on_conflict="replace").created == 100
    assert [(len(arguments) - 4) // 3 for arguments in calls.of("replace")] == [50, 50, 50, 50]


@pytest.mark.parametrize("on_conflict", ["reject", "replace", "postpone"])
def test_jobs_of_keys_are_lined_up_in_parts(space: Space, calls: Calls, on_conflict: Any) -> None:
    space.queue.configure("t", groups=["a", "b", "c"], key_concurrency=1)
    calls.clear()
    jobs = [NewJob(n, id=f"j{n}", key=f"k{n % 7}", delay="1h") for n in range(500)]
    assert space.queue.enqueue_many("t", jobs, on_conflict=on_conflict).created == 500
    assert len(calls.of("enqueue") + calls.of("replace") + calls.of("enqueue_unique")) == 15


async def test_large_jobs_that_a_blocked_read_brings_all_run(space: Space, seen: Seen) -> None:
    worker = space.worker(concurrency=50)

    @worker.handler("t")
    async def handler(body: str) -> None:
        seen.add(len(body))

    async with space.serving(worker):
        at_ms = space.queue.enqueue("other", 1).created_ms + 200
        space.queue.enqueue_many("t", [NewJob(LARGE, at=at_ms) for _ in range(12)])
        assert await seen.count(12) == [len(LARGE)] * 12
    assert space.stats().done == 12


async def test_all_claims_whose_ttr_passed_are_taken_over_in_one_look(
    stepped: Space, clock: ManualClock, calls: Calls
) -> None:
    """However many calls that takes: with this clock there is no other look."""
    stepped.queue.enqueue_many("t", [NewJob(n) for n in range(250)] + [NewJob(LARGE) for _ in range(5)])
    held = [stepped.queue.take("t") for _ in range(255)]
    assert None not in held
    worker = stepped.worker()

    @worker.handler("another")
    async def handler(_body: int) -> None:
        pass

    async with stepped.serving(worker):
        clock.advance("60s")
        await eventually(lambda: stepped.stats().reclaimed == 255, "all are taken over")
    assert len(calls.of("reclaim")) <= 12


def bury(space: Space, count: int) -> None:
    space.queue.enqueue_many("t", [NewJob(n, id=f"j{n}", retry="none") for n in range(count)])
    while claim := space.queue.take("t", timeout=0):
        claim.bury("no")


@pytest.mark.thorough
async def test_many_are_kicked_as_fast_as_they_are_claimed(
    space: Space, calls: Calls, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "streamdq.operations.dead_letters.kick_throttle._PATIENCE_S", 60.0
    )  # a busy machine's claims take long
    monkeypatch.setattr("streamdq.operations.dead_letters.kick_throttle._LONGEST_S", 60.0)
    monkeypatch.setattr("streamdq.worker.slots._HOLD_S", 60)  # what is handed back is ready once more
    bury(space, 300)
    worker = space.worker(concurrency=5)
    most = 0

    @worker.handler("t")
    async def handler(body: int) -> None:
        nonlocal most
        most = max(most, await asyncio.to_thread(lambda: space.stats().ready))
        seen.add(body)

    calls.clear()
    async with space.serving(worker):
        assert await asyncio.to_thread(space.queue.kick, "t") == 300
        assert sorted(await seen.count(300)) == list(range(300))
    assert most <= SLICE + SLICE // 2
    assert len(calls.of("kick")) == 300 / SLICE


@pytest.mark.thorough
def test_dead_letters_are_purged_in_slices_by_the_number_of_groups(space: Space, calls: Calls) -> None:
    bury(space, 120)
    assert space.queue.purge("t", all=True) == 120
    assert len(calls.of("purge")) == 2
    bury(space, 120)
    space.queue.configure("t", groups=["default", *(f"g{n}" for n in range(29))])
    assert space.queue.purge("t", all=True) == 120
    assert len(calls.of("purge")) == 2 + 3


def test_an_audit_reads_pages(space: Space, calls: Calls) -> None:
    space.queue.enqueue_many("t", [NewJob(n) for n in range(450)])
    space.queue.enqueue_many("t", [NewJob(n, delay="1h") for n in range(450)])
    calls.clear()
    assert space.queue.audit("t").balanced
    assert 3 <= len(calls.of("audit_jobs")) <= 5
    assert 2 <= len(calls.of("audit_bucket")) <= 3
    assert not calls.of("get")
