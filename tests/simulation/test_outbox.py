"""The judge of the outbox notices each broken promise: histories in which one is, beside the same without."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.model import Broken
from tests.simulation.outbox import Row
from tests.simulation.test_model import NOW, Story


class Shop(Story):
    """A story with committed rows, which a relay puts in."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0
        self.outbox = self.model.outbox
        self.outbox.clock, self.outbox.keeps, self.outbox.late_s = lambda: self.passed_s, True, 1.0

    def commit(self, serial: int = 1, id: str = "a", delay_s: float = 0.0) -> None:
        self.outbox.rows[serial] = Row("t", id, None, self.passed_s, delay_s)

    def relay(self, code: int = 1, serial: int = 1, when: bytes = b"+0", id: bytes = b"a") -> None:
        job = id, when, b'\n\nnonc\n\n\n{"n":%d}' % serial, b"o:%d:nonc" % serial, b"0"
        self.call("relay", [1, code], b"", b"1", b"9", b"200", b"9", b"o", b"1", b"", *job)

    def tell(self, code: int, serial: int = 1) -> None:
        self.call("relayed", [code], b"1", b"a", b"o:%d:nonc" % serial)

    def done(self) -> None:
        self.claim()
        self.end("finish")

    def balanced(self, **left: str) -> None:
        self.outbox.at_rest(self.model, {int(serial.removeprefix("n")): state for serial, state in left.items()})


def put_back(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.call("FLUSHALL", b"OK")
    shop.configure()
    shop.tell(0)
    shop.relay()
    shop.done()
    shop.tell(2)
    shop.balanced()


def refused(shop: Shop) -> None:
    shop.enqueue()
    shop.commit(2)
    shop.relay(0, serial=2)
    shop.balanced(n2="refused")


def asked_again(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.relay(2)
    shop.done()
    shop.relay(2)
    shop.balanced(n1="kept")


def done_and_lost_before_anybody_looked(shop: Shop) -> None:
    """It runs once more."""
    shop.commit()
    shop.relay()
    shop.done()
    shop.call("FLUSHALL", b"OK")
    shop.configure()
    shop.relay()
    shop.done()
    shop.tell(2)
    shop.balanced()


def lost_when_a_later_row_had_its_id(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.done()
    shop.passed_s = 5.0
    shop.commit(2)
    shop.relay(serial=2)
    shop.call("FLUSHALL", b"OK")
    shop.configure()
    shop.relay(serial=2)
    shop.balanced(n2="kept")


def done_in_a_shard_that_was_deleted_since(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.done()
    shop.call("drop_shard", 1, b"2", b"0")
    shop.balanced()


def relayed_late(shop: Shop) -> None:
    shop.commit(delay_s=30.0)
    shop.passed_s = 20.0
    shop.relay(when=b"+10000")
    shop.commit(2, "b", delay_s=30.0)
    shop.passed_s = 60.0
    shop.relay(serial=2, id=b"b")


@pytest.mark.parametrize(
    "history",
    [
        put_back, refused, asked_again, done_and_lost_before_anybody_looked, lost_when_a_later_row_had_its_id,
        done_in_a_shard_that_was_deleted_since, relayed_late,
    ],
)  # fmt: skip
def test_what_is_promised_is_no_fault(history: Callable[[Shop], None]) -> None:
    history(Shop())


def not_committed(shop: Shop) -> None:
    shop.relay()


def relayed_twice(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.done()
    shop.relay()


def relayed_twice_since_it_was_cancelled(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.call("cancel", 1, b"", b"a")
    shop.relay()


def never_relayed(shop: Shop) -> None:
    shop.commit()
    shop.balanced()


def still_waiting(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.balanced(n1="waiting")


def taken_for_relayed(shop: Shop) -> None:
    shop.commit()
    shop.relay(2)


def due_early(shop: Shop) -> None:
    shop.commit(delay_s=30.0)
    shop.passed_s = 20.0
    shop.relay(when=b"+9000")


def due_late(shop: Shop) -> None:
    """Its delay counted from the relay."""
    shop.commit(delay_s=30.0)
    shop.passed_s = 20.0
    shop.relay(when=b"+30000")


def gone_while_open(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.tell(2)


def refused_though_nobody_had_its_id(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.done()
    shop.balanced(n1="refused")


def not_put_back(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.call("FLUSHALL", b"OK")
    shop.balanced(n1="kept")


def open_in_a_shard_that_was_deleted(shop: Shop) -> None:
    shop.commit()
    shop.relay()
    shop.call("drop_shard", 1, b"2", b"1")
    shop.balanced()


def done_and_deleted_and_not_put_back(shop: Shop) -> None:
    """Nobody can know any more that it was done."""
    shop.commit()
    shop.relay()
    shop.done()
    shop.call("drop_shard", 1, b"2", b"1")
    shop.balanced(n1="kept")


@pytest.mark.parametrize(
    "fault",
    [
        not_committed, relayed_twice, relayed_twice_since_it_was_cancelled, never_relayed, still_waiting,
        taken_for_relayed, due_early, due_late, gone_while_open, refused_though_nobody_had_its_id, not_put_back,
        open_in_a_shard_that_was_deleted, done_and_deleted_and_not_put_back,
    ],
)  # fmt: skip
def test_a_broken_promise_of_the_outbox_is_noticed(fault: Callable[[Shop], None]) -> None:
    with pytest.raises(Broken):
        fault(Shop())


def test_rows_that_are_not_kept_may_lose_their_jobs() -> None:
    shop = Shop()
    shop.outbox.keeps = False
    shop.commit()
    shop.relay()
    shop.call("FLUSHALL", b"OK")
    shop.balanced()
    assert shop.now == NOW
