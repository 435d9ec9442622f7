"""Which sentinel is believed, and what the watch of the primary leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.sentinel import MasterNotFoundError

from streamdq.link.primary import Address, Asking, AsyncSentinel, Epoch, PrimaryWatch, Sentinel
from tests.waiting import HANG_S, until

OLD, NEW = ("127.0.0.1", 1), ("127.0.0.1", 2)


class Fake:
    """A sentinel that names this primary, or raises the error."""

    def __init__(self, address: Address = NEW, epoch: int = 1, error: Exception | None = None, **state: Any) -> None:
        self.asked = 0
        self.error = error
        self.state: dict[str, Any] = {
            "ip": address[0], "port": address[1], "config-epoch": epoch, "is_master": True, "is_sdown": False,
            "is_odown": False, "num-other-sentinels": 2, **state,
        }  # fmt: skip

    def sentinel_masters(self) -> dict[str, dict[str, Any]]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return {"jobs": self.state}


class Awaited(Fake):
    async def sentinel_masters(self) -> dict[str, dict[str, Any]]:  # type: ignore[override]
        return super().sentinel_masters()


def sentinels(*logins: list[Fake], epoch: Epoch | None = None) -> Sentinel:
    made = Sentinel([])
    made.asking = Asking(logins, epoch or Epoch())
    return made


@pytest.mark.parametrize(
    "bad",
    [
        Fake(error=redis.ConnectionError("refused")),
        Fake(error=redis.TimeoutError("hangs")),
        Fake(error=OSError("unreachable")),
        Fake(error=redis.ResponseError("unknown command 'SENTINEL'")),  # a plain Redis
        Fake(error=redis.exceptions.InvalidResponse("HTTP/1.1")),
        Fake(error=redis.AuthenticationError("NOAUTH")),
        Fake(OLD, is_sdown=True),
        Fake(OLD, is_odown=True),
        Fake(OLD, is_master=False),  # it names a replica
    ],
)
def test_the_next_one_is_asked(bad: Fake) -> None:
    good, other = Fake(NEW), Fake(NEW)
    asked = sentinels([bad, good, other])
    assert [asked.discover_master("jobs") for _ in range(3)] == [NEW] * 3
    assert (good.asked, other.asked) == (2, 1), "another one first each time"
    assert bad.asked == (1 if bad.error else 2), "one that fails is asked last for a while"


def test_a_service_that_none_knows() -> None:
    with pytest.raises(MasterNotFoundError, match=r"No master found for 'others': .*ConnectionError"):
        sentinels([Fake(error=redis.ConnectionError("refused")), Fake()]).discover_master("others")


def test_one_that_is_cut_off_is_not_believed_once_another_has_reported_a_failover() -> None:
    stale, good = Fake(OLD, epoch=4), Fake(NEW, epoch=5)
    epoch = Epoch()
    watched = sentinels([stale, good], epoch=epoch)
    asked = sentinels([stale, good], epoch=epoch)
    assert asked.discover_master("jobs") == OLD, "nobody can know yet"
    assert watched.discover_master("jobs") == OLD
    assert watched.discover_master("jobs") == NEW, "by turns"
    assert asked.discover_master("jobs") == NEW
    assert watched.discover_master("jobs") == NEW, "the turn of the stale one"
    assert watched.discover_master("jobs") == NEW


def test_an_older_epoch_is_believed_if_all_have_one() -> None:
    """As after the sentinels were set up anew."""
    epoch = Epoch()
    epoch.highest = 9
    one, other = Fake(OLD, epoch=1), Fake(NEW, epoch=2)
    asked = sentinels([one, other], epoch=epoch)
    assert asked.discover_master("jobs") == NEW
    assert epoch.highest == 2
    assert asked.discover_master("jobs") == NEW


def test_by_turns_each_is_asked_with_the_login_that_works() -> None:
    wrong = [Fake(error=redis.AuthenticationError("WRONGPASS")) for _ in range(3)]
    right = [Fake() for _ in range(3)]
    asked = sentinels(wrong, right)
    for _ in range(7):
        asked.discover_master("jobs")
    assert [one.asked for one in right] == [3, 2, 2]
    assert [one.asked for one in wrong] == [1, 1, 1]


async def test_the_same_in_asyncio() -> None:
    made = AsyncSentinel([])
    made.asking = Asking([[Awaited(error=redis.ConnectionError("refused")), Awaited(NEW)]], Epoch())
    assert await made.discover_master("jobs") == NEW
    with pytest.raises(MasterNotFoundError):
        await made.discover_master("others")


def left(watch: PrimaryWatch, address: Address = OLD) -> bool:
    return watch.has_left(SimpleNamespace(host=address[0], port=address[1]))


def watch_of(find: Callable[[], Address]) -> tuple[PrimaryWatch, list[str]]:
    closed: list[str] = []
    return PrimaryWatch(find, lambda: closed.append("closed")), closed


def is_idle() -> bool:
    return not any(thread.name == "streamdq-primary" for thread in threading.enumerate())


def test_a_watch_that_is_closed_while_it_asks_closes_what_it_has_opened() -> None:
    began, go_on = threading.Event(), threading.Event()

    def find() -> Address:
        began.set()
        go_on.wait(HANG_S)
        return NEW

    watch, closed = watch_of(find)
    assert not left(watch), "not yet known"
    assert began.wait(HANG_S)
    watch.close()
    assert closed == ["closed"]
    go_on.set()
    until(lambda: closed == ["closed", "closed"], "the thread closes them again")
    until(is_idle, "the thread has ended")
    assert left(watch), "and whoever goes on calling knows"


def test_a_watch_that_finds_none_leaves_everyone_where_they_are() -> None:
    def find() -> Address:
        raise MasterNotFoundError

    watch, closed = watch_of(find)
    assert not left(watch)
    until(is_idle, "the thread has ended")
    assert not left(watch)
    assert closed == []


def test_a_child_asks_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent's thread that was asking is not there."""
    go_on = threading.Event()
    watch, _ = watch_of(lambda: (go_on.wait(HANG_S), NEW)[1])
    assert not left(watch)
    watch.after_fork()
    monkeypatch.setattr(watch, "_find", lambda: NEW)
    left(watch)
    until(lambda: left(watch), "the child knows")
    go_on.set()
    until(is_idle, "the threads have ended")
