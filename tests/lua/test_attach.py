"""attach: a job is to be reported of how another one ends."""

from __future__ import annotations

import pytest

from streamdq.store.assembly import keys_of
from streamdq.store.jobs.links import Attached, follower
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


def test_a_call_reads_and_writes_so_much_and_the_next_one_the_rest(linked: Linked) -> None:
    """Hundreds of jobs may have thousands of followers each."""
    ids, shard = [f"p{n}" for n in range(9)], linked.shard
    shard.enqueue(*ids, delay="1s")
    linked.encoded("e", *ids)
    linked.attach("e", *ids)
    others = b"".join(b"1\x1ft\x1f0\x1f0\x1fN\x1f%0250d\n" % n for n in range(400))
    for id, text in linked.links().followers.items():
        shard.redis("HSET", shard.k.followers, id, text + others)
    linked.encoded("d", *ids)
    said = [value for id in ids for value in (id, "", follower("t", 0, 0, "nonce", "d"))]
    first = shard.run(shard.scripts._run("attach", keys_of("attach", shard.k), ("", "", *said)))
    assert 0 < len(first) < 9
    assert [one.how for one in linked.attach("d", *ids)] == [""] * 9
    assert all(text.endswith(b"\x1fd\n") for text in linked.links().followers.values())


@pytest.mark.parametrize("of", ["records", "followers of jobs that have ended"])
def test_a_call_reads_so_much(linked: Linked, of: str) -> None:
    ids, shard = [f"p{n}" for n in range(9)], linked.shard
    shard.enqueue(*ids)
    lives = {id: nonce_of(shard, id) for id in ids}
    shard.checked = False
    for id in ids:
        if of == "records":
            shard.redis("HSET", shard.k.jobs, id, shard.redis("HGET", shard.k.jobs, id) + b" " * 100_000)
        else:
            shard.redis("HDEL", shard.k.jobs, id)
            shard.redis(
                "HSET", shard.k.followers, f"{id}\x1f{lives[id]}", f"{lives[id]}|5|done\n" + f"{'x' * 99}\n" * 1000
            )
    asked = [value for id in ids for value in (id, lives[id], follower("t", 0, 0, "nonce", "d"))]
    first = shard.run(shard.scripts._run("attach", keys_of("attach", shard.k), ("", "", *asked)))
    assert len(first) == 3


@pytest.mark.parametrize(("count", "is_soon"), [(300, False), (600, True)])
def test_many_followers_are_notified_soon_so_that_those_that_have_ended_are_forgotten(
    linked: Linked, count: int, is_soon: bool
) -> None:
    shard = linked.shard
    shard.enqueue("p", delay="1h")
    linked.put("d", "p")
    others = b"".join(b"1\x1ft\x1f0\x1f0\x1fN\x1f%0250d\n" % n for n in range(count))
    shard.redis("HSET", shard.k.followers, "p", linked.links().followers[b"p"] + others)
    shard.clock.advance("1m")
    linked.put("e", "p")
    assert (b"p" in linked.links().endings) is is_soon
    if is_soon:
        shard.clock.advance("1m")
        (ending,) = linked.endings()
        assert (ending.how, len(ending.followers)) == ("", count + 2)
        linked.tell(again_ms=600_000)
        assert [line.split(b"\x1f")[-1] for line in linked.links().followers[b"p"].splitlines()[1:]] == [b"d", b"e"]
        assert linked.links().endings == {}
        assert linked.head("d") == "1|0|0|0|block|0"


def said(linked: Linked, *followers: tuple[str, str, str]) -> list[Attached]:
    """One call. ``followers``: what each waits for, its life, and the line of the follower."""
    found: list[Attached] = linked.shard.call("attach", None, [value for one in followers for value in one])
    return found


LINES = [follower("t", 0, 0, f"nonce{n}", f"d{n}") for n in range(4)]


def lines_of(linked: Linked, field: str) -> list[str]:
    text = linked.links().followers[field.encode()].decode()
    return [line.partition("\x1f")[2] for line in text.splitlines()[1:]]


