"""A Redis server for one workload, and its statistics."""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time
from types import TracebackType
from typing import Any, Self

import redis

from streamdq.embedded.binary import ServerBinary

_START_S = 10.0
_SAVE_S = 120.0  # to write a million jobs to a slow disk, or to read them
_BUS = 10_000  # how far a Cluster node's second port is above its first
_SLOTS = 16_384
_SERVICE, _DOWN_AFTER_MS = "jobs", 1000
_SLOW_US = 250
_CLOCK_SLACK_S = 50e-6
_OWN_CALLS = {b"INFO", b"CONFIG", b"SLOWLOG", b"SCRIPT", b"FLUSHALL", b"COMMAND"}


@dataclass(frozen=True, slots=True)
class SlowCalls:
    """The calls that took Redis longer than 250 µs, by its SLOWLOG."""

    longest_ms: float  # 0.25 if there was none
    count: int
    command: str


class RedisServer:
    """Started at once, in a directory of its own. Nothing is persisted, unless it appends to a log. Use it in a with
    statement.
    """

    def __init__(
        self, binary: ServerBinary, unix: bool = False, clustered: bool = False, appendonly: bool = False
    ) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="streamdq-bench-"))
        self.port = 0 if unix else free_port(_BUS if clustered else 0)
        sock = self._directory / "redis.sock"
        self.url = f"unix://{sock}" if unix else f"redis://127.0.0.1:{self.port}/0"
        options = {
            "port": self.port, "bind": "127.0.0.1", "dir": self._directory, "logfile": "redis.log", "save": "",
            "appendonly": "yes" if appendonly else "no",
            "slowlog-log-slower-than": _SLOW_US, "slowlog-max-len": 100_000,
            **({"unixsocket": sock} if unix else {}), **({"cluster-enabled": "yes"} if clustered else {}),
        }  # fmt: skip
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        self._command = [str(binary.path), *words]
        self._process = self._start()
        try:
            self._wait()
            # redis-py types every reply as that of either kind of client.
            self.client: Any = redis.Redis.from_url(self.url)
        except BaseException:
            self.close()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _wait(self, within_s: float = _START_S) -> None:
        deadline = monotonic() + within_s
        with redis.Redis.from_url(self.url) as client:
            while self._process.poll() is None and monotonic() < deadline:
                with contextlib.suppress(redis.ConnectionError):
                    client.ping()
                    return
                sleep(0.01)
        log = self._directory / "redis.log"
        raise RuntimeError(
            f"Redis does not start: {log.read_text(encoding='utf-8')[-500:] if log.exists() else 'no log'}"
        )

    def close(self) -> None:
        """Ends the server and deletes its data."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def kill(self) -> None:
        """With -9; its data stay."""
        self._process.kill()
        self._process.wait()

    def kill_and_start(self) -> None:
        """With -9; of what it had appended nothing is lost."""
        self.kill()
        self._process = self._start()
        self._wait(_SAVE_S)

    def restart(self, down_s: float) -> float:
        """Saves the data, kills the server, and starts it again after a while. Returns when it answered, by
        ``time.time``: it has loaded its data then.
        """
        with redis.Redis.from_url(self.url, socket_timeout=_SAVE_S) as client:
            client.save()
        self.kill()
        sleep(down_s)
        self._process = self._start()
        self._wait(_SAVE_S)
        return time()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.close()

    def empty(self) -> None:
        """Deletes all data and statistics; scripts stay loaded."""
        self.client.flushall()
        self.reset_statistics()

    def reset_statistics(self) -> None:
        self.client.config_resetstat()
        self.client.slowlog_reset()

    def info(self, section: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.info(section)
        return found

    @property
    def pid(self) -> int:
        return self._process.pid

    def blocked(self) -> int:
        """How many connections wait in a blocking command: idle workers and the active mover do."""
        return int(self.info("clients")["blocked_clients"])

    def memory_bytes(self) -> int:
        """Redis's used_memory, without its SLOWLOG, which has some kilobytes of each slow call."""
        self.client.slowlog_reset()
        return int(self.info("memory")["used_memory"])

    def count(self, key: str, field: str) -> int:
        """One counter of a HASH."""
        return int(self.client.hget(key, field) or 0)

    def slow_calls(self) -> SlowCalls:
        """The SLOWLOG since the last reset, without the benchmark's own commands."""
        rows: list[dict[str, Any]] = self.client.slowlog_get(100_000)
        calls = [row for row in rows if row["command"].split()[0].upper() not in _OWN_CALLS]
        if not calls:
            return SlowCalls(_SLOW_US / 1000, 0, "")
        worst = max(calls, key=lambda row: row["duration"])
        return SlowCalls(worst["duration"] / 1000, len(calls), worst["command"][:60].decode(errors="replace"))

    @property
    def has_functions(self) -> bool:
        return int(self.info("server")["redis_version"].split(".")[0]) >= 7

    def script_calls(self) -> tuple[int, int]:
        """How often scripts were called since the last reset, and Redis's µs for them."""
        stats = self.info("commandstats")
        found = [stats[name] for name in ("cmdstat_fcall", "cmdstat_evalsha", "cmdstat_eval") if name in stats]
        return sum(row["calls"] for row in found), sum(row["usec"] for row in found)

    def command_us(self, names: Iterable[str]) -> float:
        """Redis's µs for these commands since the last reset."""
        stats = self.info("commandstats")
        return float(sum(stats[f"cmdstat_{name}"]["usec"] for name in names if f"cmdstat_{name}" in stats))

    def cpu_s(self) -> float:
        """CPU time that Redis has used so far."""
        used = self.info("cpu")
        return float(used["used_cpu_user"] + used["used_cpu_sys"])

    def preempted(self) -> int | None:
        """How often the system has preempted Redis so far; None if it does not say. A call that was interrupted by
        another process looks longer than it is.
        """
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8").splitlines():
                if line.startswith("nonvoluntary_ctxt_switches"):
                    return int(line.split()[1])
        return None

    def must_share_clock(self) -> None:
        """Redis and this process ask the same kernel for the time: what is measured here is Redis's time.

        Raises:
            RuntimeError: they do not.
        """
        before_s = time()
        seconds, micros = self.client.time()
        there_s, after_s = seconds + micros / 1e6, time()
        if not before_s - _CLOCK_SLACK_S <= there_s <= after_s + _CLOCK_SLACK_S:
            raise RuntimeError(f"Redis's clock is {(there_s - after_s) * 1000:.3f} ms off; run both on one machine")


