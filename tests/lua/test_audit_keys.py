"""audit_keys: keys that would never let their next job start, a page at a time."""

from __future__ import annotations

from tests.lua.shard import Shard


def walk(shard: Shard, limit: int = 250) -> list[tuple[str, str]]:
    found, last = [], b""
    while True:
        last, page = shard.run(shard.scripts.audit_keys(shard.k, last, limit))
        found += page
        if not last:
            return sorted(found)


def admitted(shard: Shard) -> list[bytes]:
    found: list[bytes] = shard.redis("ZRANGE", shard.k.key_admitted, 0, -1)
    return found


def test_what_waits_behind_a_job_of_its_key_is_right(two: Shard) -> None:
    two.topic(key_concurrency=2)
    two.enqueue(*(f"j{n}" for n in range(5)), key="a")
    two.enqueue("alone", key="b")
    two.move()
    two.claim(group="a")
    assert walk(two) == []


def test_a_key_that_waits_for_its_pace_is_right(shard: Shard) -> None:
    shard.topic(key_rate="1/10m")
    shard.enqueue("j1", "j2", "j3", key="a")
    shard.move()
    shard.claim()
    assert walk(shard) == []


def test_a_paused_key_is_right(shard: Shard) -> None:
    settings = shard.topic(key_concurrency=1)
    shard.enqueue("j1", "j2", key="a")
    shard.move()
    row = shard.take()
    shard.run(shard.scripts.pause_key(shard.k, settings, "a", True))
    shard.finish(row)
    assert shard.redis("ZCARD", shard.k.key_waiting) == 1
    assert walk(shard) == []


def test_a_free_place_that_nobody_gets_is_found(two: Shard) -> None:
    two.topic(key_concurrency=1)
    two.enqueue("first", "second", key="a")
    two.checked = False
    (ticket,) = [one for one in admitted(two) if one.startswith(b"b\x1f")]
    two.redis("ZREM", two.k.key_admitted, ticket)
    assert walk(two) == [("free", "second")]


def test_what_is_left_of_a_leaving_group_is_right(two: Shard) -> None:
    """It goes step by step."""
    two.topic(key_concurrency=1)
    two.enqueue("first", "second", key="a")
    two.begin_to_leave("b")
    two.redis("ZREM", two.k.key_admitted, next(one for one in admitted(two) if one.startswith(b"b\x1f")))
    assert walk(two) == []


def test_a_place_of_a_job_that_has_ended_is_found(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    shard.enqueue("first", "second", key="a")
    shard.checked = False
    shard.redis("HDEL", shard.k.key_tickets, "default\x1ffirst")
    assert walk(shard) == [("ended", "first")]


def test_a_place_that_nobody_waits_for_is_found_too(shard: Shard) -> None:
    shard.topic(key_rate="1/10m")
    shard.enqueue("known", key="a")
    shard.enqueue("done", key="b")
    shard.enqueue("started", key="c")
    assert walk(shard, 1) == []
    shard.checked = False
    shard.redis("HDEL", shard.k.key_tickets, "default\x1fknown")
    shard.redis("HDEL", shard.k.progress, "default\x1fdone")
    shard.redis("ZREM", shard.k.key_admitted, *[ticket for ticket in admitted(shard) if ticket.endswith(b"started")])
    assert walk(shard, 1) == [("ended", "done"), ("ended", "known"), ("ended", "started")]


def test_pages_are_all_there_is(shard: Shard) -> None:
    shard.topic(key_concurrency=1)
    for n in range(25):
        shard.enqueue(f"j{n:02}", f"k{n:02}", key=f"key{n:02}")
    shard.checked = False
    shard.redis("DEL", shard.k.key_admitted)
    assert walk(shard, 4) == [("free", f"k{n:02}") for n in range(25)]