@pytest.mark.parametrize("has_ended", [False, True])
def test_several_followers_of_the_same_job_in_one_call(linked: Linked, *, has_ended: bool) -> None:
    shard = linked.shard
    shard.enqueue("p")
    life, field = nonce_of(shard, "p"), "p"
    if has_ended:
        linked.put("before", "p")
        shard.finish(shard.take())
        field = f"p\x1f{life}"
    lives = [life, life, life, "another"] if has_ended else ["", life, "", "another"]
    replies = said(linked, *[("p", one, line) for one, line in zip(lives, LINES, strict=True)])
    assert [one.life for one in replies] == [life, life, life, "another"]
    assert [one.how for one in replies] == [*["done" if has_ended else ""] * 3, "unknown"]
    assert lines_of(linked, field)[-3:] == LINES[:3]
    assert lines_of(linked, field).count(LINES[0]) == 1


def test_a_follower_is_not_taken_for_another_one(linked: Linked) -> None:
    """Nor are names taken for patterns."""
    linked.shard.enqueue("p", delay="1s")
    lines = [
        follower(topic, 0, 0, "nonce", id)
        for topic, id in (("at", "d"), ("t", "dd"), ("t", "d"), ("t", "a.b"), ("t", "d%"), ("t", "[d"))
    ]
    for _ in range(2):
        for line in lines:
            assert said(linked, ("p", "", line))[0].how == ""
    assert lines_of(linked, "p") == lines


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


def test_a_job_without_a_nonce_is_known_by_when_it_was_made(linked: Linked) -> None:
    """Those of schedules have none."""
    shard = linked.shard

    def make() -> None:
        id, when, rest = shard.jobs("p", delay="1s")
        ttr, expire, _, *others = rest.split(b"\n", 5)
        shard.run(shard.scripts.enqueue(shard.k, 1, [id, when, b"\n".join([ttr, expire, b"", *others])]))

    make()
    linked.encoded("d", "p")
    (before,) = linked.attach("d", "p")
    assert before.life == f"@{START_MS}"
    assert linked.attach("d", "p", lives={"p": before.life}) == [before]
    shard.clock.advance("1s")
    shard.move()
    shard.finish(shard.take())
    (after,) = linked.attach("d", "p", lives={"p": before.life})
    assert (after.life, after.how) == (before.life, "done")
    make()
    assert linked.attach("d", "p", lives={"p": before.life}) == [after], "a later one is not taken for it"


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


@pytest.mark.parametrize("groups", [None, ""])
def test_without_results_nothing_is_known_of_a_job_that_has_ended(linked: Linked, groups: str | None) -> None:
    """The topic keeps none; or it has no group, that could have some."""
    shard = linked.shard
    shard.topic(result=None if groups is None else "1h")
    linked.encoded("d", "p")
    if groups is not None:
        shard.checked = False
        shard.redis("HSET", shard.k.settings, "groups", groups)
    for life in ("=", "=0"):
        assert linked.attach("d", "p", lives={"p": life}) == [Attached(life, 0, "unknown")]
    assert linked.links().followers == {}


def test_one_of_which_a_result_has_expired_meanwhile_is_unknown(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(groups=["a", "b"], result={"a": "1h", "b": "1h"})
    linked.encoded("d", "p")
    shard.redis("SET", shard.k.result_of("a", "p"), "1700|done|1", "PX", 60_000)
    assert linked.attach("d", "p", lives={"p": "=1700"}) == [Attached("=1700", 0, "unknown")]
    assert linked.links().followers == {}


def test_its_results_are_kept_longer_with_each_call(linked: Linked) -> None:
    shard = linked.shard
    shard.topic(result="1m")
    shard.enqueue("p")
    shard.finish(shard.take())
    linked.encoded("d", "p")
    life = linked.attach("d", "p", lives={"p": "="})[0].life
    key = shard.k.result_of("default", "p")
    for _ in range(2):
        linked.attach("d", "p", lives={"p": life})
        assert shard.redis("PTTL", key) > 60_000
        shard.redis("PEXPIRE", key, 60_000)  # much time has passed


def test_of_a_dead_job_without_its_record_nothing_is_known(linked: Linked) -> None:
    shard = linked.shard
    shard.enqueue("p")
    shard.bury(shard.take())
    linked.encoded("d", "p")
    shard.checked = False
    shard.redis("HDEL", shard.k.jobs, "p")
    assert linked.attach("d", "p") == [Attached("", 0, "unknown")]


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
