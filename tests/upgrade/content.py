"""Every structure that streamdq keeps in Redis, in use at one moment: what an upgrade meets.

``filled`` makes it by the calls of programs, and yields while attempts run, flows are being built, and runs of an
archive and a relay are cut off.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import create_engine

from streamdq import NewJob, Queue, outbox
from streamdq.archive import Archive
from streamdq.archive.dead_letters import DeadLetters
from streamdq.codec import Encrypt, Zstd
from streamdq.dump.dumper import Dumper
from streamdq.dump.local import LocalFolder
from streamdq.job.job import Priority
from streamdq.operations.attempts.take import take
from streamdq.operations.flows import builder
from streamdq.operations.topics.stats import GroupStats
from streamdq.outbox.redis_side import RedisSide
from streamdq.outbox.relay import Relay
from streamdq.queue import Claim, carry_out, held_by, store_of
from streamdq.store.namespace import tell_hung
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE
from tests.waiting import HANG_S, until

KEY = "2026-11=3q2+796tvu/erb7v3q2+796tvu/erb7v3q2+796tvu8="
"""With which some bodies are encrypted. It protects nothing."""
START_MS = 1_795_000_000_000
FAR = datetime(2099, 1, 1, tzinfo=UTC)
LONG = "366d"

PRIORITIES: dict[str, Priority] = {"reset": "high", "receipt": "normal", "offer": "low", "news": "low"}

DATABASES = ("dead.db", "shop.db")
BUILT = 3
"""Jobs of the flow that is being built."""


class Cut(Exception):
    """A run ends here, as if its process was killed."""


@contextmanager
def repeatable() -> Iterator[None]:
    """What is random, or tells of the machine, is alike in each run."""
    numbers = itertools.count(1)

    def urandom(size: int) -> bytes:
        number = next(numbers)
        return b64decode(f"{number:010}" * 2) if size == 15 else bytes.fromhex(f"{number:0{2 * size}}")

    with patch.object(os, "urandom", urandom), patch.object(socket, "gethostname", lambda: "host"):
        yield


@contextmanager
def filled(url: str) -> Iterator[tuple[Queue, Path]]:
    """The content is there within the block, on a server that was empty; with a folder of the databases and a dump."""
    with repeatable(), ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        clock = ManualClock(START_MS)
        queue = opened.enter_context(Queue(url, NAMESPACE, clock=clock))
        _settings(queue)
        _by_movers(queue, clock)
        _keys(queue)
        _priorities(queue)
        _uniqueness(queue)
        queue._stop_mover()  # what follows stays as it is
        for part in (_plain, _groups, _results, _schedules, _after):
            part(queue)
        _flows(queue, opened)
        _encoded(url, clock)
        _from_databases(queue, folder)
        _dumped(url, folder)
        _processes(queue)
        yield queue, folder


def _taken(queue: Queue, topic: str, id: str, group: str = "default") -> Claim:
    """A claim of this job, the next of its topic. It starts no mover."""
    held = carry_out(queue, take(store_of(queue), topic, group, HANG_S))
    assert held is not None, f"{topic} has nothing for {group}"
    assert held.job.id == id, held.job.id
    return Claim(queue, held)


def _counts(queue: Queue, topic: str) -> GroupStats:
    return queue.stats(topic).topics[topic].groups["default"]


def _settings(queue: Queue) -> None:
    queue.configure("plain", create=True, shards=3, ttr="1m", retry="1s 2s", max_deliveries=7, durable="memory")
    queue.configure("limited", create=True, rate=5, dead_for=LONG)
    queue.configure("groups", create=True, groups=["billing", "mail"])
    queue.configure("keyed", create=True, key_order=True)
    queue.configure("paced", create=True, key_rate="1/1h")
    queue.configure("results", create=True, result=LONG)
    queue.configure("paused", create=True)
    queue.pause("paused")
    queue.enqueue("paused", {"n": 1}, id="waits")
    queue.configure("resharded", create=True, shards=2)
    queue.enqueue_many("resharded", [NewJob({"n": n}, id=f"old-{n}", at=FAR) for n in range(4)])
    queue.configure("resharded", shards=3)
    queue.enqueue_many("resharded", [NewJob({"n": n}, id=f"new-{n}", at=FAR) for n in range(4)])


def _by_movers(queue: Queue, clock: ManualClock) -> None:
    """What only a mover does: jobs that have come due, flows that have begun, an ending that was delivered."""
    for topic in ("flow.part", "flow.bad", "flow.end", "flow.join", "flow.late"):
        queue.configure(topic, create=True)
    with queue.flow("runs", keep=LONG) as flow:
        parts = flow.enqueue_many("flow.part", (NewJob({"n": n}, id=f"runs-{n}") for n in range(3)))
        flow.enqueue("flow.join", {"n": 3}, id="runs-join", after=parts)
    with queue.flow("blocked", keep=LONG) as flow:
        part = flow.enqueue("flow.bad", {"n": 0}, id="blocked-0")
        flow.enqueue("flow.join", {"n": 1}, id="blocked-join", after=part)
        flow.enqueue("flow.late", {"n": 2}, id="blocked-undo", after=part, on_failure="run", delay=LONG)
    with queue.flow("ended", keep=LONG) as flow:
        flow.enqueue("flow.end", {"n": 0}, id="ended-0")
    queue.enqueue("moved", {"n": 1}, id="moved-1", delay="1ms")
    clock.advance("1s")
    for topic in ("flow.part", "flow.bad", "flow.end"):
        claim = queue.take(topic, timeout=HANG_S)
        assert claim, topic
        claim.bury("no such order") if topic == "flow.bad" else claim.finish()
    until(lambda: _counts(queue, "moved").ready, "it is moved")
    until(lambda: _state(queue, "ended") == "done", "the flow has ended")
    until(lambda: queue.find("flow.join", state="blocked").count(), "a job of the flow is blocked")


def _state(queue: Queue, flow: str) -> str:
    status = queue.flow_status(flow)
    assert status is not None
    return status.state.value


def _plain(queue: Queue) -> None:
    def put(id: str, **options: Any) -> None:
        queue.enqueue("plain", {"id": id}, id=id, **options)

    put("done")
    _taken(queue, "plain", "done").finish()
    put("retried")
    _taken(queue, "plain", "retried").fail("no answer", delay=LONG)
    put("dead")
    _taken(queue, "plain", "dead").bury("no such order")
    put("purged")
    _taken(queue, "plain", "purged").bury("no such order")
    queue.purge("plain", "purged")
    put("cancelled", at=FAR)
    queue.cancel("plain", "cancelled")
    put("runs")
    claim = _taken(queue, "plain", "runs")
    claim.progress(0.5, "half")
    put("aborted")
    _taken(queue, "plain", "aborted")
    queue.abort("plain", "aborted")
    put("receipt")
    claim = _taken(queue, "plain", "receipt")
    held_by(claim).receipt = True  # as over HTTP
    claim.finish()
    put("delayed", at=FAR)
    put("own", at=FAR, ttr="7s", retry="3s 4s", expire="1h", version=2, url="https://shop.example/hooks")
    put("kicked")
    _taken(queue, "plain", "kicked").bury("no such order")
    queue.kick("plain", "kicked")
    put("ready")
    queue.enqueue("limited", {"n": 1}, id="limited-1", at=FAR)
    queue.enqueue("notify", {"n": 1}, id="notify-1", url="https://shop.example/hooks")


def _groups(queue: Queue) -> None:
    """A job that one group has done, the other has given up; one that one group runs, and the other has not begun."""
    queue.enqueue("groups", {"n": 1}, id="apart")
    _taken(queue, "groups", "apart", "billing").finish()
    _taken(queue, "groups", "apart", "mail").bury("no such address")
    queue.enqueue("groups", {"n": 2}, id="one")
    _taken(queue, "groups", "one", "billing")


def _keys(queue: Queue) -> None:
    """Jobs that have a place of their keys, that wait for one, and whose key is paused; a mover lets them pass."""
    for n in range(3):
        queue.enqueue("keyed", {"n": n}, id=f"keyed-{n}", key="merchant-7")
    _taken(queue, "keyed", "keyed-0")
    queue.pause("keyed", key="merchant-8")
    queue.enqueue("keyed", {"n": 3}, id="keyed-paused", key="merchant-8")
    until(lambda: _counts(queue, "keyed").waiting_for_key == 3, "they wait for their keys")
    for n in range(2):
        queue.enqueue("paced", {"n": n}, id=f"paced-{n}", key="merchant-7")
    _taken(queue, "paced", "paced-0").finish()
    queue.enqueue("paced", {"n": 2}, id="paced-2", key="merchant-9")
    until(lambda: _counts(queue, "paced").ready == 1, "another key's job is ready")


def _priorities(queue: Queue) -> None:
    """One is claimed, one is in the stream, and two wait for their turn."""
    queue.configure("urgent", create=True)
    for id, priority in PRIORITIES.items():
        queue.enqueue("urgent", {"id": id}, id=id, priority=priority)
    until(lambda: _counts(queue, "urgent").ready == len(PRIORITIES), "they are ready")
    _taken(queue, "urgent", "reset")


def _results(queue: Queue) -> None:
    queue.enqueue("results", {"n": 1}, id="made")
    _taken(queue, "results", "made").finish({"total": 42})
    queue.enqueue("results", {"n": 2}, id="failed")
    _taken(queue, "results", "failed").bury("no such order")
    queue.enqueue("results", {"n": 3}, id="given-up", at=FAR)
    queue.cancel("results", "given-up")


def _schedules(queue: Queue) -> None:
    queue.configure("scheduled", create=True)
    queue.schedule("scheduled", {"for": "acme"}, id="yearly", cron="0 9 1 1 *", tz="Europe/Paris", overlap="skip")
    queue.schedule("scheduled", {"for": "acme"}, id="paused", every="10m")
    queue.pause_schedule("scheduled", "paused")
    queue.schedule("scheduled", {"for": "acme"}, id="often", every=LONG)
    queue.trigger("scheduled", "often")


def _after(queue: Queue) -> None:
    for topic in ("first", "second"):
        queue.configure(topic, create=True)
    for id in ("delivered-not", "to-come", "gave-up"):
        queue.enqueue("first", {"id": id}, id=id)
        queue.enqueue("second", {"id": id}, id=f"after-{id}", after=("first", id), delay="5s")
    _taken(queue, "first", "delivered-not").finish()  # and no mover has delivered that
    _taken(queue, "first", "to-come")
    _taken(queue, "first", "gave-up").bury("no such order")


def _uniqueness(queue: Queue) -> None:
    queue.configure("unique", create=True)
    queue.enqueue("unique", {"n": 1}, id="taken", unique_for=LONG)
    _taken(queue, "unique", "taken").finish()
    queue.enqueue("unique", {"n": 2}, id="until-its-end", unique_for=LONG, unique_after="finish", at=FAR)
    queue.enqueue("unique", {"n": 3}, id="postponed", delay="300d", on_conflict="postpone", at_most=LONG)
    queue.enqueue("unique", {"n": 4}, id="postponed", delay="301d", on_conflict="postpone", at_most=LONG)


def _flows(queue: Queue, opened: ExitStack) -> None:
    """A job that a handler has added, and that is not put in; a flow that is being built, and one with a deadline."""
    claim = _taken(queue, "flow.part", "runs-1")
    claim.flow.enqueue("flow.part", {"n": 4}, id="runs-child", before=("flow.join", "runs-join"))
    claim.finish()
    with queue.flow("dated", deadline=LONG) as flow:
        flow.enqueue("flow.late", {"n": 0}, id="dated-0", delay=LONG)
    opened.enter_context(patch.object(builder, "MAX_BATCH", BUILT))  # a call is full with them, and is sent
    flow = opened.enter_context(queue.flow("built"))
    flow.enqueue_many("flow.late", (NewJob({"n": n}, id=f"built-{n}") for n in range(BUILT)))


def _encoded(url: str, clock: ManualClock) -> None:
    with Queue(url, NAMESPACE, clock=clock, codec=[Zstd(), Encrypt(KEY)]) as queue:
        queue.enqueue("encoded", {"text": "a" * 500}, id="encoded-1")


def _from_databases(queue: Queue, folder: Path) -> None:
    """An archive and a relay that were killed before their databases knew what Redis had done."""
    queue.enqueue("archived", {"n": 1}, id="archived-1")
    _taken(queue, "archived", "archived-1").bury("no such order")
    with (
        Archive(f"sqlite:///{folder}/dead.db", NAMESPACE) as archive,
        patch.object(DeadLetters, "forget", _cut),
        contextlib.suppress(Cut),
    ):
        archive.store(queue, topic="archived")
    engine = create_engine(f"sqlite:///{folder}/shop.db")
    with engine.begin() as db:
        outbox.create(db)
        outbox.enqueue(db, "relayed", {"n": 1}, id="relayed-1", namespace=NAMESPACE)
    with (
        Relay(f"sqlite:///{folder}/shop.db", queue) as relay,
        patch.object(RedisSide, "forget", _cut),
        contextlib.suppress(Cut),
    ):
        relay.run(burst=True)
    engine.dispose()


def _cut(*_arguments: object) -> Any:
    raise Cut


def _dumped(url: str, folder: Path) -> None:
    dumper = Dumper(LocalFolder(folder / "dump"), url, NAMESPACE, topics=["plain"])
    with dumper.opened():
        dumper.dump()


def _processes(queue: Queue) -> None:
    """A worker's heartbeat, its threads that hang, and the secret of HTTP servers."""
    store = store_of(queue)
    carry_out(queue, store.scripts.heartbeat(store.session.consumer, 60))
    carry_out(queue, tell_hung(store.session, store.session.consumer, 1, 10, 30_000))
    carry_out(queue, store.scripts.rotate_secret("0" * 64))
