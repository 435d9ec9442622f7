"""The model notices each broken promise: histories in which one is, beside the same without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.model import Broken, Call, Model

KEYS = ["ns:{t:0}:jobs"]
NOW = 1_800_000_000_000


class Story:
    """Calls as Redis would have carried them out, one by one."""

    def __init__(self) -> None:
        self.model = Model()
        self.now = NOW
        self.call("configure_shard", [1, b"g", b"", 1, 1], b"1", b"1", b"g", b"")

    def call(self, name: str, reply: Any, *args: bytes) -> None:
        self.model.applied(Call(len(self.model.calls) + 1, self.now, name, KEYS, args, reply))

    def enqueue(self, serial: int = 1, when: bytes = b"+0", id: bytes = b"a") -> None:
        body = b'\n\nnonc\n\n\n{"n":%d}' % serial
        self.call("enqueue", [1, self.now, 1], b"", b"1", b"9", id, when, body)

    def claim(self, serial: int = 1, consumer: bytes = b"c1", claim: bytes = b"1-0", id: bytes = b"a") -> None:
        record = b'000000000001%d\n%d\n\n\nnonc\n\n\n{"n":%d}' % (self.now, self.now, serial)
        reply = [1, self.now, 1000, 0, [claim], [id], [record], 0, b"1", 0, 0]
        self.call("claim", reply, b"", b"g", consumer, b"1", b"1000", b"0", b"1")

    def end(self, name: str, *more: bytes, claim: tuple[bytes, bytes] = (b"1-0", b""), refused: bool = False) -> None:
        reply = [self.now, 1] if refused else [self.now]
        self.call(name, reply, b"", b"g", b"0", b"1", *claim, b"a", b"", *more)

    def start(self, serial: int = 1, attempt: int = 1, consumer: str = "c1") -> None:
        self.model.started(serial, attempt, "g", consumer)

    def rest(self, *stored: str) -> None:
        self.model.at_rest(["g"], [(("t", 0), id) for id in stored])


def test_a_life_without_fault() -> None:
    story = Story()
    story.enqueue()
    story.model.acknowledged(1)
    story.claim()
    story.start()
    story.end("retry", b"1000", b"1", b"no")
    story.now += 1000
    story.claim(claim=b"1-0|2-0|2|1|0|")
    story.start(attempt=2)
    story.end("finish", claim=(b"1-0", b"2-0"))
    story.rest()


def never_put_in(story: Story) -> None:
    story.model.acknowledged(1)


def never_done(story: Story) -> None:
    story.enqueue()
    story.rest("a")


def left_behind(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("finish")
    story.rest("a")


def claimed_early(story: Story) -> None:
    story.enqueue(when=b"+1000")
    story.claim()


def retried_early(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("retry", b"1000", b"1", b"no")
    story.now += 999
    story.claim(claim=b"1-0|2-0|2|1|0|")


def claimed_twice(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.claim(consumer=b"c2", claim=b"1-0|2-0|2|0|0|")


def claimed_when_done(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("finish")
    story.claim(claim=b"1-0|2-0|2|0|0|")


def claimed_when_cancelled(story: Story) -> None:
    story.enqueue()
    story.call("cancel", 1, b"", b"a", b"0", b"1", b"g")
    story.claim()


def started_when_cancelled(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.end("release")
    story.call("cancel", 1, b"", b"a", b"0", b"1", b"g")
    story.start()


def started_when_taken_over(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.now += 1000
    story.claim(consumer=b"c2", claim=b"1-0|2-0|2|0|1|")
    story.start(consumer="c1")


def started_as_another_attempt(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.start(attempt=2)


def finished_by_who_lost_it(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.now += 1000
    story.claim(consumer=b"c2", claim=b"1-0|2-0|2|0|1|")
    story.end("finish")


def cancelled_while_it_ran(story: Story) -> None:
    story.enqueue()
    story.claim()
    story.call("cancel", 1, b"", b"a", b"0", b"1", b"g")


def not_found_by_cancel(story: Story) -> None:
    story.enqueue()
    story.call("cancel", 0, b"", b"a", b"0", b"1", b"g")


def kicked_without_being_dead(story: Story) -> None:
    story.enqueue()
    story.call("kick", 1, b"", b"g", b"0", b"0", b"a")


def put_over_another(story: Story) -> None:
    story.enqueue(1)
    story.enqueue(2)


FAULTS = [
    never_put_in, never_done, left_behind, claimed_early, retried_early, claimed_twice, claimed_when_done,
    claimed_when_cancelled, started_when_cancelled, started_when_taken_over, started_as_another_attempt,
    finished_by_who_lost_it, cancelled_while_it_ran, not_found_by_cancel, kicked_without_being_dead, put_over_another,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_promise_is_noticed(fault: Callable[[Story], None]) -> None:
    with pytest.raises(Broken):
        fault(Story())


def test_what_redis_lost_is_asked_of_nobody() -> None:
    """A failover takes the last calls back; whoever held a claim may not know yet."""
    story = Story()
    story.enqueue()
    kept = len(story.model.calls)
    story.claim()
    story.enqueue(2, id=b"b")
    story.model.acknowledged(2)
    story.model.forget(kept)
    story.start()
    story.claim(consumer=b"c2")
    story.end("finish")
    story.rest()
