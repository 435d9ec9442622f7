"""A primary, its replica and three sentinels on loopback."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import redis

from tests.servers import Binary, Server, binaries, free_port
from tests.waiting import until

SERVICE = "jobs"
_DOWN_MS = 400


class Sentinels:
    """Three sentinels agree on who is the primary of `SERVICE`; two are enough to replace it."""

    def __init__(
        self, binary: Binary | None = None, password: str = "", options: Mapping[str, str] | None = None
    ) -> None:
        self.binary = binary or binaries()[-1]
        self.password = password
        self.servers: list[Server] = []
        self.ports: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            login = {**({"requirepass": password, "masterauth": password} if password else {}), **(options or {})}
            self.primary = Server(self.binary, options=login)
            self.servers.append(self.primary)
            self.replica = Server(self.binary, options={**login, "repl-diskless-sync-delay": "0"})
            self.servers.append(self.replica)
            with self.replica.client() as client:  # 6.2 takes no option of two words
                client.replicaof("127.0.0.1", self.primary.port)
            for _ in range(3):
                self._start_sentinel()
            until(self._agreed, "every sentinel knows the replica and the other sentinels")
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password else ""
        return f"redis+sentinel://{login}" + ",".join(f"127.0.0.1:{port}" for port in self.ports) + f"/{SERVICE}"

    def client(self, **options: Any) -> redis.Redis:
        """A plain client of the primary, as the sentinels know it."""
        for port in self.ports:
            with redis.Redis(port=port, socket_timeout=1) as sentinel, contextlib.suppress(redis.RedisError):
                _, named = sentinel.sentinel_get_master_addr_by_name(SERVICE)
                return redis.Redis(port=named, password=self.password or None, **options)
        raise redis.ConnectionError("no sentinel answers")

    def replicated(self) -> bool:
        """Whether the replica has all that was written to the primary."""
        with self.primary.client() as primary, self.replica.client() as replica:
            link = replica.info("replication")
            return bool(
                link["master_link_status"] == "up"
                and link["slave_repl_offset"] >= primary.info("replication")["master_repl_offset"]
            )

    def hang(self, number: int) -> None:
        """Connections to this sentinel are accepted, and nothing answers."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for server in self.servers:
            server.close()

    def _start_sentinel(self) -> None:
        port = free_port()
        directory = Path(self.primary.directory) / f"sentinel-{port}"
        directory.mkdir()
        lines = [
            f"port {port}", "bind 127.0.0.1", f"dir {directory}", f"logfile {directory}/log",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} 2",
            f"sentinel down-after-milliseconds {SERVICE} {_DOWN_MS}", f"sentinel failover-timeout {SERVICE} 3000",
        ]  # fmt: skip
        if self.password:
            lines.append(f"sentinel auth-pass {SERVICE} {self.password}")
        (directory / "sentinel.conf").write_text("\n".join(lines))
        self._processes.append(
            subprocess.Popen(
                [self.binary.path, directory / "sentinel.conf", "--sentinel"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=directory,
            )
        )
        self.ports.append(port)

    def _agreed(self) -> bool:
        for port in self.ports:
            with (
                redis.Redis(port=port, socket_timeout=1) as client,
                contextlib.suppress(redis.ConnectionError),
            ):
                state = client.sentinel_masters()[SERVICE]
                if state["num-slaves"] == 1 and state["num-other-sentinels"] == 2:
                    continue
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
