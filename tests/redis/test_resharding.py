"""Topics whose number of shards changes while they hold jobs: nothing is lost, early, or run twice, and an id stays one
job's, whichever of its homes has it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from streamdq import NewJob, Queue
from streamdq.config import Layout
from streamdq.errors import JobExists, ServerUnavailable, StreamdqError, TopicNotEmpty
from streamdq.keys import candidate_shards, shard_of
from streamdq.link.command import Command
from streamdq.link.failures import LinkError
from streamdq.link.session import run
from streamdq.mover import resharding
from streamdq.operations.checks.doctor import doctor
from streamdq.operations.jobs import enqueue, enqueue_many
from streamdq.store.jobs.records import encode
from streamdq.store.topics import changes
from streamdq.store.topics import resharding as walking
from streamdq.store.topics.resharding import Walk
from streamdq.times.clock import ManualClock
from tests.redis.harness import Space, taken
from tests.redis.movers import mover_at
from tests.redis.topology import all_run, configuring, each_cut, steps
from tests.servers import Server
from tests.turns import others_later
from tests.waiting import HANG_S, eventually

CHANGES = [(2, 4), (3, 1), (4, 2), (3, 5), (1, 3)]
LATER = pytest.mark.thorough
several = pytest.mark.parametrize(
    ("before", "after"), [*CHANGES[:2], *(pytest.param(*change, marks=LATER) for change in CHANGES[2:])]
)


def layout_of(queue: Queue, topic: str = "t") -> Layout:
    return run(queue._link, queue._store.topics.get(topic, anew=True)).layout


def moving(before: int, after: int, count: int) -> list[str]:
    """Ids that are at home in another shard after the change."""
    ids = (f"id {number}" for number in range(10_000))
    return list(islice((id for id in ids if len(candidate_shards(id, after, [before])) > 1), count))


def look_whether_resharded(queue: Queue, topic: str = "t") -> bool:
    """As the mover does; returns whether the topic is resharded."""
    store = queue._store
    walk = Walk(store.session, store.scripts, topic, run(queue._link, store.topics.get(topic, anew=True)))
    resharded = run(queue._link, walk.go_on(1000))
    if resharded:
        run(queue._link, changes.complete_resharding(store.topics, topic, walk))
    return bool(resharded)


def holders(queue: Queue, id: str, topic: str = "t") -> int:
    """How many shards have a job with this id."""
    store = queue._store
    shards = store.topics.all_shards(topic)
    return sum(bool(run(queue._link, store.session.call([_has(shard.jobs, id)]))[0]) for shard in shards)


def _has(key: str, id: str) -> Command:
    return Command(key, ("HEXISTS", key, id))


# Each state of a job, and what can be done by its id: as in a topic that has never changed.

STATES = ("none", "delayed", "ready", "running", "retried", "dead", "ended", "taken", "delayed and taken")


def bring_about(queue: Queue, topic: str, id: str, state: str) -> Any:
    """A job with this id in this state; returns its claim, if it is running."""
    if state == "none":
        return None
    rule = "1h" if "taken" in state else None
    queue.enqueue(topic, "old", id=id, delay="1h" if "delayed" in state else 0, unique_for=rule)
    if state == "ended":
        queue.cancel(topic, id)
    if state not in ("taken", "running", "retried", "dead"):
        return None
    claim = taken(queue, topic)
    if state == "taken":
        claim.finish()
    elif state == "retried":
        claim.fail("x", delay="1h")
    elif state == "dead":
        claim.bury("x")
    return claim


OPERATIONS: dict[str, Callable[[Queue, str, str], Any]] = {
    "reject": lambda queue, topic, name: queue.enqueue(topic, "new", id=name, delay="2h").body,
    "keep": lambda queue, topic, name: queue.enqueue(topic, "new", id=name, delay="2h", on_conflict="keep").state,
    "replace": lambda queue, topic, name: queue.enqueue(topic, "new", id=name, delay="2h", on_conflict="replace").body,
    "postpone": lambda queue, topic, name: (
        queue.enqueue(topic, "new", id=name, delay="2h", on_conflict="postpone").body
    ),
    "unique_for": lambda queue, topic, name: queue.enqueue(topic, "new", id=name, unique_for="1h", delay="2h").body,
    "rate_of_id": lambda queue, topic, name: queue.enqueue(topic, "new", id=name, rate_of_id="2/h", delay="2h").body,
    "many": lambda queue, topic, name: queue.enqueue_many(topic, [NewJob("new", id=name, delay="2h")]),
    "get": lambda queue, topic, name: (job := queue.get(topic, name)) and (job.state, job.body),
    "cancel": lambda queue, topic, name: queue.cancel(topic, name),
    "reschedule": lambda queue, topic, name: queue.reschedule(topic, name, delay="3h"),
    "kick": lambda queue, topic, name: queue.kick(topic, name),
    "purge": lambda queue, topic, name: queue.purge(topic, id=name),
    "find": lambda queue, topic, _: sorted((job.id, job.state) for job in queue.find(topic)),
    "cancel found": lambda queue, topic, _: queue.find(topic).cancel(),
    "reschedule found": lambda queue, topic, _: queue.find(topic).reschedule(delay="3h"),
    "kick found": lambda queue, topic, _: queue.find(topic, state="dead").kick(),
}


def outcome(queue: Queue, topic: str, id: str, operation: Callable[[Queue, str, str], Any]) -> Any:
    """What the call says, and the job afterwards."""
    try:
        said = operation(queue, topic, id)
    except StreamdqError as error:
        said = type(error)
    job = queue.get(topic, id)
    return said, job and (job.state, job.body, job.attempt)


@pytest.mark.parametrize("state", others_later(STATES, "none", "running", "dead"))
@pytest.mark.parametrize(
    ("before", "after", "knows"),
    [
        (2, 4, False), *(pytest.param(*case, marks=LATER) for case in [(4, 2, True), (4, 2, False), (3, 5, True)])
    ],
)  # fmt: skip
def test_what_is_done_by_id_is_done_as_if_nothing_had_changed(
    space: Space, before: int, after: int, knows: bool, state: str
) -> None:
    """The other topic has the same history but for its number of shards. Who ``knows`` of the new number, or has yet to
    hear of it.
    """
    queue, ids = space.queue, iter(moving(before, after, 2 * len(OPERATIONS)))
    for name, operation in OPERATIONS.items():
        id = next(ids)
        found, claims = [], []
        for topic in ("t", "same"):
            queue.configure(topic, shards=before)
            claims.append(bring_about(queue, topic, id, state))
            caller = queue if knows else space.another_queue()
            caller.stats(topic)
            if topic == "t":
                queue.configure(topic, shards=after)
            found.append(outcome(caller, topic, id, operation))
            assert holders(queue, id, topic) <= 1
        assert found[0] == found[1], name
        assert space.audit().balanced
        for topic in ("t", "same"):
            queue.delete_topic(topic, force=True)


@several
async def test_all_jobs_run_once_and_then_the_topic_is_resharded(space: Space, before: int, after: int) -> None:
    space.queue.configure("t", shards=before)
    ids = {f"a{n}" for n in range(30)}
    space.queue.enqueue_many("t", [NewJob(id, id=id, delay="200ms") for id in ids])
    changed = space.queue.configure("t", shards=after)
    assert changed.layout == Layout(after, (before,), changed.since)
    assert not look_whether_resharded(space.queue)
    more = {f"b{n}" for n in range(30)}
    again = space.queue.enqueue_many("t", [NewJob(id, id=id) for id in sorted(ids | more)])
    assert (again.created, set(again.existing)) == (30, ids)
    await all_run(space, ids | more)
    assert look_whether_resharded(space.queue)
    assert layout_of(space.queue) == Layout(after, (), changed.since)
    assert space.queue.configure("t").layout.text == str(after)
    last = {f"c{n}" for n in range(12)}
    space.another_queue().enqueue_many("t", [NewJob(id, id=id) for id in last])
    await all_run(space, last)


async def test_it_can_change_again_before_it_is_resharded(space: Space) -> None:
    put: set[str] = set()
    for count in (2, 5, 3, 4):
        space.queue.configure("t", shards=count)
        for n in range(20):
            id = f"{count}-{n}"
            space.queue.enqueue("t", id, id=id, delay="300ms")
            put.add(id)
        for id in put:
            with pytest.raises(JobExists):
                space.queue.enqueue("t", "again", id=id)
            assert holders(space.queue, id) == 1
    with pytest.raises(TopicNotEmpty, match="when it had 2, 5, 3, 4 shards: wait until"):
        space.queue.configure("t", shards=7)
    assert space.queue.configure("t", shards=3).former == (2, 5, 4), "one that it had before"
    await all_run(space, put)
    assert space.queue.configure("t", shards=7).shards == 7, "whoever changes it looks whether it is resharded"


def test_keys_decide_as_before(space: Space) -> None:
    space.queue.configure("t", shards=1)
    for n in range(40):
        space.queue.enqueue("t", n, id=f"j{n}", key=f"k{n % 7}", delay="1h")
    for count in (3, 2):
        space.queue.configure("t", shards=count)
        for n in range(40):
            with pytest.raises(JobExists):
                space.queue.enqueue("t", "again", id=f"j{n}", key=f"k{n % 7}")
            assert holders(space.queue, f"j{n}") == 1
    assert {job.id for job in space.queue.find("t", key="k3")} == {f"j{n}" for n in range(3, 40, 7)}
    assert all(space.queue.get("t", f"j{n}", key=f"k{n % 7}") for n in range(20))
    assert all(space.queue.cancel("t", f"j{n}") for n in range(20)), "by the id alone"
    assert all(space.queue.reschedule("t", f"j{n}", delay="2h", key=f"k{n % 7}") for n in range(20, 40))


def test_jobs_with_keys_from_when_there_was_one_shard_are_found_when_it_is_resharded(space: Space) -> None:
    """Those that are at home where they are stay, and nobody has said that there are keys."""
    space.queue.configure("t", shards=1)
    at_home = [f"k{n}" for n in range(50) if len(candidate_shards("", 3, [1], f"k{n}")) == 1]
    for key in at_home:
        space.queue.enqueue("t", key, id=f"id of {key}", key=key, delay="1h")
    space.queue.configure("t", shards=3)
    assert look_whether_resharded(space.queue)
    assert all(space.another_queue().get("t", f"id of {key}") for key in at_home)


@several
def test_an_id_that_is_taken_after_the_topic_was_found_empty(space: Space, before: int, after: int) -> None:
    """Its job has ended as well before the shard is told to close."""

    def change() -> Iterator[None]:
        with contextlib.suppress(StreamdqError):
            space.queue.delete_topic("t", force=True)
        space.queue.configure("t", shards=before)
        return configuring(space.queue, shards=after)

    (id,), kept = moving(before, after, 1), 0
    for cut in range(1, 30):
        changing = change()
        done = sum(1 for _ in islice(changing, cut))
        other = space.another_queue(call_timeout_s=0.3)
        with contextlib.suppress(ServerUnavailable):  # it is closed
            other.enqueue("t", "x", id=id, unique_for="1h")
            assert other.cancel("t", id)
        for _ in changing:
            pass
        kept += bool(layout_of(space.queue).former)
        later = space.another_queue()
        later.enqueue("t", "x", id=id, unique_for="1h", on_conflict="keep")
        with pytest.raises(JobExists):
            later.enqueue("t", "x", id=id, unique_for="1h")
        assert taken_in(space.queue, id) == 1, cut
        if done < cut:
            break
    assert kept


def taken_in(queue: Queue, id: str) -> int:
    """In how many shards the id is taken."""
    shards = queue._store.topics.all_shards("t")
    return sum(bool(run(queue._link, queue._store.session.call([_has(shard.taken, id)]))[0]) for shard in shards)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (1, 3), (4, 3)])
def test_ids_of_jobs_with_keys_stay_taken(space: Space, before: int, after: int) -> None:
    """Nothing tells to which key an id belongs whose job has ended; that its hash leads to this shard says nothing."""
    space.queue.configure("t", shards=before)
    keys, ids = (f"k{n}" for n in range(99)), (f"id {n}" for n in range(99))
    key = next(key for key in keys if after > shard_of("", before, key) != shard_of("", after, key))
    id = next(id for id in ids if shard_of(id, after) == shard_of("", before, key))
    space.queue.enqueue("t", "x", id=id, key=key, unique_for="1h")
    (claim := space.queue.take("t") or pytest.fail("nothing came")).finish()
    space.queue.configure("t", shards=after)
    assert claim.job.id == id
    for _ in range(2):
        assert not look_whether_resharded(space.queue)
    with pytest.raises(JobExists):
        space.another_queue().enqueue("t", "x", id=id, key=key, unique_for="1h")


def test_a_repeated_call_finds_its_job_though_the_number_changed_meanwhile(space: Space) -> None:
    """Its id is generated: so only the call itself can have used it."""
    for before, after in CHANGES:
        space.queue.configure("t", shards=before)
        given = [encode(NewJob(n, delay="1h"), 1000) for n in range(20)]
        assert all(job.has_new_id for job in given)
        stale = space.another_queue()
        putting = steps(stale, enqueue.put(stale._store, "t", given))
        for _ in zip(range(before + 1), putting, strict=False):  # the replies to the last calls are lost
            pass
        space.queue.configure("t", shards=after)
        known = space.queue._store.topics.known["t"].model_copy(update={"shards": before, "former": (), "since": 0})
        stale._store.topics.known["t"] = known
        run(stale._link, enqueue.put(stale._store, "t", given))
        assert space.queue.stats("t").topics["t"].enqueued == 20
        space.queue.delete_topic("t", force=True)


def test_so_does_a_single_one_while_another_thread_learns_the_new_number(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in (f"t{n}" for n in range(10)):  # in nearly all, the job would have another home
        space.queue.configure(topic, shards=1)
        stale = space.another_queue()
        stale.enqueue(topic, 0, delay="1h")
        calls: list[Sequence[Command]] = []

        def send(
            commands: Sequence[Command],
            *args: Any,
            calls: list[Sequence[Command]] = calls,
            real: Callable[..., list[Any]] = stale._link.send,
            stale: Queue = stale,
            topic: str = topic,
        ) -> list[Any]:
            calls.append(commands)
            replies = real(commands, *args)
            if len(calls) == 1:
                space.queue.configure(topic, shards=8)
                raise LinkError(TimeoutError("the reply is lost"), sent=True)
            if len(calls) == 2:  # it was refused, because it named the former number
                run(stale._link, stale._store.topics.repair(topic))
            return replies

        monkeypatch.setattr(stale._link, "send", send)
        stale.enqueue(topic, 1, delay="1h")
        assert len(calls) > 2
        assert space.queue.stats(topic).topics[topic].enqueued == 2


# Cut off anywhere, and raced.


@several
@pytest.mark.parametrize("there", [12, pytest.param(0, marks=LATER)], ids=["with jobs", "empty"])
async def test_a_change_that_was_cut_anywhere(space: Space, before: int, after: int, there: int) -> None:
    cuts = 0

    def change() -> Iterator[None]:
        with contextlib.suppress(StreamdqError):
            space.queue.delete_topic("t", force=True)
        space.queue.configure("t", shards=before)
        space.queue.enqueue_many("t", [NewJob(f"old {n}", id=f"old {n}") for n in range(there)])
        return configuring(space.queue, shards=after)

    for _ in each_cut(change):
        cuts += 1
        stale = space.another_queue()
        stale._store.topics.known["t"] = space.queue._store.topics.known["t"].model_copy(
            update={"shards": before, "former": (), "since": 0}
        )
        ids = {f"new {n}" for n in range(12)} | {f"old {n}" for n in range(there)}
        result = stale.enqueue_many("t", [NewJob(id, id=id) for id in sorted(ids)])
        assert result.created == 12
        assert all(space.queue.get("t", id) is not None for id in ids)
        assert all(holders(stale, id) == 1 for id in ids)
        assert stale.audit().balanced
        await all_run(space, ids)
    assert cuts > 4


@pytest.mark.parametrize(("before", "after"), [(2, 4), *(pytest.param(*change, marks=LATER) for change in CHANGES[1:])])
def test_two_who_put_in_the_same_id_while_the_number_changes(space: Space, before: int, after: int) -> None:
    """The change, and another one's call, come between any two calls of the first one."""
    (id,), one_more = moving(before, after, 1), 0
    for knows in (True, False):
        for changed_at in range(0, 12, 1 if knows else 3):
            for other_at in range(12):
                space.queue.configure("t", shards=before)
                space.queue.enqueue("t", "there", id="there", delay="1h")
                slow, other = space.another_queue(), space.another_queue()
                if knows:
                    slow.stats("t")
                other.stats("t")
                created = []
                putting = steps(slow, enqueue_many.enqueue_many(slow._store, "t", [NewJob("x", id=id, delay="1h")]))
                calls = -1
                for calls, _ in enumerate(putting):
                    if calls == changed_at:
                        space.queue.configure("t", shards=after)
                    if calls == other_at:
                        created.append(other.enqueue_many("t", [NewJob("y", id=id, delay="1h")]).created)
                assert holders(space.queue, id) == 1, (changed_at, other_at)
                one_more += calls
                space.queue.delete_topic("t", force=True)
                if calls < other_at:
                    break
    assert one_more


