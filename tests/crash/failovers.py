"""Failovers under load: how many jobs whose `enqueue` had returned are lost, at each level of durability.

    python -m tests.crash.failovers sentinel|cluster|partition [--rounds 20] [--min-replicas]

`sentinel` and `cluster`: the replica loses its connection to the primary, 0.15 s later the primary is killed with -9,
and the replica takes over. `partition`: neither sentinels nor the replica reach the primary for some seconds, but the
producers do; then it is back and becomes a replica. With `--min-replicas`, a primary refuses writes while it has no
replica (`min-replicas-to-write 1`, `min-replicas-max-lag 1`). Ends with 1 if a job was lost that a replica confirmed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Self

import redis

from streamdq import Queue
from streamdq.config import Settings
from streamdq.errors import DurabilityUnsupported, NotDurable, ServerError
from tests.sentinels import SERVICE, Sentinels
from tests.servers import Binary, Cluster, Server, binaries, recent_binary
from tests.waiting import until

NAMESPACE = "failovers"
LEVELS = ("memory", "disk", "replicas:1")
SETTINGS = Settings(call_timeout_s=2.0, url="memory://unused")
LOAD_S, LAG_S, AFTER_S = 1.0, 0.15, 0.3
THREADS = 2
WITHIN_S = 60.0


class Producers:
    """They enqueue as fast as they can, at each level, and note what Redis has confirmed."""

    def __init__(self, url: str, number: int) -> None:
        self.confirmed: dict[str, list[str]] = {level: [] for level in LEVELS}
        self.refused: Counter[str] = Counter()
        self._number = number
        self._stopping = threading.Event()
        self._queues = [Queue(url, NAMESPACE, settings=SETTINGS) for _ in LEVELS]
        for level, queue in zip(LEVELS, self._queues, strict=True):
            queue.configure(topic_of(level), shards=3)
        self._threads = [
            threading.Thread(target=self._produce, args=(level, queue, thread))
            for level, queue in zip(LEVELS, self._queues, strict=True)
            for thread in range(THREADS)
        ]

    def _produce(self, level: str, queue: Queue, thread: int) -> None:
        count = 0
        while not self._stopping.is_set():
            count += 1
            id = f"{self._number}-{thread}-{count}"
            try:
                queue.enqueue(topic_of(level), count, id=id, delay="1h", durable=level)
            except NotDurable:
                self.refused[level] += 1
            except DurabilityUnsupported:
                return
            except ServerError:
                self._stopping.wait(0.01)
            else:
                self.confirmed[level].append(id)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for queue in self._queues:
            queue.close()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def topic_of(level: str) -> str:
    return level.replace(":", "-")


def held(nodes: Sequence[Server], user: str = "") -> dict[str, set[str]]:
    """The ids that Redis has, by level."""
    found: dict[str, set[str]] = {level: set() for level in LEVELS}
    for node in nodes:
        with redis.Redis.from_url(node.url.replace("://", f"://{user}"), decode_responses=True) as client:
            for level in LEVELS:
                for key in client.scan_iter(f"*{topic_of(level)}*:jobs"):
                    found[level].update(client.hkeys(key))
    return found


@contextmanager
def out_of_touch(replica: Server, primary: Server) -> Iterator[None]:
    """The replica has lost its connection for a moment, and is not back before the end."""
    os.kill(replica.pid, signal.SIGSTOP)
    with primary.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")
    time.sleep(LAG_S)
    yield
    os.kill(replica.pid, signal.SIGCONT)


def has_role(server: Server, role: str, user: str = "") -> bool:
    with contextlib.suppress(redis.RedisError), redis.Redis.from_url(server.url.replace("://", f"://{user}")) as client:
        return bool(client.role()[0] == role.encode())
    return False


class Tally:
    """What was confirmed and what was lost, over all rounds."""

    def __init__(self, min_replicas: bool = False) -> None:
        self._min_replicas = min_replicas
        self.rounds = 0
        self.confirmed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()

    def prepare(self, servers: Sequence[Server]) -> None:
        for server in servers:
            with server.client() as client:
                client.config_set("appendonly", "yes")
                if self._min_replicas:
                    client.config_set("min-replicas-to-write", 1)
                    client.config_set("min-replicas-max-lag", 1)

    def add(self, producers: Producers, there: dict[str, set[str]]) -> None:
        self.rounds += 1
        for level, ids in producers.confirmed.items():
            self.confirmed[level] += len(ids)
            self.lost[level] += len(set(ids) - there[level])
        self.refused += producers.refused
        shown = ", ".join(f"{level} {self.lost[level]} of {self.confirmed[level]}" for level in LEVELS)
        say(f"round {self.rounds}: lost so far: {shown}")

    def show(self, what: str) -> None:
        say(f"\n{what}: {self.rounds} rounds\n| level | confirmed | lost | NotDurable |\n| --- | --- | --- | --- |")
        for level in LEVELS:
            say(f"| `{level}` | {self.confirmed[level]} | {self.lost[level]} | {self.refused[level]} |")


# -- Sentinel


def behind_sentinels(binary: Binary, rounds: int, tally: Tally) -> None:
    for number in range(rounds):
        with Sentinels(binary) as servers:
            tally.prepare(servers.servers)
            until(servers.replicated, "the replica follows", WITHIN_S)
            with Producers(servers.url, number) as producers:
                time.sleep(LOAD_S)
                with out_of_touch(servers.replica, servers.primary):
                    servers.primary.kill()
                until(partial(has_role, servers.replica, "master"), "the replica takes over", WITHIN_S)
                time.sleep(AFTER_S)
            tally.add(producers, held([servers.replica]))


# -- a primary that is cut off, though not from its producers

USER = "app:x@"


def cut_off(binary: Binary, rounds: int, tally: Tally) -> None:
    for number in range(rounds):
        with Sentinels(binary) as servers:
            until(servers.replicated, "the replica follows", WITHIN_S)
            tally.prepare(servers.servers)
            _users(servers)
            until(servers.replicated, "the replica follows as the user", WITHIN_S)
            old, new = servers.primary, servers.replica
            with Producers(servers.url.replace("://", f"://{USER}"), number) as producers:
                time.sleep(LOAD_S)
                _reach(old, False)
                until(partial(has_role, new, "master", USER), "the replica takes over", WITHIN_S)
                time.sleep(LOAD_S)
            _reach(old, True)
            until(partial(has_role, old, "slave", USER), "the old primary follows", WITHIN_S)
            tally.add(producers, held([new], USER))


def _users(servers: Sentinels) -> None:
    """Producers log in as one user, sentinels and the replica as another."""
    for server in servers.servers:
        with server.client() as client:
            for name in ("app", "inner"):
                client.execute_command("ACL", "SETUSER", name, "on", ">x", "~*", "&*", "+@all")
            client.config_set("masteruser", "inner")
            client.config_set("masterauth", "x")
    for port in servers.ports:
        with redis.Redis(port=port) as client:
            client.execute_command("SENTINEL", "SET", SERVICE, "auth-user", "inner")
            client.execute_command("SENTINEL", "SET", SERVICE, "auth-pass", "x")
    with servers.primary.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")


def _reach(server: Server, possible: bool) -> None:
    with redis.Redis.from_url(server.url.replace("://", f"://{USER}")) as client:
        for name in ("inner", "default"):
            client.execute_command("ACL", "SETUSER", name, "on" if possible else "off")
            if not possible:
                client.execute_command("CLIENT", "KILL", "USER", name)


# -- Cluster


def in_a_cluster(binary: Binary, rounds: int, tally: Tally) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(binary))
        pairs = [(master, stack.enter_context(_follower(cluster, master))) for master in cluster.nodes]
        for number in range(rounds):
            old, new = pairs[number % 3]
            tally.prepare([node for pair in pairs for node in pair])
            until(partial(_follows, new), "the replica follows", WITHIN_S)
            with Producers(cluster.url, number) as producers:
                time.sleep(LOAD_S)
                with out_of_touch(new, old):
                    old.kill()
                until(partial(has_role, new, "master"), "the replica takes over", WITHIN_S)
                time.sleep(AFTER_S)
            pairs[number % 3] = (new, old)
            tally.add(producers, held([master for master, _ in pairs]))
            old.start()


def _follower(cluster: Cluster, master: Server) -> Server:
    node = Server(cluster.binary, options={"cluster-enabled": "yes", "cluster-node-timeout": "2000"})
    with node.client() as client, master.client() as of:
        client.execute_command("CLUSTER MEET", "127.0.0.1", master.port)
        its_id = of.execute_command("CLUSTER MYID").decode()

        def replicates() -> bool:
            with contextlib.suppress(redis.ResponseError):  # it does not know the master yet
                client.execute_command("CLUSTER REPLICATE", its_id)
                return True
            return False

        until(replicates, "the replica knows its master", WITHIN_S)
    return node


def _follows(server: Server) -> bool:
    with server.client() as client:
        return bool(client.info("replication").get("master_link_status") == "up")


KINDS: dict[str, Callable[[Binary, int, Tally], None]] = {
    "sentinel": behind_sentinels,
    "partition": cut_off,
    "cluster": in_a_cluster,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--min-replicas", action="store_true")
    given = parser.parse_args()
    binary, tally = recent_binary() or binaries()[-1], Tally(given.min_replicas)
    KINDS[given.kind](binary, given.rounds, tally)
    tally.show(f"{given.kind}, {binary.name}{', min-replicas-to-write 1' if given.min_replicas else ''}")
    return int(tally.lost["replicas:1"] > 0)


if __name__ == "__main__":
    sys.exit(main())
