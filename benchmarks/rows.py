"""Reads history for the workloads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streamdq.store.history.rows import FIELDS, SEPARATOR

from .harness import SHARD
from .server import RedisServer

_PAGE = 10_000


class RecordedAttempt(NamedTuple):
    """One entry; times are Redis's, 0 if the event has none."""

    event: str
    id: str
    consumer: str
    due_ms: int
    started_ms: int
    finished_ms: int


def rows(server: RedisServer, event: str = "done") -> list[RecordedAttempt]:
    """All rows of one event, oldest first."""
    return [row for row in _all(server) if row.event == event]


def _all(server: RedisServer) -> Iterator[RecordedAttempt]:
    first = "-"
    while page := server.client.xrange(SHARD.history, first, count=_PAGE):
        for entry, fields in page:
            yield _row(fields[b"e"].decode())
            first = f"({entry.decode()}"


def _row(text: str) -> RecordedAttempt:
    values = dict(zip(FIELDS, text.split(SEPARATOR), strict=True))
    times = (int(values[name] or 0) for name in ("due_ms", "started_ms", "finished_ms"))
    return RecordedAttempt(values["event"], values["id"], values["consumer"], *times)