def test_who_slept_between_two_calls_does_not_act_in_a_later_change(space: Space) -> None:
    """It has asked the id's previous shard; meanwhile the topic is resharded, and changes back and forth."""
    (id,) = moving(2, 4, 1)
    space.queue.configure("t", shards=2)
    space.queue.enqueue("t", "there", id="there", delay="1h")
    space.queue.configure("t", shards=4)
    slow = space.another_queue()
    slow.stats("t")
    putting = steps(slow, enqueue_many.enqueue_many(slow._store, "t", [NewJob("slow", id=id, delay="1h")]))
    next(putting)
    next(putting)  # the previous shard has answered
    space.queue.cancel("t", "there")
    assert look_whether_resharded(space.queue)
    space.queue.enqueue("t", "there", id="there", delay="1h")
    space.queue.configure("t", shards=2)
    space.queue.enqueue("t", "quick", id=id, delay="1h")
    assert look_whether_resharded(space.queue) or space.queue.cancel("t", "there")
    space.queue.configure("t", shards=4)
    for _ in putting:
        pass
    assert holders(space.queue, id) == 1
    assert space.queue.get("t", id).body == "quick"  # type: ignore[union-attr]


@several
async def test_the_mover_completes_it(
    space: Space, redis_server: Server, before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resharding, "_LOOK_S", 0.05)
    space.queue.configure("t", shards=before)
    ids = moving(before, after, 3)
    space.queue.enqueue_many("t", [NewJob(id, id=id, delay="1h") for id in ids])
    space.queue.configure("t", shards=after)
    async with mover_at(redis_server.url, "m"):
        for id in ids:
            assert layout_of(space.queue).former == (before,)
            assert space.queue.cancel("t", id)
        await eventually(lambda: not layout_of(space.queue).former, "it is resharded")
    assert layout_of(space.queue).shards == after


