"""Topics whose number of shards changes while they hold jobs, when something else happens as well: another change, a
full memory, a lost node, an old copy of the data.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from streamdq import NewJob, Queue
from streamdq.errors import ServerUnavailable, StreamdqError, TopicNotEmpty
from streamdq.keys import candidate_shards
from streamdq.link.failures import LinkError
from streamdq.link.session import Op
from streamdq.mover import resharding
from streamdq.operations.topics import configure
from tests.conftest import EACH_BINARY
from tests.redis.harness import NAMESPACE, Seen, Space, opened, recorder
from tests.redis.test_lost_changes import keep, lose_since
from tests.redis.test_resharding import LATER, holders, layout_of, look_whether_resharded, moving
from tests.redis.topology import all_run, steps
from tests.servers import Binary, Cluster, Server
from tests.waiting import eventually

OTHERS: dict[str, Callable[[Queue], Op[Any]]] = {
    "more": lambda queue: configure.configure(queue._store, "t", shards=5),
    "fewer": lambda queue: configure.configure(queue._store, "t", shards=2),
    "the same": lambda queue: configure.configure(queue._store, "t", shards=4),
    "back": lambda queue: configure.configure(queue._store, "t", shards=3),
    "a group comes": lambda queue: configure.configure(queue._store, "t", groups=["default", "b"]),
    "limits": lambda queue: configure.configure(queue._store, "t", key_concurrency=2),
    "deletion": lambda queue: configure.delete_topic(queue._store, "t", force=True),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "other", ["fewer", *(pytest.param(other, marks=LATER) for other in OTHERS if other != "fewer")]
)
def test_two_operators_at_once(space: Space, other: str) -> None:
    """The second one's change comes, whole or cut off, between any two calls of the first one's."""
    calls = 0
    for first in range(1, 40):
        for second in (3, 8, 99):
            with contextlib.suppress(StreamdqError):
                space.queue.delete_topic("t", force=True)
            space.queue.configure("t", shards=3, groups=["default"])
            ids = [f"id {n}" for n in range(8)]
            space.queue.enqueue_many("t", [NewJob(id, id=id, delay="1h") for id in ids])
            changing = steps(space.queue, configure.configure(space.queue._store, "t", shards=4))
            calls = sum(1 for _ in islice(changing, first))
            beside = space.another_queue()
            with contextlib.suppress(TopicNotEmpty):
                for _ in islice(steps(beside, OTHERS[other](beside)), second):
                    pass
            with contextlib.suppress(TopicNotEmpty):
                for _ in changing:
                    pass
            producer = space.another_queue()
            found = producer.configure("t", create=True)
            assert not (found.former and found.key_limited)
            created = producer.enqueue_many("t", [NewJob(id, id=id, delay="1h") for id in ids]).created
            held = [holders(producer, id) for id in ids]
            if other == "deletion":  # which any process that meets it completes
                assert max(held) <= 1, (first, second)
            else:
                assert (created, held) == (0, [1] * 8), (first, second)
            assert [producer.cancel("t", id) for id in ids] == [one == 1 for one in held], (first, second)
            assert producer.audit().balanced
            assert look_whether_resharded(producer) or not layout_of(producer).former
        if calls < first:
            return
    raise AssertionError("it never ends")


@pytest.mark.thorough
def test_memory_that_is_full_in_the_middle(space: Space, redis_server: Server) -> None:
    with redis_server.client() as client:
        for cut in range(1, 30):
            space.queue.configure("t", shards=2)
            ids = moving(2, 4, 6)
            space.queue.enqueue_many("t", [NewJob(id, id=id, delay="1h") for id in ids])
            changing = steps(space.queue, configure.configure(space.queue._store, "t", shards=4))
            done = sum(1 for _ in islice(changing, cut))
            client.config_set("maxmemory", 1)
            try:
                with contextlib.suppress(StreamdqError):
                    for _ in changing:
                        pass
                with pytest.raises(StreamdqError):
                    space.another_queue(call_timeout_s=0.3).enqueue("t", "x", id=ids[0])
                assert space.another_queue().get("t", ids[0]) is not None
            finally:
                client.config_set("maxmemory", 0)
            fresh = space.another_queue()
            assert fresh.enqueue_many("t", [NewJob(id, id=id) for id in ids]).created == 0
            assert all(holders(fresh, id) == 1 for id in ids)
            assert all(fresh.cancel("t", id) for id in ids)
            assert fresh.audit().balanced
            fresh.delete_topic("t", force=True)
            if done < cut:
                return


@pytest.mark.parametrize("what", ["all", "registry", "shards"])
@pytest.mark.parametrize("resharded", [False, True])
@pytest.mark.parametrize(
    ("before", "after"), [(2, 4), *(pytest.param(*change, marks=LATER) for change in [(4, 2), (3, 5)])]
)
async def test_an_old_copy_of_the_data(
    space: Space, redis_server: Server, before: int, after: int, resharded: bool, what: str
) -> None:
    """From before the change; of everything, or of a part, as where the parts are on different nodes of a Cluster."""
    ids = set(moving(before, after, 6))
    with redis_server.client() as client:
        space.queue.configure("t", shards=before)
        space.queue.enqueue_many("t", [NewJob(id, id=id) for id in ids])
        old = keep(client)
        space.queue.configure("t", shards=after)
        if resharded:
            assert all(space.queue.cancel("t", id) for id in ids)
            assert look_whether_resharded(space.queue)
            space.queue.enqueue_many("t", [NewJob(f"new {n}", id=f"new {n}") for n in range(8)])
        new = keep(client)
        wanted = set(ids)
        if what == "registry":
            lose_since(client, {**new, b"{test}:topics": old[b"{test}:topics"]})
            wanted = {f"new {n}" for n in range(8)} if resharded else wanted
        elif what == "shards":
            lose_since(client, {**old, b"{test}:topics": new[b"{test}:topics"]})
        else:
            lose_since(client, old)
    for queue in (space.queue, space.another_queue()):
        known = {id for id in wanted if queue.get("t", id) is not None}
        assert known == wanted
        again = queue.enqueue_many("t", [NewJob(id, id=id) for id in sorted(wanted)])
        assert (again.created, set(again.existing)) == (0, wanted)
    await all_run(space, wanted)
    assert look_whether_resharded(space.another_queue()) or not layout_of(space.another_queue()).former


async def test_a_cluster_under_load(spread: Space, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resharding, "_LOOK_S", 0.1)
    worker, ids = spread.worker(), list[str]()
    worker.handler("t")(recorder(seen))
    spread.queue.configure("t", shards=2)
    async with spread.serving(worker):
        for number, count in enumerate((6, 3, 4, 2, 8)):
            ids += (f"{number} {n}" for n in range(60))
            jobs = [NewJob(id, id=id, delay=f"{n % 30 * 20}ms") for n, id in enumerate(ids[-60:])]
            spread.queue.enqueue_many("t", jobs)
            spread.queue.enqueue("t", "far off", id="far off", delay="1h", on_conflict="keep")
            try:
                spread.queue.configure("t", shards=count)
            except TopicNotEmpty:
                assert number > 2
                spread.queue.configure("t", shards=2)
            assert spread.queue.enqueue_many("t", jobs[20:]).created <= 40  # some may have ended
            ids += (f"new {number} {n}" for n in range(30))
            spread.queue.enqueue_many("t", [NewJob(id, id=id) for id in ids[-30:]])
            assert spread.queue.audit().balanced
            assert holders(spread.queue, "far off") == 1
        assert spread.queue.reschedule("t", "far off", delay=0)
        await eventually(lambda: spread.audit().left == 0, "all done")
        await eventually(lambda: not layout_of(spread.queue).former, "it is resharded")
    assert {*seen.all} == {*ids, "far off"}


@pytest.fixture(params=EACH_BINARY)
def breakable(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that a test may break."""
    binary: Binary = request.param
    with Cluster(binary, partial=True) as cluster:
        yield cluster


