"""find: what is found, and that the actions concern exactly what was shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from streamdq import AsyncQueue, NewJob, Queue
from streamdq.codec import Encrypt, Zstd
from streamdq.codec.encrypt import new_key
from streamdq.errors import InvalidInput, UnknownGroup, UnknownTopic
from streamdq.keys import shard_of
from streamdq.link.session import Op
from streamdq.operations.find.actions import Acted
from streamdq.operations.find.search import Progress
from streamdq.queue import Found
from streamdq.store.replies import FoundPage
from streamdq.store.scripts import Scripts
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE, Space, taken


def ids(found: Found) -> list[str]:
    return sorted(job.id for job in found)


def take(queue: Queue, group: str = "default") -> Any:
    return taken(queue, "t", group)


def bury(queue: Queue, id: str, error: str = "broken", **fields: Any) -> None:
    queue.enqueue("t", fields.pop("body", {"id": id}), id=id, **fields)
    claim = take(queue)
    assert claim.job.id == id
    claim.bury(error)


# -- what is found


def test_by_what_is_in_the_body(space: Space) -> None:
    queue = space.queue
    queue.enqueue_many("t", [NewJob({"user": n % 3, "amount": n}, id=f"j{n}", delay="1h") for n in range(9)])
    assert ids(queue.find("t", where={"body.user": 1})) == ["j1", "j4", "j7"]
    assert ids(queue.find("t", where={"body.user": 1, "body.amount": (">", 3)})) == ["j4", "j7"]
    assert ids(queue.find("t", where=["body.user=1", "body.amount<7"])) == ["j1", "j4"]
    assert ids(queue.find("t", where={"body.user": "1"})) == []
    assert queue.find("t", where={"body.user": 1}).count() == 3
    assert queue.find("t").count() == 9
    (job,) = queue.find("t", where={"body.amount": 5})
    assert (job.id, job.body) == ("j5", {"user": 2, "amount": 5})


def test_jobs_that_wait_for_their_key_are_found_by_due_time(space: Space) -> None:
    queue = space.queue
    queue.configure("t", key_concurrency=1)
    queue.enqueue_many("t", [NewJob(n, id=f"j{n}", delay="1h", key="k") for n in range(5)])
    queue.enqueue("t", 1, id="far", delay="3h", key="k")
    assert ids(queue.find("t", state="delayed", due=("30m", "90m"))) == [f"j{n}" for n in range(5)]
    assert queue.find("t", state="delayed", due=(None, None)).count() == 6
    assert queue.find("t", state="delayed").cancel() == Acted(done=6)


def test_by_due_time(stepped: Space, clock: ManualClock) -> None:
    queue = stepped.queue
    for minutes in (5, 1, 3, 2, 4):
        queue.enqueue("t", minutes, id=f"j{minutes}", delay=f"{minutes}m")
    now = int(clock.argument())

    def found(*due: Any, state: str | None = "delayed") -> list[str]:
        return [job.id for job in queue.find("t", state=state, due=(due[0], due[1]))]

    assert found(None, None) == ["j1", "j2", "j3", "j4", "j5"], "in the order of their due times"
    assert found("2m", "4m") == ["j2", "j3", "j4"]
    assert found(now + 120_000, timedelta(minutes=4)) == ["j2", "j3", "j4"]
    assert sorted(found("2m", "4m", state=None)) == ["j2", "j3", "j4"]
    assert found("6m", None) == []
    assert queue.find("t", state="delayed", due=("2m", "4m")).count() == 3
    clock.advance("150s")
    assert found("-1m", "now") == ["j2"]
    assert found("2028-01-01T00:00:00Z", None) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "late"}, {"state": "lost"}, {"due": "1h"}, {"due": ("x", None)}, {"due": (5, None)},
        {"group": "a b"}, {"key": ""}, {"id_prefix": 7}, {"id_prefix": "\n"}, {"where": {"user": 7}}, {"limit": 0},
        {"limit": True}, {"limit": "5"}, {"limit": 2.5}, {"where": 5}, {"where": ["id=\ud800"]},
    ],
)  # fmt: skip
def test_what_can_not_be_read(space: Space, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        space.queue.find("t", **wrong)
    if "due" in wrong:
        assert str(caught.value).startswith("due: ")


def test_a_sample_is_of_the_jobs_that_were_found(space: Space) -> None:
    """Another job has the same id, with another key, in another shard."""
    space.queue.configure("t", shards=8)
    keys = {shard_of(key, 8): key for key in "abcdefghijklmnop"}
    for number, key in enumerate(keys.values()):
        space.queue.enqueue("t", number, id="same", key=key, delay="1h")
    for number, key in enumerate(keys.values()):
        (job,) = space.queue.find("t", where={"body": number}).sample()
        assert (job.body, job.key) == (number, key)


def test_of_jobs_with_another_key_nothing_is_sent(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        space.queue.enqueue("t", number, key=f"k{number % 2}", delay="1h")
    pages = []
    find_jobs = Scripts.find_jobs

    def noted(*args: Any) -> Op[FoundPage]:
        pages.append((yield from find_jobs(*args)))
        return pages[-1]

    monkeypatch.setattr(Scripts, "find_jobs", noted)
    assert space.queue.find("t", key="k1").count() == 10
    assert sum(len(page.matches) for page in pages) == 10


def test_no_such_topic_or_group(space: Space) -> None:
    with pytest.raises(UnknownTopic):
        space.queue.find("t").count()
    space.queue.configure("t", create=True)
    with pytest.raises(UnknownGroup):
        space.queue.find("t", group="b").count()


def test_over_shards_a_limit_and_progress(space: Space) -> None:
    queue = space.queue
    queue.configure("t", shards=4)
    queue.enqueue_many("t", [NewJob(n, id=f"j{n}", delay="1h") for n in range(1000)])
    reported: list[Progress] = []
    found = queue.find("t", progress=reported.append)
    assert len({job.id for job in found}) == found.count() == 1000
    assert reported[-1] == (found.looked, 1000, 1000)
    assert [one.looked for one in reported] == sorted(one.looked for one in reported)
    limited = queue.find("t", limit=7)
    assert limited.count() == limited.count() == len(queue.find("t", limit=7).sample(100)) == 7
    assert len(list(queue.find("t", limit=7))) == 7
    assert queue.find("t", limit=7).cancel() == Acted(done=7)
    assert queue.find("t").count() == 993


@pytest.mark.thorough
def test_what_is_there_all_the_time_is_found_once_while_others_come_and_go(space: Space) -> None:
    queue = space.queue
    stay = {f"stay{n}" for n in range(600)}
    queue.enqueue_many("t", [NewJob(1, id=id, delay="1h") for id in sorted(stay)])
    queue.enqueue_many("t", [NewJob(1, id=f"go{n}", delay="1h") for n in range(600)])
    for found in (queue.find("t"), queue.find("t", state="delayed", due=(None, "2h"))):
        seen = []
        for number, job in enumerate(found):
            seen.append(job.id)
            if number < 600:  # the hash grows and shrinks under the walk
                queue.cancel("t", f"go{number}")
                queue.enqueue_many("t", [NewJob(1, id=f"come{number}.{n}", delay="1m") for n in range(5)])
        assert len(seen) == len(set(seen))
        assert stay <= set(seen)


def test_bodies_that_can_not_be_read_are_counted(space: Space) -> None:
    key = Encrypt(new_key("k1"))
    with Queue(space.url, NAMESPACE, codec=[Zstd(over=0), key], settings=space.settings) as knows:
        knows.enqueue("t", {"user": 7}, id="hidden", delay="1h")
        knows.enqueue("t", {"user": 8}, id="other", delay="1h")
        space.queue.enqueue("t", {"user": 7}, id="plain", delay="1h")
        found = knows.find("t", where={"body.user": 7})
        assert ids(found) == ["hidden", "plain"]
        assert found.unreadable == 0
    found = space.queue.find("t", where={"body.user": 7})
    assert ids(found) == ["plain"]
    assert found.unreadable == 2
    found = space.queue.find("t", id_prefix="h")
    assert found.cancel() == Acted(done=1)
    assert found.unreadable == 0, "without a condition on the body, none is read"


# -- acting


def test_each_action(space: Space) -> None:
    queue = space.queue
    bury(queue, "d1", body={"user": 7})
    bury(queue, "d2", body={"user": 8})
    bury(queue, "d3", body={"user": 7})
    queue.enqueue("t", {"user": 7}, id="w1", delay="1h")
    queue.enqueue("t", {"user": 8}, id="w2", delay="1h")
    of_user = queue.find("t", where={"body.user": 7})
    assert of_user.count() == 3
    assert of_user.reschedule("10m") == Acted(done=1, refused=2)
    assert 600_000 <= space.job("w1").due_ms - space.job("w1").created_ms < 3_600_000
    assert queue.find("t", where={"body.user": 7}).cancel() == Acted(done=1, refused=2)
    assert queue.find("t", where={"body.user": 7}, id_prefix="d1").purge() == Acted(done=1)
    assert queue.find("t", where={"body.user": 7}).kick() == Acted(done=1)
    assert (space.state("d1"), space.state("d2"), space.state("d3")) == ("gone", "dead", "ready")
    assert queue.find("t").purge() == Acted(done=1, refused=2)
    take(queue).finish()
    assert ids(queue.find("t")) == ["w2"]


def test_letters_that_changed_since_are_left_alone(space: Space) -> None:
    queue = space.queue
    for id in ("again", "gone", "same"):
        bury(queue, id)
    kick, purge = queue.find("t", state="dead"), queue.find("t", state="dead")
    assert kick.count() == purge.count() == 3
    queue.purge("t", id="gone")
    queue.kick("t", "again")
    take(queue).bury("again")
    assert kick.kick() == Acted(done=1, changed=1, gone=1)
    assert purge.purge() == Acted(changed=2, gone=1)
    assert (space.state("again"), space.state("same")) == ("dead", "ready")


def test_only_what_was_shown(space: Space) -> None:
    queue = space.queue
    queue.enqueue_many("t", [NewJob(1, id=f"j{n}", delay="1h") for n in range(10)])
    found = queue.find("t")
    some = [job.id for _, job in zip(range(3), found, strict=False)]
    assert found.found == 3
    assert found.cancel() == Acted(done=3)
    left = ids(queue.find("t"))
    assert len(left) == 7
    assert not set(some) & set(left)
    assert len([job.id for job in found]) == 7, "iterating goes on where it was left"


async def test_awaited(space: Space) -> None:
    async with AsyncQueue(space.url, NAMESPACE, settings=space.settings) as queue:
        await queue.enqueue_many("t", [NewJob({"n": n}, id=f"j{n}", delay="1h") for n in range(10)])
        assert [job.id async for job in queue.find("t", where={"body.n": 3})] == ["j3"]
        found = queue.find("t", where={"body.n": (">", 5)})
        assert await found.count() == 4
        assert len(await found.sample(2)) == 2
        assert await found.reschedule("2h") == Acted(done=4)
        assert await found.cancel() == Acted(changed=4)
        assert await found.kick() == await found.purge() == Acted(refused=4)
        assert await queue.find("t", where={"body.n": (">", 5)}).cancel() == Acted(done=4)
