"""erase: nothing of a person is left in Redis, also if a run was killed at any of its steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from streamdq import AsyncQueue, Queue
from streamdq.codec import Encrypt
from streamdq.codec.encrypt import new_key
from streamdq.config import Settings
from streamdq.errors import InvalidInput, UnknownTopic
from streamdq.link.session import Op
from streamdq.operations.erase.report import Amount, Erased
from streamdq.queue import carry_out, store_of
from tests.redis.harness import NAMESPACE, Space, taken
from tests.servers import Cluster, Server

PERSON = "jane@example.com"


def everything(client: redis.Redis) -> str:
    """All that Redis holds, as one text."""
    found = []
    for key in client.scan_iter(count=1000):
        kind = client.type(key)
        read: dict[bytes, Callable[[Any], Any]] = {
            b"string": client.get, b"hash": client.hgetall, b"zset": lambda key: client.zrange(key, 0, -1),
            b"stream": client.xrange,
        }  # fmt: skip
        found.append(f"{key!r} {read[kind](key)!r}")  # type: ignore[index]
    return "\n".join(found)


def lives(queue: Queue, topic: str = "t", key: str | None = None, mark: str = "jane") -> None:
    """One job of each kind, all of the person: delayed, ready, to be retried, dead, done, with result and taken id."""
    queue.configure(topic, create=True, result="1d")
    body = {"email": f"{mark}@example.com"}

    def put(name: str, **options: Any) -> None:
        queue.enqueue(topic, body, id=f"{mark}-{name}", key=key, **options)

    put("done", unique_for="1d")
    taken(queue, topic).finish({"for": mark})
    put("retried")
    taken(queue, topic).fail(ValueError(f"no mail for {mark}"), delay="1h")
    put("dead")
    taken(queue, topic).bury(f"gave {mark} up")
    put("delayed", delay="1h")
    put("later", delay="2h")


def test_by_key_nothing_is_left_and_others_stay(space: Space, redis_server: Server) -> None:
    queue = space.queue
    lives(queue, key="merchant-jane")
    lives(queue, "other", key="merchant-jane")
    lives(queue, key="merchant-8", mark="jim")
    queue.enqueue("t", {"email": PERSON}, id="jane-ready", key="merchant-jane")
    with redis_server.client() as client:
        counted = queue.erase(key="merchant-jane", dry_run=True)
        assert (counted.dry_run, counted.whole) == (True, True)
        assert counted.places["history"] == Amount(6, 0)
        assert "jane" in everything(client)
        done = queue.erase(key="merchant-jane")
        assert "jane" not in everything(client)
        assert everything(client).count("jim") > 10
    assert done.whole
    assert done.places == {name: Amount(amount.found, amount.found) for name, amount in counted.places.items()}
    assert done.places == {
        "delayed jobs": Amount(6, 6), "ready jobs": Amount(1, 1), "dead letters": Amount(2, 2), "history": Amount(6, 6),
        "failures": Amount(4, 4), "results": Amount(2, 2), "taken ids": Amount(2, 2),
    }  # fmt: skip
    assert queue.erase(key="merchant-jane") == Erased()
    assert space.audit().balanced


def test_by_what_bodies_say(space: Space, redis_server: Server) -> None:
    """The row of a job that is done says nothing of the person but its id; those of other jobs go with them."""
    queue = space.queue
    lives(queue)
    lives(queue, mark="jim")
    done = queue.erase("t", where={"body.email": PERSON})
    assert done.whole
    assert done.places["history"] == Amount(2, 2)
    assert {row.id for row in queue.history("t").rows if "jane" in row.id} == {"jane-done"}
    assert queue.erase(where=["id=jane-done"]).whole
    with redis_server.client() as client:
        assert "jane" not in everything(client)


def test_one_of_several_topics(space: Space) -> None:
    lives(space.queue, key="k")
    lives(space.queue, "other", key="k")
    assert space.queue.erase("t", key="k").places["delayed jobs"] == Amount(3, 3)
    assert space.queue.find("t").count() == 0
    assert space.queue.find("other", key="k").count() == 4
    with pytest.raises(UnknownTopic):
        space.queue.erase("missing", key="k")


@pytest.mark.parametrize("wanted", [{}, {"where": []}, {"where": {}}])
def test_all_of_a_topic_is_refused(space: Space, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="key or where"):
        space.queue.erase(**wanted)


def test_a_job_that_runs_is_reported_and_erased_when_it_has_ended(space: Space, redis_server: Server) -> None:
    queue = space.queue
    queue.enqueue("t", {"email": PERSON}, id="jane", key="jane")
    claim = taken(queue, "t")
    found = queue.erase(key="jane")
    assert [(one.place, one.topic, one.ids) for one in found.remaining] == [("jobs", "t", ["jane"])]
    assert "running" in found.remaining[0].why
    claim.finish()
    assert queue.erase(key="jane").whole
    with redis_server.client() as client:
        assert "jane" not in everything(client)


def test_waiting_for_a_job_that_runs_erases_its_history_too(
    space: Space, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing but its body led to it, and the body is gone when it has ended."""
    queue = space.queue
    queue.enqueue("t", {"email": PERSON}, id="jane")
    claim = taken(queue, "t")

    def ended_meanwhile(_seconds: float) -> Op[None]:
        claim.finish()
        yield from ()

    monkeypatch.setattr("streamdq.operations.erase.erase.pause", ended_meanwhile)
    assert queue.erase(where={"body.email": PERSON}, wait="10m").whole
    with redis_server.client() as client:
        assert "jane" not in everything(client)


