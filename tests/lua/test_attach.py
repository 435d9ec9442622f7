"""attach: a job is to be reported of how another one ends."""

from __future__ import annotations

import pytest

from streamdq.store.assembly import keys_of
from streamdq.store.jobs.links import Attached
from tests.lua.links import Linked
from tests.lua.shard import START_MS, Shard


@pytest.fixture
def linked(shard: Shard) -> Linked:
    return Linked(shard)


def nonce_of(shard: Shard, id: str) -> str:
    nonce: str = shard.redis("HGET", shard.k.jobs, id).split(b"\n")[4].decode()
    return nonce


def test_a_job_that_lives_gets_a_follower(linked: Linked) -> None:
    linked.shard.enqueue("p", delay="1s")
    linked.encoded("d", "p")
    nonce = nonce_of(linked.shard, "p")
    assert linked.attach("d", "p") == [Attached(nonce, 0, "")]
    line = f"{START_MS}\x1ft\x1f0\x1f0\x1f{linked.made['d'].nonce}\x1fd\n"
    assert linked.links().followers == {b"p": f"{nonce}|0|\n{line}".encode()}
    assert linked.shard.redis("HGET", linked.shard.k.settings, "linked") == b"1"


def test_once_however_often_it_is_called(linked: Linked) -> None:
    linked.shard.enqueue("p", delay="1s")
    linked.encoded("d", "p")
    first = linked.attach("d", "p")
    known = linked.links()
    linked.shard.clock.advance("1s")
    assert linked.attach("d", "p") == first
    assert linked.links() == known


def test_several_followers_of_several_jobs(linked: Linked) -> None:
    linked.shard.enqueue("p", "q", delay="1s")
    for id in ("d", "e"):
        linked.encoded(id, "p", "q")
        assert [one.how for one in linked.attach(id, "p", "q")] == ["", ""]
    for field in (b"p", b"q"):
        assert linked.links().followers[field].count(b"\n") == 3


def test_nothing_is_known_of_a_job_that_never_was(linked: Linked) -> None:
    linked.encoded("d", "p")
    assert linked.attach("d", "p") == [Attached("", 0, "unknown")]
    assert linked.links().followers == {}


def test_a_dead_job_says_so_and_tells_again(linked: Linked) -> None:
    linked.shard.enqueue("p")
    linked.shard.bury(linked.shard.take())
    linked.encoded("d", "p")
    (found,) = linked.attach("d", "p")
    assert (found.generation, found.how) == (START_MS, "dead")
    assert linked.links().endings == {b"p": str(START_MS + 30_000).encode()}
    linked.encoded("e", "p")
    linked.shard.clock.advance("1s")
    assert linked.attach("e", "p") == [found], "the next one does not change when it is reported"
    assert linked.links().endings == {b"p": str(START_MS + 30_000).encode()}