def node_answers(queue: Queue) -> bool:
    with contextlib.suppress(ServerUnavailable):
        return queue.audit("t").balanced
    return False


@pytest.mark.thorough
@pytest.mark.parametrize("cut", [0, 5, 7, 9])
async def test_a_node_that_is_lost_in_the_middle(breakable: Cluster, cut: int) -> None:
    """Before the change, nothing begins; later, what needs the node waits for it, and the rest goes on."""
    with opened(breakable.url, call_timeout_s=5) as space:
        queue = space.queue
        queue.configure("t", shards=4)
        ids = {f"j{n}" for n in range(24)}
        queue.enqueue_many("t", [NewJob(id, id=id) for id in ids])
        with breakable.client() as client:
            registry = client.get_node_from_key(f"{{{NAMESPACE}}}:topics").port
            ports = [client.get_node_from_key(f"{NAMESPACE}:{{t:{number}}}:jobs").port for number in range(8)]
        gone = next(port for port in ports[:4] if port != registry)
        node = next(node for node in breakable.nodes if node.port == gone)
        changing = steps(queue, configure.configure(queue._store, "t", shards=8))
        assert sum(1 for _ in islice(changing, cut)) == cut
        others = (f"n{n}" for n in range(999))
        here = [id for id in others if gone not in {ports[number] for number in candidate_shards(id, 8, [4])}][:20]
        os.kill(node.pid, signal.SIGSTOP)
        try:
            with pytest.raises((LinkError, ServerUnavailable)):
                for _ in changing:
                    pass
            assert layout_of(queue).former == ((4,) if cut > 6 else ())
            for asking in (queue, space.another_queue()):
                assert asking.enqueue_many("t", [NewJob(id, id=id) for id in here]).created in (0, len(here))
        finally:
            os.kill(node.pid, signal.SIGCONT)
        await eventually(lambda: node_answers(queue), "the node is back")
        assert queue.configure("t", shards=8).shards == 8
        await all_run(space, ids | {*here})
