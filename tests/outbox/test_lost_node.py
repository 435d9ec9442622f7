"""A Cluster has lost a node: the rows of its topics wait, and hold up no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamdq import Queue
from streamdq.errors import ServerUnavailable
from streamdq.outbox.redis_side import FencedOff
from streamdq.outbox.relay import Relay
from streamdq.queue import store_of
from tests.outbox.orders import TOPIC, Shop, finish, receipts
from tests.servers import Server

Lose = Callable[[], None]


@pytest.fixture
def lose(relay: Relay, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Lose:
    """From now on every call that concerns the topic `lost` fails."""
    redis = relay._redis

    def failing(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(topic: str, *args: Any) -> Any:
            if topic == "lost":
                raise ServerUnavailable("its node is lost")
            return original(topic, *args)

        return call

    def begin() -> None:
        monkeypatch.setattr(store_of(queue).session, "is_cluster", True)
        for name in ("enqueue", "forget", "fates"):
            monkeypatch.setattr(redis, name, failing(getattr(redis, name)))

    return begin


def test_receipts_that_can_not_be_cleared_hold_up_no_others(
    shop: Shop, relay: Relay, queue: Queue, server: Server, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do they when another relay takes over."""
    shop.order("a", topic="lost")
    assert relay._lead()
    lose()
    monkeypatch.setattr(relay._redis, "enqueue", type(relay._redis).enqueue.__get__(relay._redis))
    relay._relay_all(lambda: False)
    assert shop.states() == {"relayed": 1}
    assert len(receipts(server)) == 1
    assert relay._lead()
    shop.order("b", topic="there")
    relay._relay_all(lambda: False)
    assert finish(queue, "there") == ["b"]
    monkeypatch.undo()
    relay._held = {}
    relay._turn()
    relay.run(burst=True)
    assert finish(queue, "lost") == ["a"]
    assert (shop.states(), receipts(server)) == ({}, [])


@pytest.mark.parametrize("keep", [False, True], ids=["", "keep"])
def test_a_call_that_arrives_late_has_no_effect(
    shop: Shop, relay: Relay, queue: Queue, server: Server, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """The connection to its node was cut. Meanwhile another call has done its work, and the job has ended."""
    relay._keep = keep
    late: list[Any] = []
    enqueue = relay._redis.enqueue

    def cut_off_once(*args: Any) -> Any:
        if not late:
            late.append(enqueue(*args))
            raise ServerUnavailable("its node is lost")
        return enqueue(*args)

    monkeypatch.setattr(store_of(queue).session, "is_cluster", True)
    monkeypatch.setattr(relay._redis, "enqueue", cut_off_once)
    queue.configure(TOPIC, create=True)
    shop.order("a")
    relay._turn()
    assert late
    relay._held = {}
    relay._turn()
    assert finish(queue) == ["a"]
    for _ in relay._check_kept():
        relay._relay_some()
    relay._relay_some()
    assert (shop.states(), receipts(server)) == ({}, [])
    with pytest.raises(FencedOff):
        relay._run(late[0])
    assert finish(queue) == []


def test_kept_rows_that_can_not_be_looked_at_hold_up_no_others(
    shop: Shop, relay: Relay, queue: Queue, server: Server, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay._keep = True
    shop.order("a", topic="lost")
    shop.order("b", topic="there")
    relay.run(burst=True)
    assert finish(queue, "there") == ["b"]
    lose()
    with pytest.raises(ServerUnavailable):
        relay.reconcile()
    assert shop.states() == {"kept": 1}, "the other has ended"
    monkeypatch.undo()
    assert finish(queue, "lost") == ["a"]
    relay._held = {}
    relay.reconcile()
    assert (shop.states(), receipts(server)) == ({}, [])