def test_a_job_that_has_ended_is_known_by_its_life(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p", delay="1s")
    linked.encoded("d", "p")
    (before,) = linked.attach("d", "p")
    shard.clock.advance("1s")
    shard.move()
    shard.finish(shard.take())
    (after,) = linked.attach("d", "p", lives={"p": before.life})
    assert (after.life, after.how) == (before.life, "done")
    assert after.generation == START_MS + 1000
    assert linked.attach("d", "p") == [Attached("", 0, "unknown")], (
        "whoever does not name the life means a job that is here"
    )


def test_another_job_with_the_id_is_not_taken_for_it(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p", delay="1s")
    linked.encoded("d", "p")
    (before,) = linked.attach("d", "p")
    shard.call("cancel", "p")
    shard.enqueue("p", delay="1s")
    (after,) = linked.attach("d", "p", lives={"p": before.life})
    assert after.how == "cancelled"
    assert linked.attach("d", "p", lives={"p": "another"}) == [Attached("another", 0, "unknown")]
    linked.encoded("e", "p")
    (other,) = linked.attach("e", "p")
    assert (other.how, other.life) == ("", nonce_of(shard, "p"))
    assert linked.attach("d", "p", lives={"p": before.life}) == [after], "nor for its followers"


def test_a_job_whose_record_was_lost_is_lost(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p", delay="1s")
    linked.encoded("d", "p")
    (before,) = linked.attach("d", "p")
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "p")
    (after,) = linked.attach("d", "p", lives={"p": before.life})
    assert (after.life, after.how) == (before.life, "lost")
    assert linked.attach("d", "p") == [Attached("", 0, "unknown")]


@pytest.mark.parametrize(
    ("kept", "how"),
    [
        ({"a": "done|1", "b": "done|2"}, "done"),
        ({"a": "done|1", "b": "error|no JSON"}, "done"),
        ({"a": "done|1"}, "unknown"),
        ({"a": "done|1", "b": "cancelled|"}, "cancelled"),
        ({"b": "expired|"}, "expired"),
        ({"a": "dead|exhausted|ValueError"}, "purged"),
        ({}, "unknown"),
    ],
)
def test_a_job_that_has_ended_is_known_by_its_kept_results(linked: Linked, kept: dict[str, str], how: str) -> None:
    shard = linked.shard
    shard.topic(groups=["a", "b"], result={"a": "1h", "b": "1h"})
    linked.encoded("d", "p")
    prefix = shard.k.settings.removesuffix("settings")
    for group, text in kept.items():
        shard.redis("SET", f"{prefix}result:{group}:p", f"1700|{text}", "PX", 60_000)
    expected = Attached("=", 0, how) if how == "unknown" else Attached("=1700", 1700, how)
    assert linked.attach("d", "p") == [Attached("", 0, "unknown")], "no job is here"
    assert linked.attach("d", "p", lives={"p": "="}) == [expected]
    assert linked.links().followers == {}, "a question alone"


def test_a_job_that_has_ended_gets_a_follower_that_is_reported_how(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(result="1s")
    shard.enqueue("p")
    shard.call("cancel", "p")
    linked.encoded("d", "p", on_failure="run")
    (found,) = linked.attach("d", "p", lives={"p": "="})
    assert linked.attach("d", "p", lives={"p": "=1"}) == [Attached("=1", 0, "unknown")], "it ended at another time"
    assert linked.attach("d", "p", lives={"p": found.life}) == [found]
    assert linked.links().followers.keys() == {f"p\x1f={START_MS}".encode()}
    known = linked.links()
    assert linked.attach("d", "p", lives={"p": found.life}) == [found]
    assert linked.links() == known
    assert linked.links().endings == {f"p\x1f={START_MS}".encode(): b"%d" % (START_MS + 30_000)}
    shard.clock.advance("1h")
    assert [one.how for one in linked.endings()] == ["cancelled"]
    linked.tell()
    assert linked.links().followers == {}


def test_its_results_are_kept_until_those_that_wait_for_it_have_ended(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(result="1s")
    shard.enqueue("p")
    linked.put("d", "p")
    shard.finish(shard.take())
    key = shard.k.result_of("default", "p")
    assert linked.tell() == [2]
    day_ms = 86_400_000
    for _ in range(3):
        assert day_ms // 2 < shard.redis("PTTL", key) <= day_ms + 1000
        shard.clock.advance("10m")
        assert linked.tell() == [1]
    shard.move()
    shard.finish(shard.take())
    shard.clock.advance("10m")
    assert linked.tell() == [0]
    assert 0 < shard.redis("PTTL", key) <= 1000
    assert linked.links().followers == {}


def test_results_of_a_job_that_had_ended_are_kept_as_well(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(result="1m")
    shard.enqueue("p")
    shard.finish(shard.take())
    linked.encoded("d", "p")
    (found,) = linked.attach("d", "p", lives={"p": "="})
    key = shard.k.result_of("default", "p")
    assert shard.redis("PTTL", key) <= 60_000
    linked.attach("d", "p", lives={"p": found.life})
    assert shard.redis("PTTL", key) > 60_000
    shard.clock.advance("2m")
    linked.tell()
    assert linked.links().followers == {}
    assert shard.redis("PTTL", key) <= 60_000


def test_a_result_of_a_group_that_keeps_none_any_more_is_not_held(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(groups=["a", "b"], result={"a": "1m"})
    shard.enqueue("p")
    shard.finish(shard.take("a"), group="a")
    shard.topic(result={"a": 0, "b": "1s"})
    linked.put("d", "p")
    assert shard.redis("PTTL", shard.k.result_of("a", "p")) <= 60_000
    shard.finish(shard.take("b"), group="b")
    assert shard.redis("PTTL", shard.k.result_of("b", "p")) > 60_000


def test_the_result_of_a_later_job_is_not_shortened(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(result="1s")
    shard.enqueue("p")
    linked.put("d", "p")
    shard.call("cancel", "p")
    linked.tell()
    shard.clock.advance("2m")
    shard.enqueue("p")
    linked.put("e", "p")
    shard.finish(shard.take())
    shard.call("cancel", "d")
    linked.tell()
    assert shard.redis("PTTL", shard.k.result_of("default", "p")) > 60_000


def test_too_many_followers_are_refused(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p", delay="1s")
    linked.encoded("d", "p")
    linked.attach("d", "p")
    text = shard.redis("HGET", shard.k.followers, "p")
    line = text.partition(b"\n")[2]
    many = 1 + 262_144 // len(line)
    shard.checked = False
    shard.redis("HSET", shard.k.followers, "p", text.partition(b"\n")[0] + b"\n" + line * many)
    assert linked.attach("d", "p")[0].how == "", "who waits already still does"
    linked.encoded("e", "p")
    assert linked.attach("e", "p")[0].how == "full"


def test_settings_that_are_out_of_date_are_refused(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p", delay="1s")
    linked.encoded("d", "p")
    assert shard.redis("HGET", shard.k.settings, "shards") == b"1"
    other = shard.settings.model_copy(update={"shards": 2})
    line = ["p", "", "t\x1f0\x1f0\x1fnonce\x1fd"]
    assert shard.call("attach", other, line) is None
    assert linked.links().followers == {}
    assert shard.call("attach", shard.settings, line)[0].how == ""


def test_it_names_three_keys(shard: Shard) -> None:
    assert len(keys_of("attach", shard.k)) == 4, "and the one that is absent"
