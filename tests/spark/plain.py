"""Every answer once more, in plain Python over the same events: no Spark, no pandas, no code of the questions."""

import heapq
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
ENDED = {"done", "retry", "dead"}
KINDS = ["done", "retry", "dead", "released", "reclaimed", "cancelled", "expired", "kicked", "snoozed"]

Table = list[dict[str, Any]]


class Happened(NamedTuple):
    """One row of the history; times in ms."""

    topic: str
    shard: int
    entry: str
    event: str
    id: str
    group: str | None
    attempt: int
    step: int | None
    consumer: str | None
    created: int | None
    due: int | None
    moved: int | None
    started: int | None
    finished: int
    error: str | None
    reason: str | None
    body_bytes: int | None


Log = Sequence[Happened]


def by(log: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for one in log:
        found[key(one)].append(one)
    return found


def quantile(values: Sequence[float], at: float) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return statistics.quantiles(values, n=1000, method="inclusive")[round(at * 1000) - 1]


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def hour_of(ms: int) -> int:
    return ms - ms % HOUR


def lateness(e: Happened) -> int | None:
    return e.started - e.due if e.event in ENDED and e.started is not None and e.due is not None else None


def is_snoozed(e: Happened) -> bool:
    """A handler that raises Snooze leaves its class."""
    return e.event == "released" and bool(e.error)


def duration(e: Happened) -> int | None:
    return e.finished - e.started if e.started is not None and e.started <= e.finished else None


def life(e: Happened) -> tuple[Any, ...]:
    return (e.topic, e.id, e.created)


def order(e: Happened) -> tuple[int, ...]:
    """An entry's place in its stream."""
    return tuple(map(int, e.entry.split("-")))


def _late(waits: list[int], slo: int, objective: float) -> dict[str, Any]:
    within = sum(w <= slo for w in waits)
    on_time = within / len(waits)
    return {
        "attempts": len(waits), "p50_ms": quantile(waits, 0.5), "p95_ms": quantile(waits, 0.95),
        "p99_ms": quantile(waits, 0.99), "max_ms": max(waits), "within_slo": within, "share_within_slo": on_time,
        "budget_burn": (1 - on_time) / (1 - objective),
    }  # fmt: skip


def punctuality(log: Log, slo: int = 1000, objective: float = 0.99) -> Table:
    timed = [(e.topic, hour_of(e.finished), w) for e in log if (w := lateness(e)) is not None]
    return [
        {"topic": topic, "hour": hour, **_late([w for _, _, w in rows], slo, objective)}
        for (topic, hour), rows in by(timed, lambda t: t[:2]).items()
    ]


def punctuality_topics(log: Log, slo: int = 1000, objective: float = 0.99) -> Table:
    timed = [(e.topic, w) for e in log if (w := lateness(e)) is not None]
    return [
        {"topic": topic, **_late([w for _, w in rows], slo, objective)}
        for topic, rows in by(timed, lambda t: t[0]).items()
    ]


def throughput(log: Log) -> Table:
    table = []
    for (topic, group, hour), rows in by(log, lambda e: (e.topic, e.group, hour_of(e.finished))).items():
        counts = Counter("snoozed" if is_snoozed(e) else e.event for e in rows)
        minutes = Counter(e.finished // 60_000 for e in rows if e.event == "done")
        table.append(
            {
                "topic": topic, "group": group, "hour": hour, **{kind: counts[kind] for kind in KINDS},
                "peak_done_per_minute": max(minutes.values(), default=0),
                "done_bytes": sum(e.body_bytes or 0 for e in rows if e.event == "done"),
            }
        )  # fmt: skip
    return table


def _waits(log: Log) -> dict[tuple[Any, ...], list[int]]:
    """By topic, group and step: from a failure to the due time of the attempt that followed it."""
    waits = defaultdict(list)
    for e, wait in _retried(log):
        waits[e.topic, e.group, e.step].append(wait)
    return waits


def _retried(log: Log) -> Iterator[tuple[Happened, int]]:
    """Each attempt that followed a failure, and how long it had to wait."""
    for rows in by(log, lambda e: (life(e), e.group)).values():
        trail = [e for e in sorted(rows, key=order) if e.attempt > 1 or e.event == "retry"]
        for before, e in pairwise(trail):
            if e.event not in ENDED or e.due is None or before.event != "retry":
                continue
            if before.step is not None and before.step + 1 == e.step:
                yield e, e.due - before.finished


def lateness_causes(log: Log) -> Table:
    sums: dict[Any, Counter[str]] = defaultdict(Counter)
    for e in log:
        if (late := lateness(e)) is not None:
            assert e.due is not None
            known = max(late, 0)
            mover = 0 if e.moved is None else min(max(e.moved - e.due, 0), known)
            sums[e.topic, hour_of(e.finished)].update(attempts=1, late=known, mover=mover)
    for e, wait in _retried(log):
        sums[e.topic, hour_of(e.finished)].update(retries=1, retry=max(wait, 0))
    return [
        {
            "topic": topic, "hour": hour, "attempts": n["attempts"], "late_ms": n["late"], "mover_ms": n["mover"],
            "worker_ms": n["late"] - n["mover"], "retries": n["retries"], "retry_ms": n["retry"],
        }
        for (topic, hour), n in sums.items()
    ]  # fmt: skip


def retries(log: Log) -> Table:
    waits, table = _waits(log), []
    stepped = [e for e in log if e.step is not None and (e.event in ENDED or e.event == "reclaimed")]
    for (topic, group), of_group in by(stepped, lambda e: (e.topic, e.group)).items():
        all_done, so_far = sum(e.event == "done" for e in of_group), 0
        for step, rows in sorted(by(of_group, lambda e: e.step).items()):
            n = Counter(e.event for e in rows)
            so_far += n["done"]
            attempts = n["done"] + n["retry"] + n["dead"]
            table.append(
                {
                    "topic": topic, "group": group, "step": step, "wait_ms": quantile(waits[topic, group, step], 0.5),
                    "attempts": attempts, "done": n["done"], "failed": n["retry"] + n["dead"], "dead": n["dead"],
                    "lost": n["reclaimed"], "success_rate": ratio(n["done"], attempts),
                    "share_of_done": ratio(n["done"], all_done), "done_so_far": ratio(so_far, all_done),
                }
            )  # fmt: skip
    return table


def dead_letters(log: Log) -> Table:
    table, dead = [], [e for e in log if e.event == "dead"]
    totals = Counter((e.topic, e.group) for e in dead)
    for (topic, group, reason, error), rows in by(dead, lambda e: (e.topic, e.group, e.reason, e.error)).items():
        last = max(rows, key=lambda e: (order(e), e.id))
        table.append(
            {
                "topic": topic, "group": group, "reason": reason, "error": error, "dead": len(rows),
                "share": len(rows) / totals[topic, group], "most_attempts": max(e.attempt for e in rows),
                "first": min(e.finished for e in rows), "last": max(e.finished for e in rows), "last_id": last.id,
            }
        )  # fmt: skip
    return table


def time_to_finish(log: Log) -> Table:
    spans = []  # scope, topic, group, from creation, from the first due time
    for key, rows in by((e for e in log if e.created is not None), life).items():
        topic, _, created = key
        ends: list[int | None] = []
        starts: list[int | None] = []
        for group, own in by(rows, lambda e: e.group).items():
            done = [e.finished for e in own if e.event == "done"]
            dues = [e.due for e in own if e.event != "kicked" and e.attempt <= 1 and e.due is not None]
            ends.append(max(done, default=None))
            starts.append(min(dues, default=None))
            if done:
                spans.append(("group", topic, group, max(done) - created, max(done) - min(dues) if dues else None))
        done_at, first_dues = [t for t in ends if t is not None], [t for t in starts if t is not None]
        if len(done_at) == len(ends):
            after = max(done_at) - min(first_dues) if len(first_dues) == len(starts) else None
            spans.append(("job", topic, None, max(done_at) - created, after))
    table = []
    for (scope, topic, group), rows in by(spans, lambda s: s[:3]).items():
        total, afters = [r[3] for r in rows], [r[4] for r in rows if r[4] is not None]
        table.append(
            {
                "scope": scope, "topic": topic, "group": group, "jobs": len(total),
                **_spread("total", total), "after_due_jobs": len(afters), **_spread("after_due", afters),
            }
        )  # fmt: skip
    return table


def _spread(name: str, values: list[int]) -> dict[str, Any]:
    levels = {f"{name}_p{round(at * 100)}_ms": quantile(values, at) for at in (0.5, 0.95, 0.99)}
    return {**levels, f"{name}_max_ms": max(values, default=None)}


def workers(log: Log) -> Table:
    busy: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    ended: Counter[Any] = Counter()
    for e in log:
        if e.event not in ENDED | {"released", "reclaimed"} or e.consumer is None or duration(e) is None:
            continue
        assert e.started is not None
        last = hour_of(e.finished)
        ended[e.group, e.consumer, last] += 1
        for hour in range(max(hour_of(e.started), last - 47 * HOUR), last + 1, HOUR):
            busy[e.group, e.consumer, hour].append((max(e.started, hour), min(e.finished, hour + HOUR)))
    table = [
        {
            "group": group, "consumer": consumer, "hour": hour, "ended": ended[group, consumer, hour],
            "busy_ms": sum(b - a for a, b in spans), "most_at_once": _most_at_once(spans),
        }
        for (group, consumer, hour), spans in busy.items()
    ]  # fmt: skip
    own = by(table, lambda r: (r["group"], r["consumer"], r["hour"] // DAY))
    beside = by(table, lambda r: (r["group"], r["hour"]))
    for row in table:
        row["slots"] = max(r["most_at_once"] for r in own[row["group"], row["consumer"], row["hour"] // DAY])
        row["utilisation"] = row["busy_ms"] / (row["slots"] * HOUR)
        times = [r["busy_ms"] for r in beside[row["group"], row["hour"]]]
        row["skew"] = ratio(max(times), statistics.fmean(times))
    return table


def _most_at_once(spans: list[tuple[int, int]]) -> int:
    """By seats: whoever starts takes the seat of someone who has ended by then, or a new one."""
    seats: list[int] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if seats and seats[0] <= start:
            heapq.heapreplace(seats, end)
        else:
            heapq.heappush(seats, end)
    return max(1, len(seats))


def duplicates(log: Log) -> Table:
    table = []
    for (topic, group), own in by(log, lambda e: (e.topic, e.group)).items():
        lives = [(key[1], Counter(e.event for e in rows)) for key, rows in by(own, life).items()]
        attempts = sum(n[kind] for _, n in lives for kind in ENDED)
        reclaimed = sum(n["reclaimed"] for _, n in lives)
        most, id = max(((n["reclaimed"], id) for id, n in lives), default=(0, None))
        table.append(
            {
                "topic": topic, "group": group, "jobs": len(lives), "attempts": attempts,
                "done_again": sum(n["done"] - 1 for _, n in lives if n["done"] > 1),
                "jobs_done_again": sum(n["done"] > 1 for _, n in lives), "reclaimed": reclaimed,
                "jobs_reclaimed": sum(n["reclaimed"] > 0 for _, n in lives),
                "released": sum(e.event == "released" and not is_snoozed(e) for e in own),
                "share_reclaimed": ratio(reclaimed, attempts + reclaimed), "most_reclaimed": most,
                "most_reclaimed_id": id if most else None,
            }
        )  # fmt: skip
    return table


ROUND_S = [1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10800,
           14400, 21600, 43200, 86400]  # fmt: skip


def advice(log: Log, min_done: int = 1000) -> Table:
    table, steps = [], by(retries(log), lambda r: (r["topic"], r["group"]))
    tried = [e for e in log if e.event in ENDED | {"reclaimed"}]
    for (topic, group), rows in by(tried, lambda e: (e.topic, e.group)).items():
        took = [d for e in rows if e.event == "done" and (d := duration(e)) is not None]
        p999 = quantile(took, 0.999)
        late = [e for e in rows if e.event in {"retry", "dead"} and e.error == "TimeoutError"]
        cut = sum(e.event == "reclaimed" for e in rows)
        cut += sum(p999 is not None and (d := duration(e)) is not None and d >= p999 for e in late)
        few = len(took) < min_done
        ttr = None if few or p999 is None else _rounded(2 * p999)
        table.append(
            {
                "topic": topic, "group": group, "done": len(took), "p50_ms": quantile(took, 0.5),
                "p99_ms": quantile(took, 0.99), "p999_ms": p999, "max_ms": max(took, default=None), "cut_off": cut,
                "share_cut_off": cut / len(rows), "ttr_ms": ttr,
                "ttr_verdict": "too few" if few else "cut off" if cut / len(rows) > 0.001 else "ok",
                **_schedule([r for r in steps.get((topic, group), []) if r["step"] > 0]),
            }
        )  # fmt: skip
    return table


def _rounded(ms: float) -> int:
    return next((1000 * s for s in ROUND_S if 1000 * s >= ms), -int(-ms // DAY) * DAY)


def _schedule(steps: Table) -> dict[str, Any]:
    if not steps:
        return {"waits_ms": None, "keep_steps": None, "retried": 0, "retry_verdict": "no retries"}
    bounds = [(r["step"], *_wilson(r["done"], r["attempts"])) for r in sorted(steps, key=lambda r: r["step"])]
    keep = max((step for step, _, upper in bounds if upper >= 0.01), default=0)
    last, lower, _ = bounds[-1]
    return {
        "waits_ms": [r["wait_ms"] for r in sorted(steps, key=lambda r: r["step"])],
        "keep_steps": keep,
        "retried": sum(r["attempts"] for r in steps),
        "retry_verdict": "shorten" if keep < last else "too few" if lower < 0.01 else "ok",
    }


def _wilson(done: int, n: int) -> tuple[float, float]:
    """As Wikipedia writes it: the two p for which |p - p̂| = z √(p(1-p)/n); by its quadratic's roots."""
    if not n:
        return 0.0, 1.0
    z2, rate = 1.96**2, done / n
    a, b, c = 1 + z2 / n, -(2 * rate + z2 / n), rate**2
    root = max(0.0, b * b - 4 * a * c) ** 0.5
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def _hourly(log: Log, counts: Callable[[Happened], bool]) -> dict[tuple[str, int], int]:
    """Topic and complete hour → how many."""
    found: dict[tuple[str, int], int] = {}
    if not log:
        return found
    end = hour_of(max(e.finished for e in log))
    for topic, rows in by(log, lambda e: e.topic).items():
        n = Counter(hour_of(e.finished) for e in rows if counts(e))
        for hour in range(hour_of(min(e.finished for e in rows)) + HOUR, end, HOUR):
            found[topic, hour] = n[hour]
    return found


def anomalies(log: Log, slo: int = 1000) -> Table:
    """Day by day: of each what could be known from the 57 days before it, and from itself."""
    end = max((e.finished for e in log), default=0) // DAY * DAY
    first = min((e.finished for e in log), default=0) // DAY * DAY
    table: Table = []
    for day in range(first, end + DAY, DAY):
        table += _unusual([e for e in log if day - 57 * DAY <= e.finished < day + DAY], day, day < end, slo)
    return table


def _unusual(log: Log, day: int, goes_on: bool, slo: int) -> Table:
    table = []
    measures: dict[str, Callable[[Happened], bool]] = {
        "done": lambda e: e.event == "done",
        "failed": lambda e: e.event in {"retry", "dead"},
        "late": lambda e: (lateness(e) or 0) > slo,
    }
    # That there are later events makes all hours of the day complete: as if something happened right after it.
    seen = [*log, log[-1]._replace(topic="", finished=day + DAY)] if goes_on and log else log
    for measure, counts in measures.items():
        hourly = _hourly(seen, counts)
        for (topic, hour), value in hourly.items():
            if hour < day:
                continue
            before = [hourly[topic, h] for k in range(1, 9) if (topic, h := hour - k * WEEK) in hourly]
            usual = statistics.median(before) if before else None
            mad = statistics.median(abs(v - usual) for v in before) if usual is not None else None
            score = None
            if len(before) >= 3 and usual is not None and mad is not None:
                score = 0.6745 * (value - usual) / max(mad, 3, 0.05 * usual, 0.6745 * usual**0.5)
            table.append(
                {
                    "topic": topic, "hour": hour, "measure": measure, "value": value, "usual": usual, "mad": mad,
                    "weeks": len(before), "score": score, "anomaly": score is not None and abs(score) > 3.5,
                }
            )  # fmt: skip
    return table


def _level(past: dict[tuple[str, int], int], topic: str, end: int) -> int | None:
    """How much was done in the seven days before `end`, if all of them are known and it was anything."""
    week = [past.get((topic, hour)) for hour in range(end - WEEK, end, HOUR)]
    known = [n for n in week if n is not None]
    return sum(known) or None if len(known) == len(week) else None


def _told(past: dict[tuple[str, int], int], topic: str, hour: int, last: int) -> list[float]:
    """What the same hour of seven earlier weeks makes one expect of this one, by what was known when its day began."""
    begin = last - -(-(last - hour) // DAY) * DAY if hour < last else last
    now, as_it_was, adjusted = _level(past, topic, begin), [], []
    for k in range(1, 8):
        if (topic, hour - k * WEEK) in past:
            n = past[topic, hour - k * WEEK]
            as_it_was.append(float(n))
            # Where the hour is further from the last event than a day, its day in an earlier week begins later.
            ago = hour - k * WEEK
            then = _level(past, topic, last - -(-(last - ago) // DAY) * DAY)
            if now and then:
                adjusted.append(n / then * now)
    return sorted(adjusted if len(adjusted) >= 2 else as_it_was)


def forecast(log: Log, waiting: dict[tuple[str, int], int] | None = None, start: int | None = None) -> Table:
    if not log:
        return []
    last = hour_of(max(e.finished for e in log))
    log = [e for e in log if hour_of(e.finished) >= last - 57 * DAY]
    past = _hourly(log, lambda e: e.event in ENDED)
    start, table = last if start is None else start, []
    for topic in {e.topic for e in log} | {topic for topic, _ in waiting or {}}:
        missed = []
        for hour in range(last - 28 * DAY, last, HOUR):
            values = _told(past, topic, hour, last)
            if (topic, hour) in past and len(values) >= 2:
                usual = statistics.median(values)
                missed.append((past[topic, hour] - usual) / max(usual, 1) ** 0.5)
        for hour in range(start, start + 24 * HOUR, HOUR):
            values = _told(past, topic, hour, last)
            expected = statistics.median(values) if len(values) >= 2 else None
            low = high = None
            if expected is not None:
                low, high = values[0], values[-1]
                if len(missed) >= 168:
                    spread = max(expected, 1) ** 0.5
                    least, most = (quantile(missed, at) or 0.0 for at in (0.1, 0.9))
                    low, high = max(0.0, expected + least * spread), expected + most * spread
            waits = None if waiting is None else waiting.get((topic, hour), 0)
            table.append(
                {
                    "topic": topic, "hour": hour, "expected": expected, "low": low, "high": high,
                    "weeks": len(values), "waiting": waits,
                    "load": max((v for v in (expected, waits) if v is not None), default=None),
                }
            )  # fmt: skip
    return table


def changes(log: Log, slo: int = 1000) -> Table:
    table: Table = []
    if not log:
        return table
    end = max(e.finished for e in log)
    for topic, rows in by(log, lambda e: e.topic).items():
        periods = [[e for e in rows if (end - e.finished) // WEEK == age] for age in (1, 0)]
        ended = [[e for e in period if e.event in ENDED] for period in periods]
        parts: dict[str, Callable[[Happened], bool]] = {
            "late": lambda e: (lateness(e) or 0) > slo,
            "failed": lambda e: e.event != "done",
            "dead": lambda e: e.event == "dead",
        }
        for measure, counts in parts.items():
            if any(ended):
                values = [ratio(sum(map(counts, period)), len(period)) for period in ended]
                table.append(_compared(topic, measure, values, [len(period) for period in ended], is_share=True))
        waits = [[w for e in period if (w := lateness(e)) is not None] for period in periods]
        took = [[d for e in period if e.event == "done" and (d := duration(e)) is not None] for period in periods]
        for measure, at, both in (("lateness", 0.99, waits), ("duration", 0.95, took)):
            if any(both):
                values = [quantile(period, at) for period in both]
                table.append(_compared(topic, measure, values, [len(period) for period in both], is_share=False))
    return table


def _compared(topic: str, measure: str, values: list[float | None], n: list[int], *, is_share: bool) -> dict[str, Any]:
    before, now = values
    verdict = "too little"
    if min(n) >= 100 and before is not None and now is not None:
        gap = abs(now - before)
        if is_share:
            pooled = (before * n[0] + now * n[1]) / sum(n)
            differs = gap >= 0.001 and gap > 3 * (pooled * (1 - pooled) * (1 / n[0] + 1 / n[1])) ** 0.5
        else:
            differs = gap >= 10 and max(now, before) >= 1.25 * min(now, before)
        verdict = "same" if not differs else "worse" if now > before else "better"
    return {
        "topic": topic, "measure": measure, "before": before, "now": now, "attempts_before": n[0],
        "attempts_now": n[1], "verdict": verdict,
    }  # fmt: skip
