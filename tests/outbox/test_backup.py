"""Redis goes back to a copy of its data, of RDB or AOF: what docs/backup.md says of each kind of job."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamdq import Job, Queue, StaleClaim
from streamdq.outbox import rows
from streamdq.outbox.relay import Relay
from streamdq.queue import Claim
from tests.outbox.orders import Shop
from tests.servers import Binary, Server, binaries
from tests.waiting import HANG_S, until

EACH = [pytest.param(binary, id=binary.name) for binary in binaries()]  # conftest leaves all but one to make test-all
TOPIC, LATER = "order.close", "order.mail"


@pytest.fixture(params=EACH)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    binary: Binary = request.param
    with Server(binary, appendonly=True) as opened:
        yield opened


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite:///{tmp_path}/shop.db"
    rows.create(url)
    with contextlib.closing(Shop(url)) as opened:
        yield opened


# -- the copies, step by step as the page says


def _persisted(server: Server, running: str, status: str) -> None:
    with server.client() as client:
        until(lambda: client.info("persistence")[running] == 0, "Redis has written its file")
        assert client.info("persistence")[status] == "ok"


def _append_folder(server: Server) -> Path:
    """Redis 6.2 has one file instead."""
    found = server.directory / "appendonlydir"
    return found if found.exists() else server.directory / "appendonly.aof"


def _copy(path: Path, to: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, to)
    else:
        shutil.copy(path, to)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def rdb(server: Server, to: Path) -> None:
    with server.client() as client:
        client.bgsave()
    _persisted(server, "rdb_bgsave_in_progress", "rdb_last_bgsave_status")
    _copy(server.directory / "dump.rdb", to)


def restore_rdb(server: Server, copy: Path) -> None:
    server.stop()
    _remove(_append_folder(server))
    _copy(copy, server.directory / "dump.rdb")
    server.options["appendonly"] = "no"
    server.start()
    with server.client() as client:
        client.config_set("appendonly", "yes")
    _persisted(server, "aof_rewrite_in_progress", "aof_last_bgrewrite_status")
    server.options["appendonly"] = "yes"
    server.restart()


def aof(server: Server, to: Path) -> None:
    with server.client() as client:
        client.config_set("auto-aof-rewrite-percentage", 0)
        client.config_set("appendfsync", "always")
        client.set("written", 1)  # all before it is in the file
        client.delete("written")
    _persisted(server, "aof_rewrite_in_progress", "aof_last_bgrewrite_status")
    _copy(_append_folder(server), to)


def restore_aof(server: Server, copy: Path) -> None:
    server.stop()
    there = _append_folder(server)
    _remove(there)
    _copy(copy, there)
    server.start()


WAYS = {"rdb": (rdb, restore_rdb), "aof": (aof, restore_aof)}


# -- the test


@pytest.mark.parametrize("way", WAYS)
def test_redis_goes_back_to_yesterday(server: Server, shop: Shop, tmp_path: Path, way: str) -> None:
    save, restore = WAYS[way]
    with Queue(server.url) as queue:
        rescheduled = _yesterday(queue)
        save(server, tmp_path / "copy")
        claim = _today(queue, shop)
        assert queue.audit().balanced

        restore(server, tmp_path / "copy")

        assert queue.audit().balanced, "jobs and counters are of the same moment"
        with pytest.raises(StaleClaim):
            claim.finish()
    with Queue(server.url) as queue:
        _check(queue, rescheduled)
        _reconcile(queue, shop)
        _end(queue, TOPIC, "buried", "cancelled", "finished", "kept row", "parent")
        _end(queue, LATER, "child")
        audit = queue.audit()
        assert audit.balanced
        assert audit.left == 2, "the one that runs, and the rescheduled one"


def _yesterday(queue: Queue) -> Job:
    """What is there when the copy is made."""
    queue.configure(TOPIC, create=True, ttr="1h", result="1d")
    queue.configure(LATER, create=True)
    for id in ("with a result", "kicked", "running"):
        queue.enqueue(TOPIC, {}, id=id)
        claim = _claim(queue, TOPIC)
        if id == "with a result":
            claim.finish({"pages": 12})
        elif id == "kicked":
            claim.bury("no")
    queue.schedule(LATER, {}, id="nightly", every="1d")
    for id in ("finished", "cancelled", "buried"):
        queue.enqueue(TOPIC, {}, id=id)
    parent = queue.enqueue(TOPIC, {}, id="parent")
    queue.enqueue(LATER, {}, id="child", after=[parent])
    return queue.enqueue(TOPIC, {}, id="rescheduled", delay="1h")


def _today(queue: Queue, shop: Shop) -> Claim:
    """What the copy does not have. The claim is of a worker that goes on, as if nothing had happened."""
    assert queue.cancel(TOPIC, "cancelled")
    for _ in range(3):
        claim = _claim(queue, TOPIC)
        claim.bury("no") if claim.job.id == "buried" else claim.finish({"pages": 13})
    queue.kick(TOPIC, id="kicked")
    _end(queue, TOPIC, "kicked")
    _end(queue, LATER, "child")
    queue.reschedule(TOPIC, "rescheduled", delay="2h")
    queue.pause_schedule(LATER, "nightly")
    shop.order("kept row")
    with Relay(shop.url, queue, keep=True) as relay:
        relay.run(burst=True)
    queue.enqueue(TOPIC, {}, id="lost")
    claims = [_claim(queue, TOPIC) for _ in range(2)]
    return next(claim for claim in claims if claim.job.id == "lost")


def _check(queue: Queue, rescheduled: Job) -> None:
    states = {
        id: _state(queue, id)
        for id in ("with a result", "finished", "cancelled", "buried", "kicked", "running", "kept row", "lost")
    }
    assert states == {
        "with a result": None, "finished": "ready", "cancelled": "ready", "buried": "ready", "kicked": "dead",
        "running": "running", "kept row": None, "lost": None,
    }  # fmt: skip
    assert queue.result(TOPIC, "with a result", timeout=0) == {"pages": 12}
    assert _state(queue, "child", LATER) == "waiting"
    found = queue.get(TOPIC, "rescheduled")
    assert found is not None
    assert found.due_ms == rescheduled.due_ms
    assert queue.get_schedule(LATER, "nightly").state == "active"


def _reconcile(queue: Queue, shop: Shop) -> None:
    with Relay(shop.url, queue, keep=True) as relay:
        relay.reconcile()
        assert relay.totals.put_back == 1


def _claim(queue: Queue, topic: str) -> Claim:
    claim = queue.take(topic, timeout=HANG_S)
    assert claim
    return claim


def _end(queue: Queue, topic: str, *ids: str) -> None:
    """Ends so many jobs as they become ready; they are these."""
    found = []
    for _ in ids:
        claim = _claim(queue, topic)
        found.append(claim.job.id)
        claim.finish()
    assert sorted(found) == sorted(ids)


def _state(queue: Queue, id: str, topic: str = TOPIC) -> str | None:
    job = queue.get(topic, id)
    return None if job is None else job.state.value
