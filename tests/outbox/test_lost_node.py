"""A Cluster has lost a node: the rows of its topics wait, and hold up no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamdq import Queue
from streamdq.errors import ServerUnavailable
from streamdq.outbox.relay import Relay
from streamdq.queue import store_of
from tests.outbox.orders import Shop, finish, receipts
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
