"""endings: which jobs have ended whose followers are to be reported; and that each way of ending is among them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.lua.links import Linked
from tests.lua.shard import START_MS, Shard
from tests.lua.test_erase_job import erase
from tests.lua.test_restore import archive


@pytest.fixture
def linked(shard: Shard) -> Linked:
    """`d` waits for `p`, which is ready."""
    shard.enqueue("p")
    made = Linked(shard)
    made.put("d", "p")
    return made


def notified(linked: Linked) -> list[tuple[str, str]]:
    """What the followers are notified: of which job, and how it has ended."""
    found = [(ending.field.partition("\x1f")[0], ending.how) for ending in linked.endings()]
    for ending in linked.endings():
        assert [(one.id, one.place, one.topic, one.shard) for one in ending.followers] == [("d", 0, "t", 0)]
    return found


def woken(linked: Linked) -> bool:
    """Whether the mover is reported to look now."""
    ((_, fields),) = linked.shard.redis("XRANGE", linked.shard.k.wake, "-", "+")
    return bool(fields == [b"due", linked.shard.clock.argument().encode()])


def test_none_has_ended(linked: Linked) -> None:
    reply = linked.shard.call("endings", 100)
    assert (reply.now_ms, reply.next_ms, reply.look_ms, reply.endings) == (START_MS, -1, START_MS + 30_000, [])


def test_done(linked: Linked) -> None:
    linked.shard.clock.advance("1s")
    linked.shard.finish(linked.shard.take())
    assert notified(linked) == [("p", "done")]
    assert woken(linked)
    assert linked.tell() == [2]
    assert linked.shard.state("d") == "ready"


def test_done_in_all_groups(linked: Linked, two: Shard) -> None:
    linked.put("both", "p")
    two.finish(two.take("a"), group="a")
    assert linked.endings() == []
    two.finish(two.take("b"), group="b")
    assert [ending.how for ending in linked.endings()] == ["done"]


def test_dead_in_one_group(linked: Linked, two: Shard) -> None:
    two.bury(two.take("a"), group="a")
    assert notified(linked) == [("p", "dead")]
    linked.tell()
    assert linked.is_blocked("d")
    generation = linked.endings
    two.finish(two.take("b"), group="b")
    assert generation() == [], "nothing new"


def test_kicked(linked: Linked) -> None:
    shard = linked.shard
    shard.bury(shard.take())
    linked.tell()
    shard.clock.advance("1s")
    assert shard.call("kick", "default", 0, ["p"]) == 1
    assert notified(linked) == [("p", "")]
    assert linked.tell() == [1]
    assert linked.links().endings == {}, "it goes on"
    assert not linked.is_blocked("d")
    shard.finish(shard.take())
    assert notified(linked) == [("p", "done")]


def test_kicked_in_one_of_two_groups_that_have_it_dead(linked: Linked, two: Shard) -> None:
    for group in "ab":
        two.bury(two.take(group), group=group)
    linked.tell()
    two.call("kick", "a", 0, ["p"])
    assert linked.endings() == []
    two.clock.advance("1s")
    two.call("kick", "b", 0, ["p"])
    assert notified(linked) == [("p", "")]


def test_cancelled(linked: Linked) -> None:
    linked.shard.call("cancel", "p")
    assert notified(linked) == [("p", "cancelled")]


def test_aborted_and_its_consumer_is_silent(linked: Linked) -> None:
    shard = linked.shard
    shard.take()
    shard.call("abort", "p")
    shard.clock.advance("10s")
    assert shard.take_over().taken == 0
    assert notified(linked) == [("p", "cancelled")]


def test_nobody_waits(shard: Shard) -> None:
    shard.enqueue("p")
    assert shard.call("endings", 100).look_ms == -1


def test_erased(linked: Linked) -> None:
    assert erase(linked.shard, "p") == [1]
    assert notified(linked) == [("p", "cancelled")]


def test_erased_when_a_group_has_given_it_up_and_the_other_has_done_it(linked: Linked, two: Shard) -> None:
    two.bury(two.take("a"), group="a")
    two.finish(two.take("b"), group="b")
    linked.tell()
    two.clock.advance("1s")
    assert erase(two, "p") == [1]
    assert notified(linked) == [("p", "purged")]


def test_replaced(linked: Linked) -> None:
    linked.shard.call("replace", 1, linked.shard.jobs("p"))
    assert notified(linked) == [("p", "replaced")]
    assert [*linked.links().followers] != [b"p"], "the new job has no followers"


@pytest.mark.parametrize("rule", ["", "60000|||", "f60000|||"])
def test_replaced_by_one_with_a_rule(linked: Linked, rule: str) -> None:
    linked.shard.enqueue_unique("p", how="replace", rule=rule)
    assert notified(linked) == [("p", "replaced")]


def test_replaced_from_an_outbox(linked: Linked) -> None:
    id, when, rest = linked.shard.jobs("p")
    linked.shard.call("relay", linked.shard.settings, "o", 1, [id, when, rest, "receipt", "1"])
    assert notified(linked) == [("p", "replaced")]


def test_expired(linked: Linked) -> None:
    shard = linked.shard
    shard.call("cancel", "p")
    linked.tell()
    shard.enqueue("e", expire="1s")
    linked.encoded("d", "e")
    linked.attach("d", "e")
    shard.clock.advance("2s")
    assert shard.claim().expired == 1
    assert notified(linked)[-1:] == [("e", "expired")]


def test_expired_in_one_of_two_groups(two: Shard) -> None:
    linked = Linked(two)
    two.enqueue("e", expire="1s")
    linked.put("d", "e")
    two.finish(two.take("a"), group="a")
    two.clock.advance("2s")
    two.claim(group="b")
    assert notified(linked) == [("e", "expired")]


def test_expired_before_the_other_group_is_done(two: Shard) -> None:
    linked = Linked(two)
    two.enqueue("e", expire="1s")
    linked.put("d", "e")
    row = two.take("a")
    two.clock.advance("2s")
    two.claim(group="b")
    assert notified(linked) == [("e", "expired")], "it has failed for good, and that is reported at once"
    linked.tell()
    two.clock.advance("1s")
    two.finish(row, group="a")
    (ending,) = linked.endings()
    assert (ending.how, ending.generation) == ("expired", START_MS + 3000), "the same, and it has left"


@pytest.mark.parametrize("how", ["purged", "archived", "too old"])
def test_no_longer_dead(linked: Linked, two: Shard, how: str) -> None:
    two.bury(two.take("a"), group="a")
    linked.tell()
    two.clock.advance("1s")
    if how == "purged":
        assert two.call("purge", "a", 0, ["p"]) == 1
    elif how == "too old":
        two.topic(dead_for="1s")
        assert two.call("trim_dead", "a", 1) == 1
        how = "purged"
    else:
        progress = two.redis("HGET", two.k.progress, "a\x1fp").split(b"|")
        assert two.call("archive", "a", ["p", "receipt", START_MS, progress[5], progress[1]]) == [True]
    assert notified(linked) == [("p", how)]
    linked.tell()
    two.clock.advance("1s")
    two.finish(two.take("b"), group="b")
    assert [(ending.how, ending.generation) for ending in linked.endings()] == [(how, START_MS + 2000)]


def test_back_from_the_archive(linked: Linked) -> None:
    shard = linked.shard
    shard.bury(shard.take())
    jobs = archive(shard)
    linked.tell()
    assert linked.is_blocked("d")
    shard.clock.advance("1s")
    shard.call("restore", "default", 1, jobs)
    assert notified(linked) == [("p", "")]
    linked.tell()
    assert not linked.is_blocked("d")
    assert linked.links().followers.keys() == {b"p"}
    shard.finish(shard.take())
    assert linked.tell() == [2]


def test_back_from_the_archive_while_others_have_it(linked: Linked, two: Shard) -> None:
    for group in "ab":
        two.bury(two.take(group), group=group)
    jobs = archive(two, "a")
    linked.tell()
    two.clock.advance("1s")
    two.call("restore", "a", 1, jobs)
    assert notified(linked) == [("p", "dead")], "as it is in the other group"
    linked.tell()
    two.clock.advance("1s")
    two.call("kick", "b", 0, ["p"])
    assert notified(linked) == [("p", "")]


def back(shard: Shard, group: str, jobs: list[Any]) -> None:
    shard.clock.advance("1s")
    assert shard.call("restore", group, 1, jobs) == [True]


@pytest.mark.parametrize("left", ["a", "b"])
def test_back_from_the_archive_for_one_of_two_groups(linked: Linked, two: Shard, left: str) -> None:
    """It is not done before it has come back for the other one, and that has done it."""
    other = "b" if left == "a" else "a"
    for group in "ab":
        two.bury(two.take(group), group=group)
    jobs = {group: archive(two, group) for group in "ab"}
    linked.tell()
    back(two, other, jobs[other])
    linked.tell()
    two.finish(two.take(other), group=other)
    linked.tell()
    assert linked.is_blocked("d")
    back(two, left, jobs[left])
    linked.tell()
    assert not linked.is_blocked("d")
    two.finish(two.take(left), group=left)
    assert linked.tell() == [2]


def dead_in_three(shard: Shard) -> Linked:
    """`d` waits for `p`, a dead letter of each of three groups."""
    shard.topic(groups=["a", "b", "c"])
    linked = Linked(shard)
    shard.enqueue("p")
    linked.put("d", "p")
    for group in "abc":
        shard.bury(shard.take(group), group=group)
    return linked


def is_done_in_three(linked: Linked) -> bool:
    """Whether `d` goes on once each of the three groups has done `p`."""
    linked.tell()
    for group in "abc":
        linked.shard.finish(linked.shard.take(group), group=group)
    return linked.tell() == [2]


def test_in_the_archive_of_one_group_and_kicked_in_another(shard: Shard) -> None:
    linked = dead_in_three(shard)
    jobs = {group: archive(shard, group) for group in "ab"}
    linked.tell()
    back(shard, "a", jobs["a"])
    assert notified(linked) == [("p", "dead")]
    shard.clock.advance("1s")
    shard.call("kick", "c", 0, ["p"])
    assert notified(linked) == [("p", "archived")], "for b"
    back(shard, "b", jobs["b"])
    assert notified(linked) == [("p", "")]
    assert is_done_in_three(linked)


def test_in_the_archive_of_two_groups_before_any_job_waits_for_it(shard: Shard) -> None:
    shard.topic(groups=["a", "b", "c"])
    linked = Linked(shard)
    shard.enqueue("p")
    for group in "ab":
        shard.bury(shard.take(group), group=group)
    jobs = {group: archive(shard, group) for group in "ab"}
    linked.put("d", "p")
    back(shard, "a", jobs["a"])
    assert notified(linked) == [("p", "archived")], "for b"
    back(shard, "b", jobs["b"])
    assert notified(linked) == [("p", "")]
    assert is_done_in_three(linked)


def test_back_from_the_archive_while_it_is_dead_in_another_group(shard: Shard) -> None:
    linked = dead_in_three(shard)
    for group in "ab":
        back(shard, group, archive(shard, group))
    assert notified(linked) == [("p", "dead")]
    shard.clock.advance("1s")
    shard.call("kick", "c", 0, ["p"])
    assert notified(linked) == [("p", "")]


def test_a_group_that_leaves_gets_nothing_back_from_the_archive(linked: Linked, two: Shard) -> None:
    for group in "ab":
        two.bury(two.take(group), group=group)
    jobs = {group: archive(two, group) for group in "ab"}
    linked.tell()
    two.topic(groups=["a"])
    back(two, "a", jobs["a"])
    linked.tell()
    assert not linked.is_blocked("d")
    two.finish(two.take("a"), group="a")
    assert linked.tell() == [2]


def later(linked: Linked) -> str:
    """The state of the one that waits, after the mover has notified it again."""
    for _ in range(2):
        linked.shard.clock.advance("10m")
        linked.tell()
    job = linked.shard.job("d")
    return next(iter(job.groups.values())).state.value


@pytest.mark.parametrize("when", ["runs", "is done"])
def test_a_group_leaves_that_has_it_in_its_archive(linked: Linked, two: Shard, when: str) -> None:
    for group in "ab":
        two.bury(two.take(group), group=group)
    jobs = {group: archive(two, group) for group in "ab"}
    linked.tell()
    back(two, "a", jobs["a"])
    row = two.take("a")
    if when == "is done":
        two.finish(row, group="a")
    linked.tell()
    two.topic(groups=["a"])
    if when == "runs":
        assert later(linked) == "waiting"
        two.finish(row, group="a")
    assert later(linked) == "ready"


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_group_leaves_that_alone_has_it_in_its_archive(linked: Linked, two: Shard, order: str) -> None:
    for group in order:
        if group == "a":
            two.bury(two.take("a"), group="a")
            archive(two, "a")
        else:
            two.finish(two.take("b"), group="b")
    linked.tell()
    two.topic(groups=["b"])
    assert later(linked) == "ready"


def test_the_groups_leave_that_have_it_in_their_archive(linked: Linked, two: Shard) -> None:
    for group in "ab":
        two.bury(two.take(group), group=group)
        archive(two, group)
    linked.tell()
    two.topic(groups=["c"])
    assert later(linked) == "waiting"
    assert linked.is_blocked("d")
    two.clock.advance("10m")
    assert notified(linked) == [("p", "left")]


def test_a_group_leaves_that_has_it_in_its_archive_while_it_is_dead_in_another(shard: Shard) -> None:
    linked = dead_in_three(shard)
    jobs = {group: archive(shard, group) for group in "ab"}
    back(shard, "a", jobs["a"])
    shard.topic(groups=["a", "c"])
    shard.clock.advance("1s")
    shard.call("kick", "c", 0, ["p"])
    assert later(linked) == "waiting"
    for group in "ac":
        shard.finish(shard.take(group), group=group)
    assert later(linked) == "ready"


def fail_in_a(two: Shard, how: str) -> Any:
    """Group a ends the job and has not done it. Returns what its archive holds then."""
    if how in ("archived", "purged"):
        two.bury(two.take("a"), group="a")
        return archive(two, "a") if how == "archived" else two.call("purge", "a", 0, ["p"])
    if how == "expired":
        two.clock.advance("3s")
        return two.claim(group="a")
    row = two.take("a") if how == "aborted" else None
    two.call("abort", "p", "a")
    return row and two.finish(row, group="a")


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("how", ["archived", "purged", "expired", "aborted", "cancelled"])
def test_a_group_had_failed_it_before_anyone_waited(two: Shard, how: str, key: str) -> None:
    if key:
        two.topic(groups=["a", "b"], key_concurrency=5)
    two.enqueue("p", key=key or None, expire="2s")
    two.move()
    other = two.take("b")
    jobs = fail_in_a(two, how)
    linked = Linked(two)
    linked.put("d", "p")
    assert linked.is_blocked("d")
    two.finish(other, group="b")
    linked.tell()
    assert linked.is_blocked("d")
    if how == "archived":
        back(two, "a", jobs)
        linked.tell()
        two.move()
        two.finish(two.take("a"), group="a")
        assert linked.tell() == [2]


def test_all_groups_leave_of_which_one_archived_it_and_none_has_done_it(shard: Shard) -> None:
    shard.topic(groups=["a", "b", "c"])
    linked = Linked(shard)
    shard.enqueue("p")
    linked.put("d", "p")
    for group in "ac":
        shard.bury(shard.take(group), group=group)
        archive(shard, group)
    linked.tell()
    shard.topic(groups=["a"])
    shard.topic(groups=["new"])
    assert later(linked) == "waiting"
    assert linked.is_blocked("d")


@pytest.mark.parametrize("how", ["purged", "expired", "aborted", "cancelled"])
def test_a_group_leaves_that_had_failed_it_permanently(two: Shard, how: str) -> None:
    two.enqueue("p", expire="2s")
    linked = Linked(two)
    linked.put("d", "p")
    other = two.take("b")
    fail_in_a(two, how)
    linked.tell()
    two.topic(groups=["b"])
    two.finish(other, group="b")
    linked.tell()
    assert linked.is_blocked("d")


def test_a_group_had_done_it_before_anyone_waited_and_the_one_leaves_that_archived_it(shard: Shard) -> None:
    shard.topic(groups=["a", "b", "c"])
    shard.enqueue("p")
    shard.finish(shard.take("a"), group="a")
    linked = Linked(shard)
    linked.put("d", "p")
    for group in "bc":
        shard.bury(shard.take(group), group=group)
        archive(shard, group)
    linked.tell()
    shard.topic(groups=["a"])
    assert later(linked) == "ready"


@pytest.mark.parametrize("how", ["archived", "purged"])
def test_only_its_failure_is_left_when_the_last_group_leaves(two: Shard, how: str) -> None:
    linked = Linked(two)
    two.enqueue("p")
    two.bury(two.take("a"), group="a")
    if how == "archived":
        archive(two, "a")
    else:
        two.call("purge", "a", 0, ["p"])
    linked.put("d", "p")
    two.topic(groups=["a"])
    assert [ending.how for ending in linked.endings()] == [how]


def test_it_is_in_the_archive_and_fails_in_another_group(linked: Linked, two: Shard) -> None:
    two.bury(two.take("a"), group="a")
    jobs = archive(two, "a")
    assert notified(linked) == [("p", "archived")]
    row = two.take("b")
    two.clock.advance("1s")
    two.bury(row, group="b")
    assert notified(linked) == [("p", "archived")], "a kick there may let it go on, and the archive as well"
    two.call("purge", "b", 0, ["p"])
    ((field, how),) = notified(linked)
    assert (field.partition("\x1f")[0], how) == ("p", "purged")
    linked.tell()
    two.clock.advance("1s")
    two.call("restore", "a", 1, jobs)
    linked.tell()
    assert linked.is_blocked("d"), "it stays failed"


def test_its_only_group_leaves(linked: Linked, two: Shard) -> None:
    """It was dead in `a`, and `b` has done it."""
    two.finish(two.take("b"), group="b")
    two.bury(two.take("a"), group="a")
    linked.tell()
    two.clock.advance("1s")
    two.topic(groups=["b"])
    assert notified(linked) == [("p", "done")]


def test_the_group_leaves_that_had_given_it_up(linked: Linked, two: Shard) -> None:
    two.bury(two.take("a"), group="a")
    linked.tell()
    two.clock.advance("1s")
    two.topic(groups=["b"])
    assert notified(linked) == [("p", "")]


def test_it_was_only_for_the_group_that_leaves(two: Shard) -> None:
    linked = Linked(two)
    two.enqueue("p")
    row = two.take("a")
    two.bury(row, group="a")
    two.finish(two.take("b"), group="b")
    two.call("restore", "a", 1, archive(two, "a"))
    linked.put("d", "p")
    two.topic(groups=["b"])
    assert [ending.how for ending in linked.endings()] == ["left"]


@pytest.mark.parametrize(("done_by", "how"), [("a", "done"), ("", "left")])
def test_groups_leave_a_job_with_a_key(shard: Shard, done_by: str, how: str) -> None:
    shard.topic(groups=["a", "b"], key_concurrency=5)
    shard.enqueue("p", key="k")
    shard.topic(groups=["a", "b", "c"])  # which it does not concern
    linked = Linked(shard)
    linked.put("d", "p")
    shard.move()
    if done_by:
        shard.finish(shard.take(done_by), group=done_by)
    assert linked.endings() == []
    shard.topic(groups=["c"])
    assert [ending.how for ending in linked.endings()] == [how]


@pytest.mark.parametrize("left", [["a"], ["c"]])
def test_a_group_had_done_a_job_with_a_key_before_anyone_waited_and_groups_leave(shard: Shard, left: list[str]) -> None:
    shard.topic(groups=["a", "b"], key_concurrency=5)
    shard.enqueue("p", key="k")
    shard.move()
    shard.finish(shard.take("a"), group="a")
    shard.topic(groups=["a", "b", "c"])
    linked = Linked(shard)
    linked.put("d", "p")
    shard.topic(groups=left)
    assert [ending.how for ending in linked.endings()] == ["done"]


def test_a_job_with_a_key_that_a_group_has_done_and_the_one_leaves_that_gave_it_up(shard: Shard) -> None:
    shard.topic(groups=["a", "b"], key_concurrency=5)
    shard.enqueue("p", key="k")
    linked = Linked(shard)
    linked.put("d", "p")
    shard.move()
    shard.bury(shard.take("a"), group="a")
    shard.finish(shard.take("b"), group="b")
    linked.tell()
    shard.clock.advance("1s")
    shard.topic(groups=["b"])
    assert [ending.how for ending in linked.endings()] == ["done"]


def test_a_limited_number_and_when_the_next_is_to_be_reported(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("q", delay="1s")
    linked.encoded("e", "q")
    linked.attach("e", "q")
    shard.finish(shard.take())
    shard.clock.advance("1s")
    shard.call("cancel", "q")
    reply = shard.call("endings", 1)
    assert [one.how for one in reply.endings] == ["done"]
    assert reply.next_ms == START_MS + 1000
    reply = shard.call("endings", 5)
    assert ([one.how for one in reply.endings], reply.next_ms) == (["done", "cancelled"], -1)


def test_what_is_reported_later_is_not_among_them(linked: Linked) -> None:
    shard = linked.shard
    shard.finish(shard.take())
    linked.tell(again_ms=500)
    reply = shard.call("endings", 5)
    assert (reply.endings, reply.next_ms) == ([], START_MS + 500)


def test_a_call_reads_a_bounded_number_of_bytes(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("a", "b", "c", delay="1s")
    linked.put("d", "a", "b", "c")
    for id in "abc":
        shard.call("cancel", id)
    shard.checked = False
    for field, text in linked.links().followers.items():
        shard.redis("HSET", shard.k.followers, field, text + text.split(b"\n")[1].join([b"", b"\n"]) * 4000)
    assert len(linked.endings()) < 3


def test_topics_without_it_pay_no_command(shard: Shard) -> None:
    """What Redis carries out for one job, from enqueue to finish."""
    if shard.is_fake or shard.moving is not None or shard.cutting is not None:
        pytest.skip("it does not count commands, or tests send more of them there")
    shard.checked = False
    shard.enqueue("before")
    shard.finish(shard.take())
    counted = commands(shard)
    shard.enqueue("j")
    shard.finish(shard.take())
    counted = commands(shard) - counted
    assert counted.pop("fcall", 0) + counted.pop("evalsha", 0) == 3
    assert counted == {
        "hdel": 2, "hget": 1, "hincrby": 7, "hmget": 6, "hset": 1, "hsetnx": 1, "info": 1, "xack": 1, "xadd": 4,
        "xdel": 1, "xreadgroup": 2, "zrange": 1,
    }  # fmt: skip


def commands(shard: Shard) -> Counter[str]:
    found = re.findall(r"cmdstat_([^:]+):calls=(\d+)", shard.redis("INFO", "commandstats").decode())
    return Counter({name: int(calls) for name, calls in found})
