"""What the shards of a Redis hold, for tests without a server, and its time."""

from __future__ import annotations

import time

from tests.unit.fake_redis import Call

EPOCH_MS = 1_800_000_000_000


def now_ms() -> int:
    """Redis's time, by which this process's goes, too."""
    return EPOCH_MS + int(time.monotonic() * 1000)


class Buckets:
    """When the jobs of each bucket are due, by its key, the earliest first."""

    def __init__(self) -> None:
        self._due: dict[str, list[int]] = {}

    def add(self, key: str, *in_ms: int) -> None:
        self._due[key] = sorted([*self.due(key), *(now_ms() + ms for ms in in_ms)])

    def due(self, key: str) -> list[int]:
        return self._due.get(key, [])

    def move(self, key: str, limit: int) -> int:
        """How many of those that are due now have gone, ``limit`` at most."""
        count = min(limit, sum(1 for due in self.due(key) if due <= now_ms()))
        self._due[key] = self.due(key)[count:]
        return count

    def heads(self, call: Call) -> list[bytes]:
        """Answers ZRANGE."""
        dues = self.due(call.args[0])[: int(call.args[2]) + 1]
        return [item for due in dues for item in (b"id", b"%d" % due)]