def test_a_job_that_runs_is_aborted_if_that_is_asked_for(space: Space) -> None:
    queue = space.queue
    queue.enqueue("t", {"email": PERSON}, id="jane", key="jane")
    claim = taken(queue, "t")
    assert not queue.erase(key="jane", abort=True).whole
    claim.fail("no matter")
    assert queue.get("t", "jane") is None
    assert queue.erase(key="jane").places == {"history": Amount(1, 1)}


def test_a_schedule_is_reported_and_removed_only_if_that_is_asked_for(space: Space) -> None:
    queue = space.queue
    queue.schedule("t", {"email": PERSON}, id="weekly", cron="0 9 * * 1")
    queue.schedule("t", {"email": "jim"}, id="others", cron="0 9 * * 1")
    found = queue.erase(where={"body.email": PERSON})
    assert [(one.place, one.ids) for one in found.remaining] == [("schedules", ["weekly"])]
    assert queue.erase(where={"body.email": PERSON}, schedules=True).places["schedules"] == Amount(1, 1)
    assert [one.id for one in queue.schedules("t")] == ["others"]


def test_a_body_without_its_key_is_counted(space: Space) -> None:
    with Queue(space.url, NAMESPACE, codec=[Encrypt(new_key("a"))]) as sealed:
        sealed.enqueue("t", {"email": PERSON}, id="jane", delay="1h")
        found = space.queue.erase(where={"body.email": PERSON})
        assert [(one.place, one.count) for one in found.remaining] == [("jobs", 1)]
        assert "keys" in found.remaining[0].why
        assert sealed.erase(where={"body.email": PERSON}).whole
    assert space.queue.find("t").count() == 0


def test_a_paused_key_is_forgotten(space: Space, redis_server: Server) -> None:
    queue = space.queue
    queue.configure("t", create=True, key_concurrency=1)
    queue.enqueue("t", 1, key="jane")
    queue.pause("t", key="jane")
    assert queue.erase(key="jane").places["settings of the key"] == Amount(1, 1)
    with redis_server.client() as client:
        assert "jane" not in everything(client)


def test_a_condition_on_the_key_forgets_the_key_as_well(space: Space, redis_server: Server) -> None:
    queue = space.queue
    queue.configure("t", create=True, key_concurrency=1)
    queue.enqueue("t", 1, key="jane")
    queue.pause("t", key="jane")
    assert queue.erase(where=["key=jane"]).places["settings of the key"] == Amount(1, 1)
    with redis_server.client() as client:
        assert "jane" not in everything(client)


def test_jobs_that_wait_for_others(space: Space) -> None:
    queue = space.queue
    first = queue.enqueue("t", 1, id="first", delay="1h")
    queue.configure("keyed", create=True, key_concurrency=1)
    queue.enqueue("t", {"email": PERSON}, id="jane", after=first)
    queue.enqueue("keyed", {"email": PERSON}, id="jane", key="jane", after=first)
    assert queue.erase(where={"body.email": PERSON}, dry_run=True).places == {"jobs that wait for others": Amount(2, 0)}
    assert queue.erase(where={"body.email": PERSON}).places == {"jobs that wait for others": Amount(2, 2)}
    assert queue.find("t").count() == 1
    assert queue.find("keyed").count() == 0


def test_each_state_of_a_job_has_a_place() -> None:
    from streamdq import JobState
    from streamdq.operations.erase.erase import _PLACES

    assert set(_PLACES) == set(JobState)


