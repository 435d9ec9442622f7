"""Replays history with the settings as they were and with others, and compares: what was seen, what the replay makes of
the same settings, and what it makes of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from math import ceil, sqrt
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamdq.errors import InvalidInput

from ..session import pandas_unnoticed
from .lives import Kind, lives, pools
from .replay import Change, ReplayResult, replay
from .seen import Array, Seen, Waits

SEEN, REPLAYED, CHANGED = "seen", "replayed", "changed"
MEDIAN_ERROR, P99_ERROR = 0.05, 0.15
"""A replay with the settings as they were may miss by so much."""
EXACT_MS = 1
"""The history has whole milliseconds: a difference up to this is none."""
ENOUGH = 100
"""Of fewer attempts the 99th percentile is hardly more than the maximum, and is not judged."""
SLOWER = 0.05
"""So much faster or slower handlers of another run may be: the range of what a change would bring."""
NEAR = 1.25
"""From such a range on, workers are nearly full, and a p99 by itself would say more than anybody knows."""
_SURE = 1.96  # standard deviations: 95 %


@dataclass(frozen=True, slots=True)
class Figures:
    """A queue in one of the three cases. Of lateness, which is in ms: None if no attempt has one. ``busy_ms``: how long
    handlers ran, added up. ``open``: jobs that have not ended at the end of the history.
    """

    attempts: int
    done: int
    dead: int
    expired: int
    cancelled: int
    open: int
    p50_ms: float | None
    p99_ms: float | None
    busy_ms: float


@dataclass(frozen=True, slots=True)
class QueueAnswer:
    """``drawn``: attempts of the changed case that nobody saw. ``unknown``: those that were cut off because of their
    TTR and would have longer now. ``full_share``: the part of all lateness that came from full workers, and is computed
    anew. ``p99_low_ms`` to ``p99_high_ms``: where the 99th percentile of what was seen lies with 95 % confidence, if
    attempts are independent; of few attempts these two are far apart. ``changed_low_ms`` to ``changed_high_ms``: the
    99th percentile of the changed case, if handlers ran a little shorter or longer than they did.
    """

    topic: str
    group: str | None
    seen: Figures
    replayed: Figures
    changed: Figures
    drawn: int
    unknown: int
    full_share: float | None
    p99_low_ms: float | None
    p99_high_ms: float | None
    changed_low_ms: float | None = None
    changed_high_ms: float | None = None

    @property
    def is_near_full(self) -> bool:
        """Whether the workers of the changed case are nearly full, so that only a range can be given."""
        low, high = self.changed_low_ms, self.changed_high_ms
        return low is not None and high is not None and high > NEAR * low + EXACT_MS

    @property
    def judged(self) -> bool:
        return self.seen.attempts >= ENOUGH and self.seen.p50_ms is not None

    @property
    def errors(self) -> tuple[float, float]:
        """How far the replay is from what was seen: of the median and of the 99th percentile, as shares."""
        return _error(self.seen.p50_ms, self.replayed.p50_ms), _error(self.seen.p99_ms, self.replayed.p99_ms)

    @property
    def p99_by_chance(self) -> bool:
        """Whether the replay's 99th percentile is too far off, but no farther than chance alone moves that of so few
        attempts.
        """
        low, replayed, high = self.p99_low_ms, self.replayed.p99_ms, self.p99_high_ms
        if low is None or replayed is None or high is None:
            return False
        return self.errors[1] > P99_ERROR and low - EXACT_MS <= replayed <= high + EXACT_MS

    @property
    def good(self) -> bool:
        """Whether the replay is close enough to what was seen. Of too few attempts it is never said not to be."""
        median, p99 = self.errors
        return not self.judged or (median <= MEDIAN_ERROR and (p99 <= P99_ERROR or self.p99_by_chance))


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """Workers that share their queues. ``workers``: the most at once; ``concurrency``: of each, as far as it was seen;
    ``worker_ms``: how long they were there, added up; ``turn_ms``: how long a slot stayed empty although jobs waited.
    """

    queues: list[QueueAnswer]
    workers: int
    concurrency: int
    worker_ms: float
    turn_ms: float
    changed_workers: int
    changed_concurrency: int
    changed_worker_ms: float
    concurrency_known: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    pools: list[PoolAnswer] = field(default_factory=list)

    @property
    def queues(self) -> Iterator[QueueAnswer]:
        for pool in self.pools:
            yield from pool.queues

    @property
    def good(self) -> bool:
        """Whether the replays can be believed."""
        return all(queue.good for queue in self.queues)


def what_if(
    spark: SparkSession, events: DataFrame, change: Change, *, had_concurrency: int | None = None, seed: int = 1
) -> Answer:
    """The answer for all pools of the events. ``had_concurrency``: how many handlers ran at once in each worker; None:
    as many as any of a pool's workers ran.

    Raises:
        InvalidInput: the change is for a topic that the events don't have; or it is of workers, and neither
            ``had_concurrency`` nor the history says how many handlers each of them could run at once.
    """
    numbered = pools(events)
    _check_topics(change, {topic for topic, _ in numbered})
    rows_of_pools = [(*queue, number) for queue, number in numbered.items()]
    by_pool = spark.createDataFrame(rows_of_pools, "topic string, group string, pool int").alias("p")
    of_lives = lives(events).alias("l")
    same = (F.col("l.topic") == F.col("p.topic")) & F.col("l.group").eqNullSafe(F.col("p.group"))
    cases = F.explode(F.array(F.lit(REPLAYED), F.lit(CHANGED))).alias("case")
    joined = of_lives.join(F.broadcast(by_pool), same)
    rows = joined.select("l.topic", "l.group", "shard", "key", "rows", "pool", cases)

    def replayed(keys: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        pool, case = (key.as_py() for key in keys)
        return _replayed(pool, case, table, change, had_concurrency, seed)

    with pandas_unnoticed():
        found = rows.groupBy("pool", "case").applyInArrow(replayed, _DDL).collect()
    answer = Answer(list(_pools([row.asDict() for row in found])))
    if had_concurrency is None and (change.workers or change.concurrency):
        _check_concurrency(answer)
    return answer


def _check_concurrency(answer: Answer) -> None:
    for pool in answer.pools:
        judged = [queue.topic for queue in pool.queues if queue.judged]
        if judged and not pool.concurrency_known:
            raise InvalidInput(
                f"the workers of {judged[0]} were never certainly full, so the history does not show how "
                "many handlers each of them could run at once: pass --concurrency-was"
            )


def _check_topics(change: Change, topics: set[str]) -> None:
    for topic in sorted(change.topics - topics):
        raise InvalidInput(f"no topic {topic!r} in these days; there are {', '.join(sorted(topics))}")


_COUNTS = ("attempts", "done", "dead", "expired", "cancelled", "open", "drawn", "unknown")
_REALS = ("p50_ms", "p99_ms", "busy_ms", "full_share", "worker_ms", "turn_ms", "p99_low_ms", "p99_high_ms")
_WHOLE = ("workers", "concurrency", "known")
_DDL = ", ".join(
    [
        "pool int", "case string", "topic string", "`group` string",
        *(f"{name} long" for name in (*_COUNTS, *_WHOLE)), *(f"{name} double" for name in _REALS),
    ]
)  # fmt: skip
_SCHEMA = pa.schema(
    [
        ("pool", pa.int32()), ("case", pa.string()), ("topic", pa.string()), ("group", pa.string()),
        *((name, pa.int64()) for name in (*_COUNTS, *_WHOLE)), *((name, pa.float64()) for name in _REALS),
    ]
)  # fmt: skip


def _replayed(pool: int, case: str, table: pa.Table, change: Change, had: int | None, seed: int) -> pa.Table:
    """A pool's queues in one case, and what was seen of them; a process of its own does this."""
    seen = Seen(table)
    concurrency = had or seen.concurrency
    waits = seen.waits(concurrency)
    setting = change if case == CHANGED else Change()
    results = replay(seen, waits, concurrency, setting, seed)
    others = []
    if case == CHANGED:
        others = [replay(seen, waits, concurrency, setting, seed, times=1 + off) for off in (-SLOWER, SLOWER)]
    of_workers = _workers(seen, setting, concurrency) | {"pool": pool, "turn_ms": waits.turn_ms}
    rows = []
    for number, (queue, result) in enumerate(zip(seen.queues, results, strict=True)):
        own = of_workers | {"topic": queue[0], "group": queue[1]}
        rows.append(own | _of_result(result) | _range([result, *(other[number] for other in others)]) | {"case": case})
        if case == REPLAYED:
            rows.append(own | _of_history(seen, waits, number) | {"case": SEEN})
    return pa.Table.from_pylist(rows, _SCHEMA)


