"""Data of earlier versions: they are read, and every job of them ends as it would have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamdq import Queue, Worker
from streamdq.archive import Archive
from streamdq.codec import Encrypt, Zstd
from streamdq.errors import FORMAT
from streamdq.job.job import FLOWS
from streamdq.keys import NamespaceKeys, ShardKeys
from streamdq.outbox.relay import Relay
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE, SETTINGS, Space, opened
from tests.servers import Server
from tests.upgrade import stored
from tests.upgrade.content import BUILT, KEY, START_MS, filled
from tests.waiting import eventually

FILES = [pytest.param(path, id=path.name.partition(".json")[0]) for path in sorted(stored.FOLDER.iterdir())]
NO_UPGRADE_MEETS = {"absent", "probe", "session", "sessions", "mover", "standbys"}
"""Keys that never exist, or expire within hours, and then nobody misses them."""


# -- the format


def test_what_is_stored_has_the_shape_of_the_file(newest: Server) -> None:
    """If it has not: let this version read what earlier ones wrote, or raise the format's number (docs/upgrading.md).
    Then `python -m tests.upgrade` writes the file anew. That changes no file of a release.
    """
    content = stored.content_of(stored.CURRENT)
    assert content["format"] == FORMAT, "python -m tests.upgrade"
    with newest.client() as client:
        stored.load(client, content["keys"])
        written = stored.shapes(client)
        newest.flush()
        with filled(newest.url):
            now = stored.shapes(client)
    for key in written.keys() | now.keys():
        assert now.get(key) == written.get(key), key


def test_every_key_is_in_the_file() -> None:
    shard = ShardKeys(NAMESPACE, "t", 0)
    there = {key.partition("}:")[2].partition(":")[0] for key, *_ in stored.content_of(stored.CURRENT)["keys"]}
    of_shard = {str(getattr(shard, name)).partition("}:")[2] for name in ShardKeys.__slots__}
    of_namespace = {name for name in vars(NamespaceKeys) if not name.startswith("_")} - {"shard"}
    assert (of_shard | of_namespace | {"dead", "ranked", "result"}) - {""} - there == NO_UPGRADE_MEETS


# -- the files


@pytest.mark.thorough
@pytest.mark.parametrize("path", FILES)
def test_it_is_read_as_it_was(path: Path, redis_server: Server) -> None:
    content = stored.content_of(path)
    with redis_server.client() as client:
        stored.load(client, content["keys"])
    with Queue(redis_server.url, NAMESPACE, clock=ManualClock(START_MS + 1000)) as queue:
        assert stored.described(queue) == content["topics"]
        assert queue.result("results", "made", timeout=0) == {"total": 42}
        assert queue.audit().balanced


@pytest.mark.thorough
@pytest.mark.parametrize("path", FILES)
async def test_every_job_ends(path: Path, redis_server: Server, tmp_path: Path) -> None:
    """Claims are taken over; what others wait for reaches them; what was cut off is completed; dead letters go on."""
    content = stored.content_of(path)
    with redis_server.client() as client:
        stored.load(client, content["keys"])
    with opened(redis_server.url) as space:
        queue, done = space.queue, set[str]()
        with Archive(stored.database(content, "dead.db", tmp_path), NAMESPACE) as archive:
            archive.kick(queue, "archived")
        with Relay(stored.database(content, "shop.db", tmp_path), queue) as relay:
            relay.run(burst=True)
        for topic, group in (("plain", "default"), ("groups", "mail"), ("first", "default"), ("flow.bad", "default"),
                             ("results", "default")):  # fmt: skip
            assert queue.kick(topic, group=group, all=True) == 1, topic
        queue.resume("paused")
        queue.resume("keyed", key="merchant-8")
        assert queue.reschedule("plain", "retried", delay=0)
        queue.trigger("scheduled", "yearly")
        async with space.serving(*(_worker(space, group, content["topics"], done) for group in GROUPS)):
            await eventually(lambda: done >= EXPECTED, f"all is done but {EXPECTED - done}")
            await eventually(lambda: _state(queue, "runs") == "done", "the flow has ended")
            await eventually(lambda: not queue.find("flow.late", id_prefix="built-").count(), "it was withdrawn")
            await eventually(lambda: queue.get("plain", "aborted") is None, "it is cancelled")
        assert not done & {"default aborted", *(f"default built-{n}" for n in range(BUILT))}
        for topic in content["topics"].keys() - {FLOWS}:
            queue.find(topic).cancel()
        for flow in ("runs", "blocked", "ended", "dated"):
            queue.cancel_flow(flow)
        assert queue.audit().balanced
        assert {name for name, topic in queue.stats().topics.items() if topic.jobs} <= {FLOWS}


GROUPS = ("default", "billing", "mail")
EXPECTED = {
    *(f"default runs-{n}" for n in (2, "child", "join")), "default blocked-0", "default blocked-join",
    "default moved-1",
    *(f"default keyed-{n}" for n in (0, 1, 2, "paused")), "default paced-1", "default paced-2", "default waits",
    *(f"default {id}" for id in ("runs", "ready", "kicked", "dead", "retried")), "default notify-1",
    "billing one", "mail one", "mail apart", "default to-come", "default gave-up", "default after-delivered-not",
    "default after-to-come", "default after-gave-up", "default failed", "default encoded-1", "default archived-1",
    "default relayed-1", "default often@2026-11-18T11:06:41Z",
}  # fmt: skip


def _state(queue: Queue, flow: str) -> str:
    status = queue.flow_status(flow)
    return status.state if status else "unknown"


def _worker(space: Space, group: str, topics: dict[str, Any], done: set[str]) -> Worker:
    """For all topics of the group; its handlers note what they do."""
    worker = Worker(space.url, NAMESPACE, group, settings=SETTINGS, codec=[Zstd(), Encrypt(KEY)])

    async def handler(body: Any, job: Any) -> None:
        assert body, job.id
        done.add(f"{group} {job.id}")

    for name, topic in topics.items():
        if name != FLOWS and group in topic["accounts"]:
            worker.handler(name)(handler)
    return worker
