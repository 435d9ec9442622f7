"""kick: dead -> ready, for one group."""

from __future__ import annotations

import pytest

from streamdq.operations.topics import configure
from streamdq.store.find.wanted import Wanted
from streamdq.store.jobs.records import record_in
from tests.lua.shard import START_MS, Shard
from tests.lua.test_claim import large


def bury_all(shard: Shard, *ids: str, group: str | None = None) -> None:
    for id in ids:
        shard.enqueue(id)
        shard.bury(*shard.claim(group=group).rows, group=group)
        shard.clock.advance("1s")


def test_the_schedule_starts_again_and_the_attempts_go_on(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retried()
    shard.bury(shard.take())
    assert shard.call("kick", "default", 0, ["j"]) == 1
    assert shard.state("j") == "ready"
    row = shard.take()
    assert row.past == f"3|0|0|{START_MS}".encode()
    shard.finish(row)
    assert shard.empty()
    assert ("kicked", "j", "default") in shard.events()


def test_the_longest_dead_first_up_to_the_limit(shard: Shard) -> None:
    bury_all(shard, "c", "a", "b")
    assert shard.call("kick", "default", 2, []) == 2
    assert sorted(row.id for row in shard.claim().rows) == [b"a", b"c"]
    assert shard.state("b") == "dead"
    assert shard.counts["dead:default"] == 1


def test_who_is_not_dead_is_not_kicked(shard: Shard) -> None:
    bury_all(shard, "dead")
    shard.enqueue("ready")
    assert shard.call("kick", "default", 0, ["ready", "dead", "unknown", "dead"]) == 1
    assert shard.counts["ready:default"] == 2
    assert shard.call("kick", "default", 0, ["dead"]) == 0


def test_the_other_group_does_not_see_it(two: Shard) -> None:
    two.enqueue("j")
    two.bury(two.take("a"))
    two.finish(two.take("b"), group="b")
    assert two.call("kick", "b", 0, ["j"]) == 0
    assert two.call("kick", "a", 0, ["j"]) == 1
    assert two.claim(group="b").rows == []
    two.finish(two.take("a"))
    assert two.empty()


def test_while_the_topic_is_paused_it_waits(shard: Shard) -> None:
    bury_all(shard, "j")
    shard.run(configure.pause(shard.store, "t"))
    assert shard.call("kick", "default", 10, []) == 1
    assert shard.state("j") == "delayed"
    shard.run(configure.resume(shard.store, "t"))
    shard.move()
    shard.finish(shard.take())
    assert shard.empty()


def test_dead_again_and_kicked_again(shard: Shard) -> None:
    bury_all(shard, "j")
    for attempt in range(2, 5):
        assert shard.call("kick", "default", 10, []) == 1
        row = shard.take()
        assert row.past.split(b"|")[0] == b"%d" % attempt
        shard.bury(row)
    assert shard.counts == {"enqueued": 1, "dead:default": 1, "detached": 1}


def test_it_is_due_when_it_is_kicked(shard: Shard) -> None:
    """An operator wants it to run: its expiry begins anew."""
    shard.enqueue("j", expire="10s")
    shard.bury(shard.take())
    shard.clock.advance("1h")
    shard.call("kick", "default", 10, [])
    shard.clock.advance("10s")
    assert shard.take().past.split(b"|")[3] == str(START_MS + 3_600_000).encode()


def test_with_a_rate_it_waits_its_turn(shard: Shard) -> None:
    shard.enqueue("j")
    shard.bury(shard.take())
    shard.topic(rate=2)
    before = shard.last_wakeup()
    assert shard.call("kick", "default", 10, []) == 1
    assert shard.state("j") == "delayed"
    assert shard.last_wakeup() != before


def test_those_named_and_no_others_each_with_the_next_number_and_without_its_error(shard: Shard) -> None:
    bury_all(shard, "a", "b", "c", "d")
    assert shard.call("kick", "default", 1, ["d", "b", "a"]) == 3
    assert [(member[:12], member[-1:]) for member in shard.entries(shard.k.ready_of("default"))] == [
        (b"f00000000001", b"d"), (b"f00000000002", b"b"), (b"f00000000003", b"a"),
    ]  # fmt: skip
    job = shard.job("a")
    assert job.groups["default"].error is None


@pytest.mark.parametrize(("bytes", "kicked"), [(100_000, 2), (600_000, 1)])
def test_of_large_jobs_a_few_at_once(shard: Shard, bytes: int, kicked: int) -> None:
    large(shard, 3, bytes)
    while rows := shard.claim().rows:
        shard.bury(*rows)
    assert shard.call("kick", "default", 10, []) == kicked


def test_a_shard_that_was_deleted_meanwhile_keeps_nothing(shard: Shard) -> None:
    shard.redis("DEL", shard.k.counts)
    assert shard.call("kick", "default", 10, []) == 0
    assert shard.call("kick", "default", 10, ["gone"]) == 0
    assert shard.redis("EXISTS", shard.k.counts) == 0


# -- as it was shown


def letters(shard: Shard) -> list[tuple[str, str]]:
    page = shard.run(shard.scripts.find_jobs(shard.k, b"0", 10, Wanted(state="dead")))
    return sorted((match.id, match.deliveries.partition(":d")[2]) for match in page.matches)


def test_only_letters_as_they_were_shown(shard: Shard) -> None:
    shard.enqueue("again", "gone", "same")
    shard.bury(*shard.claim().rows)
    shown = letters(shard)
    shard.call("purge", "default", 0, ["gone"])
    shard.call("kick", "default", 0, ["again"])
    assert shard.run(shard.scripts.kick_each(shard.k, "default", shown[:1])) == [0], "it is not dead"
    shard.bury(shard.take())
    assert shard.run(shard.scripts.kick_each(shard.k, "default", shown)) == [0, 0, 1]
    shard.check()
    assert (shard.state("again"), shard.state("same")) == ("dead", "ready")


@pytest.mark.parametrize("name", ["kick_each", "purge_each"])
def test_a_letter_of_another_job_with_the_same_id_and_delivery_is_left_alone(shard: Shard, name: str) -> None:
    """A topic that was made again counts its deliveries anew."""
    bury_all(shard, "j")
    nonce = record_in(shard.redis("HGET", shard.k.jobs, "j")).nonce
    shown = shard.redis("HGET", shard.k.progress, b"default\x1fj").split(b"|")
    delivery = f"{shown[5].decode()}/{shown[1].decode()}"
    assert shard.call(name, "default", [("j", f"{delivery}/other")]) == [0]
    assert shard.call(name, "default", [("j", f"{delivery}/{nonce}")]) == [1]


@pytest.mark.parametrize("limits", [(), (1, 0)])
def test_with_a_key_and_no_limit_it_is_ready_at_once(shard: Shard, limits: tuple[int, ...]) -> None:
    """A limit that there was has left its mark in the settings."""
    for limit in limits:
        shard.topic(key_concurrency=limit)
    shard.enqueue("j", key="k")
    shard.bury(shard.take())
    assert shard.call("kick", "default", 0, ["j"]) == 1
    assert shard.redis("HLEN", shard.k.key_tickets) == 0
    assert shard.take().id == b"j"
