"""What the garbage collector looks at while a worker runs: a full collection stops it, and its mover."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from tests.redis.harness import Seen, Space


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.thorough
@pytest.mark.parametrize("frozen_before", [False, True])
def test_a_worker_that_has_its_process_leaves_little_to_look_at(space: Space, seen: Seen, frozen_before: bool) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: int) -> None:
        seen.all.append((gc.get_freeze_count(), len(gc.get_objects()), gc.get_threshold()[0]))

    before = gc.get_threshold()
    space.queue.enqueue("t", 1)
    if frozen_before:
        gc.freeze()
    worker.run(burst=True)
    ((frozen, looked_at, young),) = seen.all
    assert looked_at < frozen / 10
    assert bool(gc.get_freeze_count()) == frozen_before, "by another, for the whole process"
    assert young > 10 * 700
    assert gc.get_threshold() == before


def test_in_a_thread_of_another_program_its_memory_is_left_alone(space: Space, seen: Seen) -> None:
    worker = space.worker()

    @worker.handler("t")
    async def handler(_body: int) -> None:
        seen.all.append(gc.get_freeze_count())

    space.queue.enqueue("t", 1)
    thread = threading.Thread(target=worker.run, args=(True,))
    thread.start()
    thread.join()
    assert seen.all == [0]
