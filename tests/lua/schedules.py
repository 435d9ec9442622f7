"""Schedules on one shard, as the script tests write and read them."""

from __future__ import annotations

from typing import Any, NamedTuple

from streamdq.job.job import NewJob
from streamdq.schedules.definition import Definition
from streamdq.schedules.plan import Occurrence
from streamdq.store.jobs.records import encode
from streamdq.store.replies import Written
from streamdq.store.schedules.schedules import StoredSchedule, schedule_in
from tests.lua.shard import START_MS, Shard

LATE_MS, AGAIN_MS = 30_000, 1_000


def at(*after_ms: int, id: str = "s") -> list[Occurrence]:
    """Occurrences that many ms after the start; their jobs are `s@1000`."""
    return [Occurrence(START_MS + ms, START_MS + ms, f"{id}@{ms}", f"T{ms}") for ms in after_ms]


def stored(
    *after_ms: int, id: str = "s", body: Any = "at {due}", overlap: Any = "allow", **fields: Any
) -> StoredSchedule:
    """A schedule with these occurrences planned, and no more."""
    job = encode(NewJob(body), 10**6).rest
    given: dict[str, Any] = {
        "shards": 1, "last_ms": START_MS, "plan": at(*after_ms, id=id), "more": False, "job": job, **fields
    }  # fmt: skip
    return StoredSchedule(definition=Definition(every_ms=1_000, overlap=overlap), **given)


def write(
    shard: Shard, schedule: StoredSchedule, id: str = "s", missed: int = 0, shards: int = 1, ahead_ms: int = 0
) -> Written:
    op = shard.scripts.schedule(
        shard.k, shards, id, schedule.version, schedule.look_ms(ahead_ms), missed, schedule.encode()
    )
    found: Written = shard.run(op)
    return found


def known(shard: Shard, id: str = "s") -> StoredSchedule | None:
    record = shard.redis("HGET", shard.k.schedules, id)
    return None if record is None else schedule_in(record)


def there(shard: Shard, id: str = "s") -> StoredSchedule:
    found = known(shard, id)
    assert found is not None
    return found


def look(shard: Shard, id: str = "s") -> int | None:
    """When the mover looks at it, after the start."""
    score = shard.redis("ZSCORE", shard.k.ticks, id)
    return None if score is None else int(float(score)) - START_MS


class Fired(NamedTuple):
    """What the script says, with the number of jobs, which must be those that came."""

    current: bool
    now_ms: int
    next_ms: int
    fired: int
    skipped: int
    unplanned: list[str]


def fire(shard: Shard, limit: int = 500, shards: int = 1, ahead_ms: int = 0) -> Fired:
    before = waiting(shard)
    reply = shard.run(shard.scripts.fire(shard.k, shards, limit, late_ms=LATE_MS, again_ms=AGAIN_MS, ahead_ms=ahead_ms))
    assert sorted(reply.jobs) == sorted(id for id, _ in set(waiting(shard)) - set(before))
    if shard.checked:
        shard.check()
    return Fired(reply.current, reply.now_ms, reply.next_ms, len(reply.jobs), reply.skipped, reply.unplanned)


def waiting(shard: Shard) -> list[tuple[str, int]]:
    """The jobs in the bucket, and when they are due after the start."""
    flat = shard.redis("ZRANGE", shard.k.bucket, 0, -1, "WITHSCORES")
    return [
        (member[12:].decode(), int(float(score)) - START_MS)
        for member, score in zip(flat[::2], flat[1::2], strict=True)
    ]
