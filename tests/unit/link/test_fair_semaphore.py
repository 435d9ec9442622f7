"""First come, first served, and nobody's place gets lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from streamdq.link.fair_semaphore import FairSemaphore
from tests.servers import until


def _stands(line: FairSemaphore, count: int) -> bool:
    return len(line._waiting) == count


def test_who_comes_first_is_served_first() -> None:
    line, served = FairSemaphore(1), []
    assert line.enter(0)

    def come(number: int) -> None:
        assert line.enter(10)
        served.append(number)
        line.leave()

    threads = [threading.Thread(target=come, args=(number,)) for number in range(20)]
    for number, thread in enumerate(threads):
        thread.start()
        until(partial(_stands, line, number + 1), "it stands in line")
    line.leave()
    for thread in threads:
        thread.join()
    assert served == list(range(20))


def test_who_gives_up_keeps_no_place() -> None:
    line = FairSemaphore(1)
    assert line.enter(0)
    assert not line.enter(0.01)
    assert not line._waiting
    line.leave()
    assert line.enter(0)


def test_a_place_that_comes_as_its_waiter_gives_up_is_passed_on() -> None:
    line = FairSemaphore(1)
    assert line.enter(0)
    late = threading.Lock()
    late.acquire()
    line._waiting.append(late)
    line.leave()  # it is late's now, who has given up already
    line._give_up(late)
    assert line.enter(0)


def test_never_more_than_there_are_places() -> None:
    line, lock, inside, most, refused = FairSemaphore(3), threading.Lock(), 0, 0, 0

    def come(number: int) -> None:
        nonlocal inside, most, refused
        for _ in range(200):
            if not line.enter(0.0001 if number % 2 else 10):
                with lock:
                    refused += 1
                continue
            with lock:
                inside += 1
                most = max(most, inside)
            with lock:
                inside -= 1
            line.leave()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(come, range(12)))
    assert (inside, line._free, len(line._waiting)) == (0, 3, 0)
    assert 1 <= most <= 3