def _workers(seen: Seen, change: Change, concurrency: int) -> dict[str, Any]:
    begins, ends = seen.presence
    each, known = change.concurrency or concurrency, int(seen.certainly_full is not None)
    if change.workers is not None:
        span = seen.end - float(begins.min(initial=seen.end))
        return {"workers": change.workers, "concurrency": each, "known": known, "worker_ms": change.workers * span}
    moments = np.concatenate([begins, ends])
    more = np.repeat([1, -1], len(begins))
    at_once = np.cumsum(more[np.lexsort((more, moments))])
    there = np.minimum(ends, seen.end) - begins
    most = int(at_once.max(initial=0))
    return {"workers": most, "concurrency": each, "known": known, "worker_ms": float(there.sum())}


def _of_result(result: ReplayResult) -> dict[str, Any]:
    late = np.array(result.late_ms)
    counted = {name: getattr(result, name) for name in _COUNTS}
    return counted | _percentiles(late) | {"busy_ms": result.busy_ms}


def _range(results: list[ReplayResult]) -> dict[str, Any]:
    """Of the 99th percentiles of several replays of a queue."""
    found = [float(np.percentile(result.late_ms, 99)) for result in results if result.late_ms]
    return {"p99_low_ms": min(found), "p99_high_ms": max(found)} if found else {}


