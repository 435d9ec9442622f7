"""What plain reads send, in how many calls, and what they make of replies, error replies among them."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from redis.exceptions import ResponseError

from streamdq.config import Settings
from streamdq.errors import GroupMissing, ServerError
from streamdq.link.address import Target
from streamdq.link.session import Op, Request, Session
from streamdq.store import blocking, stream_entries
from streamdq.store.history import history_reads
from streamdq.store.jobs import ordered
from streamdq.store.stream_entries import PendingEntry
from streamdq.store.topics import group_consumers, shard_state
from streamdq.store.topics.group_consumers import GroupConsumer
from streamdq.times.clock import RedisClock

T = TypeVar("T")
NO_GROUP = ResponseError("NOGROUP No such key 'x' or consumer group 'g'")
NO_KEY = ResponseError("no such key")
WRONG = ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")


@pytest.fixture
def session() -> Session:
    return Session(Settings(url="memory://x"), "ns", RedisClock(), Target("node", "memory://x"))


def answered(op: Op[T], *calls: list[Any]) -> tuple[T, list[list[tuple[Any, ...]]]]:
    """What the operation returns when its calls get these replies, and what it sent in each."""
    sent: list[list[tuple[Any, ...]]] = []
    try:
        step = next(op)
        for replies in calls:
            assert isinstance(step, Request)
            sent.append([command.args for command in step.commands])
            step = op.send(replies)
    except StopIteration as stop:
        assert len(sent) == len(calls)
        return stop.value, sent
    raise AssertionError("it sends more than that")


def test_an_error_reply_is_raised(session: Session) -> None:
    with pytest.raises(ServerError):
        answered(ordered.by_rank(session, [("a", 0)], 3), [WRONG])
    with pytest.raises(ServerError):
        answered(stream_entries.entries(session, [("a", "-")], 3), [WRONG])


def test_of_streams_that_are_read_together_the_error_names_each(session: Session) -> None:
    with pytest.raises(ServerError, match=r"WRONGTYPE.*delete the one that is no stream: a b"):
        answered(blocking.read_new(session, ["a", "b"], {}, 1.0), [WRONG])


def test_the_mover_sees_heads_and_with_counters_what_is_open(session: Session) -> None:
    shards = [session.keys.shard("t", number) for number in (0, 1, 2)]
    heads = [[b"member", b"1500"], [], WRONG]
    found, sent = answered(shard_state.watch(session, shards, None), heads)
    assert found == shard_state.Watched([1500, None, None], None, [])
    assert [args[0] for args in sent[0]] == ["ZRANGE"] * 3
    replies = [*heads, [b"7", b"8999"], [b"0", b"2"], [None, b"0"], WRONG]
    found, sent = answered(shard_state.watch(session, shards, [["g"], ["g"], []]), replies)
    assert found == shard_state.Watched([1500, None, None], 7008, [True, False, False])
    assert sent[0][4:] == [
        ("HMGET", shards[0].counts, "ready:g", "running:g"),
        ("HMGET", shards[1].counts, "ready:g", "running:g"),
        ("HMGET", shards[2].counts, "ready:"),
    ]


def test_streams_without_the_group_have_nothing(session: Session) -> None:
    streams = ["a", "b"]
    groups = [b"name", b"g", b"consumers", 1, b"pending", 0, b"last-delivered-id", b"5-1"]
    assert answered(stream_entries.delivered(session, streams, "g"), [[groups], NO_KEY])[0] == ["5-1", "0-0"]
    assert answered(stream_entries.delivered(session, streams, "other"), [[groups], []])[0] == ["0-0", "0-0"]
    rows = [[b"5-1", b"me", 70, 1]]
    places = [("a", "-"), ("b", "(1-1")]
    found, sent = answered(stream_entries.pending(session, places, "g", 9), [rows, NO_GROUP])
    assert found == [[PendingEntry("5-1", "me", 70)], []]
    assert sent == [[("XPENDING", "a", "g", "-", "+", 9), ("XPENDING", "b", "g", "(1-1", "+", 9)]]


def test_consumers_before_and_after_redis_7_2(session: Session) -> None:
    old = [[b"name", b"me", b"pending", 1, b"idle", 5]]
    new = [[b"name", b"me", b"pending", 1, b"idle", 5, b"inactive", 9]]
    found, _ = answered(group_consumers.consumers(session, [("a", "g"), ("b", "g"), ("c", "g")]), [old, new, NO_GROUP])
    assert found == [[GroupConsumer("me", b"me", 1, 5)], [GroupConsumer("me", b"me", 1, 5)], []]


def test_what_is_unclaimed_of_a_group_that_is_gone(session: Session) -> None:
    shard = session.keys.shard("t", 0)
    assert answered(stream_entries.unclaimed(session, shard, "g"), [5, [2, b"1-1", b"2-1", []]])[0] == 3
    with pytest.raises(GroupMissing):
        answered(stream_entries.unclaimed(session, shard, "g"), [0, NO_GROUP])


def test_who_counts_as_alive(session: Session) -> None:
    minutes = 1000 * 60

    def row(name: bytes, pending: int, idle_ms: int) -> list[bytes | int]:
        return [b"name", name, b"pending", pending, b"idle", idle_ms, b"inactive", idle_ms]

    rows = [
        row(b"live", 0, 5), row(b"_reclaim", 3, 5), row(b"gone", 0, 3 * minutes), row(b"at work", 1, 9 * minutes),
    ]  # fmt: skip
    rows += [row(b"stands by", 0, 9 * minutes), row(b"moves", 0, 9 * minutes), row(b"missed its turn", 0, 9 * minutes)]
    alive = [[b"100", b"0"], b"moves", [b"missed its turn", b"94000", b"stands by", b"96000"]]
    found, sent = answered(group_consumers.live_consumers(session, [("a", "g"), ("b", "g")]), alive, [rows, NO_GROUP])
    assert found == [4, 0]
    assert sent[1] == [("XINFO", "CONSUMERS", "a", "g"), ("XINFO", "CONSUMERS", "b", "g")]


def test_a_history_that_grows_while_it_is_looked_at(session: Session) -> None:
    shard = session.keys.shard("t", 0)
    newest, oldest = [[b"9-1", [b"e", b"row"]]], [[b"2-1", [b"e", b"row"]]]
    grown = [b"7", newest, oldest, 4, b"1-1", b"8"]
    assert answered(history_reads.history_ends(session, shard), grown)[0] is None
    still = [b"8", newest, oldest, 4, b"1-1", b"8"]
    found, _ = answered(history_reads.history_ends(session, shard), still)
    assert found == history_reads.HistoryEnds("1-1", 8, "2-1", "9-1", 4)
    found, _ = answered(history_reads.history_ends(session, shard), [None, [], [], 0, None, None])
    assert found == history_reads.HistoryEnds("", 0, "", "", 0)


def test_an_entry_that_was_deleted_before_it_was_read_is_left_out(session: Session) -> None:
    shard = session.keys.shard("t", 0)
    reply = [[shard.ready.encode(), [[b"1-1", [b"e", b"x"]], [b"2-1", None]]]]
    found, sent = answered(blocking.read_streams(session, "g", "me", [shard], 5, None), [reply])
    assert found == {shard: ["m", b"1-1", b"x"]}
    assert sent[0][0][:6] == ("XREADGROUP", "GROUP", "g", "me", "COUNT", 5)
    assert answered(blocking.read_streams(session, "g", "me", [shard], 5, None), [None])[0] == {}