class Guarded:
    """A primary and its replica, and a sentinel that names the replica when the primary has not answered for a second.
    Use it in a with statement.
    """

    def __init__(self, binary: ServerBinary) -> None:
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as starting:
            self.primary, self.replica = (starting.enter_context(RedisServer(binary)) for _ in range(2))
            self.primary.client.config_set("repl-diskless-sync-delay", 0)
            self.replica.client.replicaof("127.0.0.1", self.primary.port)
            directory = Path(starting.enter_context(tempfile.TemporaryDirectory(prefix="streamdq-bench-")))
            port = free_port()
            process = subprocess.Popen(
                [binary.path, self._configured(directory, port), "--sentinel"],
                cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            starting.callback(process.wait)
            starting.callback(process.kill)
            self._sentinel = starting.enter_context(redis.Redis(port=port))
            self._wait(self._knows_both, "the sentinel knows the replica")
            self._stack = starting.pop_all()
        self.url = f"redis+sentinel://127.0.0.1:{port}/{_SERVICE}"

    def _configured(self, directory: Path, port: int) -> Path:
        lines = [
            f"port {port}", "bind 127.0.0.1", f"dir {directory}", f"logfile {directory}/log",
            f"sentinel monitor {_SERVICE} 127.0.0.1 {self.primary.port} 1",
            f"sentinel down-after-milliseconds {_SERVICE} {_DOWN_AFTER_MS}",
        ]  # fmt: skip
        (path := directory / "sentinel.conf").write_text("\n".join(lines), encoding="utf-8")
        return path

    @staticmethod
    def _wait(done: Callable[[], bool], what: str) -> None:
        deadline = monotonic() + _START_S
        while not done():
            if monotonic() > deadline:
                raise RuntimeError(f"not in time: {what}")
            sleep(0.01)

    def _knows_both(self) -> bool:
        with contextlib.suppress(redis.ConnectionError):
            found: Any = self._sentinel.sentinel_masters()
            return bool(found[_SERVICE]["num-slaves"] == 1)
        return False

    def replicate(self) -> None:
        """Waits until the replica has all that was written to the primary."""
        offset = int(self.primary.info("replication")["master_repl_offset"])
        self._wait(lambda: self._replicated() >= offset, "the replica has everything")

    def _replicated(self) -> int:
        link = self.replica.info("replication")
        return int(link["slave_repl_offset"]) if link["master_link_status"] == "up" else -1

    def fail_over(self) -> float:
        """Kills the primary; returns when its replica was the primary, by ``time.time``."""
        self.primary.kill()
        self._wait(lambda: self.replica.info("replication")["role"] == "master", "the replica is the primary")
        return time()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class Cluster:
    """Masters of a Redis Cluster, without replicas, with equally many slots each. Use it in a with statement."""

    def __init__(self, binary: ServerBinary, masters: int) -> None:
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as starting:
            self.nodes = [starting.enter_context(RedisServer(binary, clustered=True)) for _ in range(masters)]
            self._join()
            self._stack = starting.pop_all()
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def _join(self) -> None:
        count = len(self.nodes)
        for number, node in enumerate(self.nodes):  # epochs that differ from the start need no agreement
            node.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            slots = range(_SLOTS * number // count, _SLOTS * (number + 1) // count)
            node.client.execute_command("CLUSTER ADDSLOTS", *slots)
        for node in self.nodes[1:]:
            node.client.execute_command("CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        deadline = monotonic() + _START_S * 3
        while not all(self._is_whole(node) for node in self.nodes):
            if monotonic() > deadline:
                raise RuntimeError("the nodes do not become a Cluster")
            sleep(0.05)

    def _is_whole(self, node: RedisServer) -> bool:
        info: dict[str, str] = node.client.execute_command("CLUSTER INFO")
        return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(len(self.nodes))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def free_port(offset: int = 0) -> int:
    """A port that is free, as is the one ``offset`` above it."""
    while True:
        # Below the range from which outgoing connections take theirs.
        port = random.randint(22_001, 32_000)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for number in {port, port + offset}:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            return port