def _of_history(seen: Seen, waits: Waits, number: int) -> dict[str, Any]:
    here = seen.queue_of_row == number
    attempts = here & seen.is_attempt
    timed = attempts & seen.known
    late = (seen.started - seen.due)[timed]
    lasts = seen.first[1:][seen.queue == number] - 1
    ended = np.isin(seen.kind[lasts], (Kind.DONE, Kind.EXPIRED, Kind.CANCELLED, Kind.BURIED, Kind.CRASHED))
    counted = {
        "attempts": int(attempts.sum()),
        "done": int((here & (seen.kind == Kind.DONE)).sum()),
        "dead": int((here & seen.dead).sum()),
        "expired": int((here & (seen.kind == Kind.EXPIRED)).sum()),
        "cancelled": int((here & (seen.kind == Kind.CANCELLED)).sum()),
        "open": int((~ended & ~seen.dead[lasts]).sum()),
        "drawn": 0,
        "unknown": 0,
    }
    total = float(np.maximum(late, 0).sum())
    full = float(waits.slot_ms[timed].sum()) / total if total else None
    busy = float(seen.run[here & seen.in_slot].sum())
    return counted | _percentiles(late) | range_of_p99(late) | {"busy_ms": busy, "full_share": full}


def _percentiles(late: Array) -> dict[str, float | None]:
    if not len(late):
        return {"p50_ms": None, "p99_ms": None}
    p50, p99 = np.percentile(late, [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99)}


def range_of_p99(late: Array) -> dict[str, float]:
    """A 95 % confidence interval, whatever the distribution: how many of the attempts are below the true percentile is
    binomial (Conover, Practical Nonparametric Statistics, 3.2). Of fewer than some 300 attempts it ends at the longest,
    and the confidence is less. Jobs of one burst wait together, and such attempts vary more than independent ones.
    """
    count = len(late)
    if not count:
        return {}
    ordered, deviation = np.sort(late), _SURE * sqrt(count * 0.99 * 0.01)
    ranks = ceil(count * 0.99 - deviation), min(ceil(count * 0.99 + deviation), count)
    low, high = (float(ordered[max(rank, 1) - 1]) for rank in ranks)
    return {"p99_low_ms": low, "p99_high_ms": high}


def _error(seen: float | None, replayed: float | None) -> float:
    if seen is None or replayed is None:
        return 0.0 if seen is replayed else 1.0
    return max(abs(replayed - seen) - EXACT_MS, 0) / max(abs(seen), EXACT_MS)


def _pools(rows: list[dict[str, Any]]) -> Iterator[PoolAnswer]:
    for pool in sorted({row["pool"] for row in rows}):
        here = {(row["case"], row["topic"], row["group"]): row for row in rows if row["pool"] == pool}
        names = sorted({key[1:] for key in here}, key=repr)
        before, after = (here[case, *names[0]] for case in (REPLAYED, CHANGED))
        yield PoolAnswer(
            [_queue(*name, [here[case, *name] for case in (SEEN, REPLAYED, CHANGED)]) for name in names],
            before["workers"], before["concurrency"], before["worker_ms"], before["turn_ms"],
            after["workers"], after["concurrency"], after["worker_ms"], bool(before["known"]),
        )  # fmt: skip


def _queue(topic: str, group: str | None, cases: list[dict[str, Any]]) -> QueueAnswer:
    before, same, after = (Figures(**{own.name: case[own.name] for own in fields(Figures)}) for case in cases)
    of_seen, of_changed = cases[0], cases[2]
    return QueueAnswer(
        topic, group, before, same, after, of_changed["drawn"], of_changed["unknown"], of_seen["full_share"],
        of_seen["p99_low_ms"], of_seen["p99_high_ms"], of_changed["p99_low_ms"], of_changed["p99_high_ms"],
    )  # fmt: skip
