"""A topic is deleted, and perhaps made again, before the outbox knows what became of its jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamdq import Queue
from streamdq.errors import TopicNotEmpty
from streamdq.outbox.relay import Relay
from tests.outbox.orders import TOPIC, Shop, finish, receipts
from tests.servers import Server


def test_a_topic_with_kept_rows_is_not_deleted(shop: Shop, relay: Relay, queue: Queue) -> None:
    """Without receipts, jobs that have ended would count as lost."""
    relay._keep = True
    shop.order("a")
    relay.run(burst=True)
    assert finish(queue) == ["a"]
    with pytest.raises(TopicNotEmpty, match="receipts"):
        queue.delete_topic(TOPIC)
    relay.reconcile()
    assert (relay.totals.ended, relay.totals.put_back) == (1, 0)
    queue.delete_topic(TOPIC)
    assert TOPIC not in queue.stats().topics


def test_nor_is_one_whose_relay_was_killed(
    shop: Shop, relay: Relay, queue: Queue, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.configure(TOPIC, shards=1)
    shop.order("a")

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    assert relay._lead()
    monkeypatch.setattr(relay._rows, "write_states", die)
    with pytest.raises(KeyboardInterrupt):
        relay.run(burst=True)
    monkeypatch.undo()
    assert finish(queue) == ["a"]
    with pytest.raises(TopicNotEmpty, match="receipts"):
        queue.delete_topic(TOPIC)
    with Relay(shop.url, queue) as second:
        second.run(burst=True)
    assert finish(queue) == []
    assert (shop.states(), receipts(server)) == ({}, [])


def _deleted(queue: Queue) -> None:
    queue.delete_topic(TOPIC)
    queue.configure(TOPIC, shards=1)


def _in_other_shards(queue: Queue) -> None:
    queue.configure(TOPIC, shards=3)


@pytest.mark.parametrize("change", [_deleted, _in_other_shards])
@pytest.mark.parametrize("knows", [True, False], ids=["known", "unknown"])
def test_a_relay_that_was_stopped_meanwhile(
    shop: Shop,
    queue: Queue,
    server: Server,
    knows: bool,
    change: Callable[[Queue], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When it continues, neither receipts nor the epoch tell that another has relayed its row."""
    with (
        Queue(server.url) as one,
        Queue(server.url) as other,
        Relay(shop.url, one) as stopped,
        Relay(shop.url, other) as second,
    ):
        queue.configure(TOPIC, shards=1)
        if knows:
            one.stats(TOPIC)
        shop.order("o1")
        assert stopped._lead()
        original = stopped._rows.waiting

        def interrupted(*args: Any) -> Any:
            found = original(*args)
            monkeypatch.undo()
            shop.sql("UPDATE streamdq_outbox_relays SET until_ms = 0")
            assert second._lead()
            second._relay_all(lambda: False)
            assert finish(queue) == ["o1"]
            second._relay_all(lambda: False)
            assert shop.states() == {}
            change(queue)
            return found

        monkeypatch.setattr(stopped._rows, "waiting", interrupted)
        stopped._turn()
        assert finish(queue) == []
        assert receipts(server) == []