def test_groups_and_shards(space: Space, redis_server: Server) -> None:
    queue = space.queue
    queue.configure("t", create=True, groups=["a", "b"], shards=3)
    for n in range(6):
        queue.enqueue("t", {"email": PERSON}, id=f"jane-{n}")
    taken(queue, "t", "a").finish()
    taken(queue, "t", "b").bury("x")
    assert queue.erase(where={"body.email": PERSON}).whole
    with redis_server.client() as client:
        assert "jane" not in everything(client)
    assert space.audit().balanced


def test_large_bodies_and_results_go_with_their_jobs(space: Space, tmp_path: Path) -> None:
    settings = Settings(offload=str(tmp_path), offload_over_bytes=100, codec="offload")
    with Queue(space.url, NAMESPACE, settings=settings) as queue:
        queue.configure("t", create=True, result="1d")
        queue.enqueue("t", {"email": PERSON, "text": "x" * 1000}, id="jane", delay="1h")
        queue.enqueue("t", {"email": "jim", "text": "x" * 1000}, id="jim", delay="1h")
        assert queue.erase(where={"body.email": PERSON}).whole
        assert [path for path in tmp_path.rglob("*") if path.is_file() and "jane" in str(path)] == []
        assert [job.body["email"] for job in queue.find("t")] == ["jim"]


def test_on_a_cluster(spread: Space, redis_cluster: Cluster) -> None:
    queue = spread.queue
    queue.configure("t", create=True, shards=6)
    queue.configure("keyed", create=True, shards=6)
    for n in range(6):
        queue.enqueue("t", {"email": PERSON}, id=f"jane-{n}", delay="1h")
        queue.enqueue("keyed", {"email": PERSON}, id=f"jane-{n}", key="jane")
        taken(queue, "keyed").finish()
    assert queue.erase(where={"body.email": PERSON}).places == {"delayed jobs": Amount(6, 6)}
    assert queue.erase(key="jane").places == {"history": Amount(6, 6)}
    for node in redis_cluster.nodes:
        with node.client() as client:
            assert "jane" not in everything(client)


async def test_awaited(space: Space) -> None:
    lives(space.queue, key="k")
    async with AsyncQueue(space.url, NAMESPACE) as queue:
        found = await queue.erase(key="k")
    assert found.whole
    assert space.queue.find("t").count() == 0


def test_the_log_and_the_metrics_tell_nothing_of_the_person(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        "streamdq.operations.erase.erase.log.info", lambda event, **fields: logged.append((event, fields))
    )
    lives(space.queue, key="merchant-jane")
    space.queue.erase(key="merchant-jane")
    ((event, fields),) = logged
    assert event.startswith("erased")
    assert fields["erased"] == fields["found"] == 11
    assert "jane" not in json.dumps(fields)


class Killed(BaseException):
    """The process is no more."""


def killed_after(op: Op[Any], steps: int) -> Op[Any]:
    """The operation, until it has taken that many steps."""
    value: Any = None
    for _ in range(steps):
        value = yield op.send(value)
    op.close()
    raise Killed


@pytest.mark.thorough
@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param({"key": "jane"}, marks=pytest.mark.thorough, id="key"),
        pytest.param({"where": {"body.email": PERSON}}, id="body"),
    ],
)
def test_killed_after_each_step_and_run_again(space: Space, redis_server: Server, wanted: dict[str, Any]) -> None:
    """Whatever a whole run erases, a run that is killed and one after it erase as well."""
    erase = store_of(space.queue)
    with redis_server.client() as client:
        steps = 0
        while True:
            steps += 1
            client.flushall()
            space.queue.close()
            lives(space.queue, key="jane")
            space.queue.enqueue("t", {"email": PERSON}, id="jane-ready", key="jane")
            if "where" in wanted:  # of jobs that are gone only the id is left
                space.queue.erase(where=["id=jane-done"])
            operation = space_erase(erase, wanted)
            try:
                carry_out(space.queue, killed_after(operation, steps))
            except StopIteration:
                break
            except (Killed, RuntimeError) as error:
                if isinstance(error, RuntimeError):  # the operation has ended: a generator's StopIteration
                    break
            space.queue.erase(**wanted)
            assert "jane" not in everything(client), f"killed after step {steps}"
    assert steps > 8


def space_erase(store: Any, wanted: dict[str, Any]) -> Op[Erased]:
    from streamdq.operations.erase.erase import erase

    return erase(store, **wanted)