@pytest.mark.parametrize("restarted", [True, False])
def test_the_walk_begins_anew_where_a_server_was_restarted(
    space: Space, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """A hash is then in another order, and what was left is no longer behind the cursor."""
    monkeypatch.setattr(walking, "_PAGE", 10)
    space.queue.configure("t", shards=4)
    ids = (f"id {number}" for number in range(10_000))
    at_home = islice((id for id in ids if len(candidate_shards(id, 8, [4])) == 1), 800)
    space.queue.enqueue_many("t", [NewJob("x" * 99, id=id, delay="1h") for id in (*at_home, *moving(4, 8, 12))])
    space.queue.configure("t", shards=8)
    store = space.queue._store
    walk = Walk(store.session, store.scripts, "t", store.topics.known["t"])
    assert run(space.queue._link, walk.go_on(1000)) is False
    cursors = {(place.shard, place.cursor) for place in walk._places}
    assert any(cursor != b"0" for _, cursor in cursors)
    if restarted:
        monkeypatch.setattr(walking, "_run_in", lambda _: "another run")
    asked: list[tuple[Any, bytes]] = []
    list_ids = store.scripts.list_ids

    def noted(k: Any, spread: Any, kind: str, cursor: bytes, limit: int) -> Any:
        asked.append((k, cursor))
        return list_ids(k, spread, kind, cursor, limit)

    monkeypatch.setattr(store.scripts, "list_ids", noted)
    assert run(space.queue._link, walk.go_on(1000)) is False
    first = dict(reversed(asked))
    assert (set(first.values()) == {b"0"}) == restarted
    assert walk.strays


@pytest.mark.parametrize("ends", ["an error", "a shard that has yet to hear of it"])
@pytest.mark.parametrize("page", [1, 3])
def test_a_walk_that_ended_early_has_been_nowhere(
    space: Space, monkeypatch: pytest.MonkeyPatch, ends: str, page: int
) -> None:
    """What waited to be looked at again was forgotten, and the topic seemed to be resharded."""
    space.queue.configure("t", shards=2)
    space.queue.enqueue_many("t", [NewJob(1, id=id, delay="1h") for id in moving(2, 4, 20)])
    space.queue.configure("t", shards=4)
    store = space.queue._store
    walk = Walk(store.session, store.scripts, "t", store.topics.known["t"])
    list_ids, asked = store.scripts.list_ids, iter(range(1, 1000))

    def cut(*arguments: Any) -> Any:
        if next(asked) != page:
            return (yield from list_ids(*arguments))
        if ends == "an error":
            raise ServerUnavailable("the reply is lost")
        return None

    monkeypatch.setattr(store.scripts, "list_ids", cut)
    with contextlib.suppress(ServerUnavailable):
        assert run(space.queue._link, walk.go_on(1000)) is None
    for _ in range(2):
        assert run(space.queue._link, walk.go_on(1000)) is False
    assert walk.strays == 20


def test_how_much_is_left(space: Space) -> None:
    """Counted where a page has all, otherwise estimated."""

    def left() -> list[str]:
        found = run(space.queue._link, doctor(space.queue._store))
        return [one.what for one in found if "resharding" in one.what]

    space.queue.configure("t", shards=2)
    ids = moving(2, 4, 3)
    space.queue.enqueue("t", 1, id=ids[0], delay="1h", unique_for="2h")
    space.queue.enqueue_many("t", [NewJob(1, id=id, delay="1h") for id in ids[1:]])
    assert left() == []
    space.queue.configure("t", shards=4)
    among = "are where they were put among 2 shards, not 4"
    assert left() == [f"topic t is still resharding: 3 jobs and 1 taken ids {among}"]
    assert all(space.queue.cancel("t", id) for id in ids)
    assert left() == [f"topic t is still resharding: 0 jobs and 1 taken ids {among}"]
    space.queue.delete_topic("t", force=True)

    space.queue.configure("t", shards=2)
    space.queue.enqueue_many("t", [NewJob(1, delay="1h") for _ in range(4000)])
    space.queue.configure("t", shards=4)
    (text,) = left()
    jobs = re.search(r"about ([\d,]+) jobs and 0 taken", text)
    assert jobs is not None
    assert 1500 < int(jobs[1].replace(",", "")) < 2500


def test_a_server_that_is_restarted_at_the_end_of_the_walk(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    space.queue.configure("t", shards=2)
    space.queue.enqueue("t", 1, id="x", delay="1h")
    space.queue.configure("t", shards=4)
    space.queue.cancel("t", "x")
    runs = iter(range(100))
    monkeypatch.setattr(walking, "_run_in", lambda _: str(next(runs)))
    assert not look_whether_resharded(space.queue)
    monkeypatch.setattr(walking, "_run_in", lambda _: "the same")
    assert look_whether_resharded(space.queue)


def test_a_server_that_lost_its_last_writes_in_the_middle_of_the_walk(
    space: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is back in a shard that the walk was through with, as another one was still resharding."""
    space.queue.configure("t", shards=2)
    gone = next(id for id in moving(2, 4, 50) if shard_of(id, 2) == 0)
    waits = next(id for id in moving(2, 4, 50) if shard_of(id, 2) == 1)
    space.queue.enqueue_many("t", [NewJob(1, id=id, delay="1h") for id in (gone, waits)])
    space.queue.configure("t", shards=4)
    store = space.queue._store
    shards = store.topics.all_shards("t")
    with redis_server.client() as client:
        before = {key: client.dump(key) for key in client.keys(f"{shards[0].prefix}*")}
        assert space.queue.cancel("t", gone)
        walk = Walk(store.session, store.scripts, "t", store.topics.known["t"])
        assert run(space.queue._link, walk.go_on(1000)) is False
        assert space.queue.cancel("t", waits)
        for key, value in before.items():  # as the replica has it that takes over
            client.restore(key, 0, value, replace=True)
        monkeypatch.setattr(walking, "_run_in", lambda _: "another run")
    assert run(space.queue._link, walk.go_on(1000)) is False
    assert space.queue.cancel("t", gone)
    assert run(space.queue._link, walk.go_on(1000)) is True


def test_schedules_go_on(space: Space) -> None:
    space.queue.schedule("t", "x", id="s", every="1h")
    space.queue.trigger("t", "s")
    space.queue.configure("t", shards=4)
    job = space.queue.trigger("t", "s")
    assert space.queue.get("t", job.id) is not None
    assert space.queue.schedule("t", "y", id="s", every="1h").next_ms
    assert space.queue.unschedule("t", "s")
    assert space.audit().balanced


def test_occurrences_that_are_there_are_not_enqueued_again(space: Space) -> None:
    """Their ids were made for another number of shards."""
    space.queue.configure("t", shards=2)
    space.queue.schedule("t", "x", id="s", cron="* * * * *")
    begin = datetime(2026, 1, 5, tzinfo=UTC)
    assert space.queue.backfill("t", "s", begin, begin + timedelta(minutes=30)) == 30
    space.queue.configure("t", shards=5)
    assert space.queue.backfill("t", "s", begin, begin + timedelta(minutes=40)) == 10
    space.queue.unschedule("t", "s")


def test_limits_of_keys_do_not_come_with_another_number(space: Space) -> None:
    space.queue.configure("t", shards=2)
    space.queue.enqueue("t", 1, key="k", delay="1h", id="j")
    with pytest.raises(TopicNotEmpty, match="its keys have limits"):
        space.queue.configure("t", shards=3, key_concurrency=1)
    assert (space.queue.configure("t").shards, space.queue.configure("t").key_limited) == (2, False)
    space.queue.cancel("t", "j")
    changed = space.queue.configure("t", shards=3, key_concurrency=1)
    assert (changed.shards, changed.former, changed.key_limited) == (3, (), True)
    space.queue.enqueue("u", 1, delay="1h")
    space.queue.configure("u", shards=2)
    with pytest.raises(TopicNotEmpty, match="had 1 shards: its keys can have limits only when"):
        space.queue.configure("u", key_concurrency=1)


def test_a_job_that_comes_where_its_id_is_taken_is_seen_by_the_walk(stepped: Space, clock: ManualClock) -> None:
    """The walk has been through the jobs, and waits for the id: when that is no longer taken, the job is there."""
    queue, (id,) = stepped.queue, moving(2, 4, 1)
    queue.configure("t", shards=2)
    queue.enqueue("t", "x", id=id, unique_for="1h")
    queue.cancel("t", id)
    queue.configure("t", shards=4)
    store = queue._store
    walk = Walk(store.session, store.scripts, "t", store.topics.known["t"])
    assert run(queue._link, walk.go_on(1000)) is False
    queue.enqueue("t", "later", id=id, delay="30d")
    clock.advance("2h")
    for _ in range(3):
        assert run(queue._link, walk.go_on(1000)) is False
    assert queue.cancel("t", id)
    assert run(queue._link, walk.go_on(1000)) is True


# Who has yet to hear of the change, and what the shards have that are not used any more.


@pytest.mark.parametrize(("before", "after"), [(2, 4), pytest.param(4, 2, marks=LATER)])
async def test_a_job_comes_into_a_change(space: Space, before: int, after: int) -> None:
    """The other way round: a job is put in between any two calls of the change. Then the topic is no longer empty."""
    changed = set()
    for moment in range(60):
        space.queue.configure("t", shards=before)
        stale = space.another_queue()
        stale.stats("t")
        changing, calls = configuring(space.queue, shards=after), 0
        for calls, _ in enumerate(changing):
            if calls == moment:
                stale.enqueue("t", "x", id="x")
        settings = space.queue.configure("t")
        assert settings.shards == after
        changed.add(bool(settings.former))
        ran = moment <= calls
        await all_run(space, {"x"} if ran else set())
        space.queue.delete_topic("t", force=True)  # its worker has just left
        if not ran:
            break
    assert changed == {True, False}


async def test_take_finds_what_is_in_shards_that_it_did_not_know(space: Space) -> None:
    stale = space.another_queue()
    space.queue.configure("t", shards=1)
    assert not stale.take("t", timeout=0)
    space.queue.configure("t", shards=4)
    space.queue.enqueue_many("t", [NewJob(n) for n in range(8)])
    for _ in range(8):
        taken(stale, "t", timeout=HANG_S).finish()
