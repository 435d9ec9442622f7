"""Every answer once more, in plain Python over the same events: no Spark, no pandas, no code of the questions."""

import heapq
import math
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

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
    key: str | None = None


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
    for e, wait, used in _retried(log):
        if used:
            waits[e.topic, e.group, e.step].append(wait)
    return waits


def _retried(log: Log) -> Iterator[tuple[Happened, int, bool]]:
    """Each attempt that followed a failure, how long it had to wait, and whether that used a step of the schedule."""
    for rows in by(log, lambda e: (life(e), e.group)).values():
        trail = [e for e in sorted(rows, key=order) if e.attempt > 1 or e.event == "retry"]
        for before, e in pairwise(trail):
            if e.event not in ENDED or e.due is None or before.event != "retry":
                continue
            if before.step is not None and e.step in (before.step, before.step + 1):
                yield e, e.due - before.finished, e.step != before.step


def lateness_causes(log: Log) -> Table:
    sums: dict[Any, Counter[str]] = defaultdict(Counter)
    for e in log:
        if (late := lateness(e)) is not None:
            assert e.due is not None
            known = max(late, 0)
            mover = 0 if e.moved is None else min(max(e.moved - e.due, 0), known)
            sums[e.topic, hour_of(e.finished)].update(attempts=1, late=known, mover=mover)
    for e, wait, _ in _retried(log):
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
    sent_back = set()
    for own in by((e for e in log if e.event in {"dead", "kicked"}), lambda e: (life(e), e.group)).values():
        trail = sorted(own, key=order)
        sent_back |= {(*life(a), a.entry) for a, b in pairwise(trail) if (a.event, b.event) == ("dead", "kicked")}
    totals = Counter((e.topic, e.group) for e in dead)
    for (topic, group, reason, error), rows in by(dead, lambda e: (e.topic, e.group, e.reason, e.error)).items():
        last = max(rows, key=lambda e: (order(e), e.id))
        kicked = sum((*life(e), e.entry) in sent_back for e in rows)
        table.append(
            {
                "topic": topic, "group": group, "reason": reason, "error": error, "dead": len(rows),
                "kicked": kicked, "share": len(rows) / totals[topic, group],
                "most_attempts": max(e.attempt for e in rows),
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


def flows(log: Log) -> Table:
    accounts: dict[Any, str | None] = {}
    for e in log:
        if e.topic == "streamdq.flows" and e.event in ("flow", "unblocked"):
            one, reason = (e.id, e.created), e.reason if e.event == "flow" else None
            accounts[one] = max(filter(None, (accounts.get(one), reason)), default=None)
    took: dict[str | None, list[tuple[bool, int | None, int | None]]] = defaultdict(list)
    for account in accounts.values():
        outcome, *words = (account or "").split(" ")
        failed, waited_ms, ran_ms = outcome in ("failed", "cancelled"), list[int](), list[int]()
        for name, _, ms in (word.rpartition("=") for word in words[1:]):
            waited, ran = map(int, ms.split(","))
            took[name].append((failed, waited, ran))
            waited_ms.append(waited)
            ran_ms.append(ran)
        took[None].append((failed, sum(waited_ms), sum(ran_ms)) if ran_ms else (failed, None, None))
    whole = sum((waited or 0) + (ran or 0) for _, waited, ran in took[None])
    table = []
    for topic, rows in took.items():
        if not rows:
            continue
        waits = [waited for _, waited, _ in rows if waited is not None]
        runs = [ran for _, _, ran in rows if ran is not None]
        table.append(
            {
                "topic": topic, "flows": len(rows), "failed": sum(row[0] for row in rows), "with_path": len(waits),
                "waited_ms": sum(waits), "ran_ms": sum(runs),
                "share": ratio(sum(waits) + sum(runs), whole) if waits else None,
                "waited_p50_ms": quantile(waits, 0.5), "waited_p95_ms": quantile(waits, 0.95),
                "ran_p50_ms": quantile(runs, 0.5), "ran_p95_ms": quantile(runs, 0.95),
            }
        )  # fmt: skip
    return table


def workers(log: Log) -> Table:
    table = _worked(log, lambda *_: True)
    own = by(table, lambda r: (r["group"], r["consumer"], r["hour"] // DAY))
    beside = by(table, lambda r: (r["group"], r["hour"]))
    for row in table:
        row["slots"] = max(r["most_at_once"] for r in own[row["group"], row["consumer"], row["hour"] // DAY])
        row["utilisation"] = row["busy_ms"] / (row["slots"] * HOUR)
        times = [r["busy_ms"] for r in beside[row["group"], row["hour"]]]
        row["skew"] = ratio(max(times), statistics.fmean(times))
    return table


def worked_of_day(log: Log) -> Table:
    """What a worker did in each hour, of attempts that ended on the day of the hour."""
    return _worked(log, lambda e, hour: e.finished // DAY == hour // DAY)


def _worked(log: Log, counts: Callable[[Happened, int], bool]) -> Table:
    busy: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    ended: Counter[Any] = Counter()
    for e in log:
        if e.event not in ENDED | {"released", "reclaimed"} or e.consumer is None or duration(e) is None:
            continue
        assert e.started is not None
        last = hour_of(e.finished)
        ended[e.group, e.consumer, last] += 1
        for hour in range(max(hour_of(e.started), last - 47 * HOUR), last + 1, HOUR):
            if counts(e, hour):
                busy[e.group, e.consumer, hour].append((max(e.started, hour), min(e.finished, hour + HOUR)))
    return [
        {
            "group": group, "consumer": consumer, "hour": hour, "ended": ended[group, consumer, hour],
            "busy_ms": sum(b - a for a, b in spans), "most_at_once": _most_at_once(spans),
        }
        for (group, consumer, hour), spans in busy.items()
    ]  # fmt: skip


def _most_at_once(spans: list[tuple[int, int]]) -> int:
    """By seats: an attempt that starts takes the seat of one that has ended before, or a new one."""
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


def _cost(rows: Log, whole: int) -> dict[str, Any]:
    """Of the rows of some jobs; ``whole``: the running time that theirs is a share of."""
    spent: Counter[str] = Counter()
    for e in rows:
        if e.event in (*ENDED, "reclaimed", "released"):
            kind = "failed" if e.event in ("retry", "dead") else e.event
            spent[kind] += duration(e) or 0
            spent["bytes"] += e.body_bytes or 0
    ran = sum(spent[kind] for kind in ("done", "failed", "reclaimed", "released"))
    lives = by(rows, life).values()
    return {
        "jobs": len(lives), "attempts": sum(e.event in ENDED for e in rows),
        "failed": sum(e.event in ("retry", "dead") for e in rows),
        "reclaimed": sum(e.event == "reclaimed" for e in rows),
        "worker_ms": ran, "share": ratio(ran, whole), "failed_ms": spent["failed"],
        "failed_share": ratio(spent["failed"], ran), "reclaimed_ms": spent["reclaimed"],
        "reclaimed_share": ratio(spent["reclaimed"], ran), "put_back_ms": spent["released"],
        "body_bytes": sum(max(e.body_bytes or 0 for e in own) for own in lives), "read_bytes": spent["bytes"],
    }  # fmt: skip


def cost_by_topic(log: Log) -> Table:
    whole = _cost(log, 0)["worker_ms"]
    return [
        {"topic": topic, "group": group, **_cost(rows, whole)}
        for (topic, group), rows in by(log, lambda e: (e.topic, e.group)).items()
    ]


def cost_by_key(log: Log) -> Table:
    table = []
    for (topic, group), rows in by(log, lambda e: (e.topic, e.group)).items():
        whole = _cost(rows, 0)["worker_ms"]
        key_of = {life(e): e.key for e in rows if e.key}
        keys = by(((key_of[life(e)], e) for e in rows if life(e) in key_of), lambda pair: pair[0])
        keys = {key: [e for _, e in own] for key, own in keys.items()}
        ranked = sorted(keys, key=lambda key: (-_cost(keys[key], 0)["worker_ms"], key))
        named = [(rank, key, 1, keys[key]) for rank, key in enumerate(ranked[:20], 1)]
        rest = [(None, None, len(ranked) - 20, [e for key in ranked[20:] for e in keys[key]])] if ranked[20:] else []
        table += [
            {"topic": topic, "group": group, "rank": rank, "key": key, "keys": count, **_cost(own, whole)}
            for rank, key, count, own in [*named, *rest]
        ]
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
        ttr = None if few or p999 is None else _rounded(p999 + max(p999, 10_000))
        table.append(
            {
                "topic": topic, "group": group, "done": len(took), "p50_ms": quantile(took, 0.5),
                "p99_ms": quantile(took, 0.99), "p999_ms": p999, "max_ms": max(took, default=None), "cut_off": cut,
                "share_cut_off": cut / len(rows), "ttr_ms": ttr,
                "ttr_verdict": "too few" if few else "cut off" if cut >= 5 and cut / len(rows) > 0.001 else "ok",
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


class Clock(NamedTuple):
    """Hours as a zone's clocks show them: in ms, as if they were UTC."""

    tz: str

    def shown(self, hour: int) -> int:
        at = datetime.fromtimestamp(hour / 1000, ZoneInfo(self.tz))
        offset = at.utcoffset()
        assert offset is not None
        return hour_of(hour + offset // timedelta(milliseconds=1))


OF = {"done": "attempts", "failed": "firsts", "late": "attempts"}
"""What an hour's figures are shares of."""


class Hours:
    """What each complete hour of a topic was, by measure, found by its number or by what the clocks showed."""

    def __init__(self, log: Log, topic: str, end: int, slo: int, tz: str) -> None:
        own = [e for e in log if e.topic == topic]
        self.events = sorted({hour_of(e.finished) for e in own})
        self.at = list(range(self.events[0] + HOUR, end, HOUR)) if own else []
        counts: dict[str, Callable[[Happened], bool]] = {
            "attempts": lambda e: e.event in ENDED,
            "firsts": lambda e: e.event in ENDED and e.attempt <= 1,
            "done": lambda e: e.event == "done",
            "failed": lambda e: e.event in {"retry", "dead"} and e.attempt <= 1,
            "late": lambda e: (lateness(e) or 0) > slo,
        }
        self.n = {name: Counter(hour_of(e.finished) for e in own if is_one(e)) for name, is_one in counts.items()}
        self.clock = {at: Clock(tz).shown(at) for at in self.at}
        self.shown = by(self.at, lambda at: self.clock[at])

    def between(self, first: int, last: int) -> list[int]:
        """The hours in which the clocks showed these and what lies between them."""
        return [at for shown in range(first, last + 1, HOUR) for at in self.shown.get(shown, [])]

    def before(self, at: int) -> int:
        """The last event's hour before this one."""
        return self.events[bisect_left(self.events, at) - 1]

    def count(self, name: str, hours: Iterable[int]) -> int:
        return sum(self.n[name][at] for at in hours)

    @cache  # noqa: B019
    def earlier(self, at: int) -> list[int]:
        """The same hour of eight weeks, as far as the topic was there: by what happened in the 57 days before."""
        begin = at // DAY * DAY - 57 * DAY
        found = [self.shown.get(self.clock[at] - k * WEEK, [])[:1] for k in range(1, 9)]
        return [hour for one in found for hour in one if self.before(hour) >= begin]

    @cache  # noqa: B019
    def part(self, at: int) -> float | None:
        """Of what is done in a week."""
        weeks = self.earlier(at)
        if len(weeks) < 3:
            return None
        parts = []
        for hour in weeks:
            week = self.between(self.clock[hour], self.clock[hour] + WEEK - HOUR)
            if len(self.shown[self.clock[hour]]) > 1:  # the hour comes twice; the week begins with this one
                week = [one for one in week if one >= hour]
            parts.append(ratio(self.n["done"][hour], self.count("done", week)) or 0.0)
        inner = sorted(parts)[1:-1]
        return sum(inner) / len(inner)

    def day(self, at: int) -> list[int]:
        return self.between(self.clock[at] - DAY, self.clock[at] - HOUR)

    def middle_day(self, of_day: Callable[[int], float | None], at: int) -> float | None:
        found = []
        for k in range(7):
            same = [v for one in self.shown.get(self.clock[at] - k * DAY, []) if (v := of_day(one)) is not None]
            found += [max(same)] if same else []
        return statistics.median(found) if found else None

    @cache  # noqa: B019
    def level(self, at: int) -> float | None:
        known = [one for one in self.day(at) if self.part(one) is not None]
        parts = sum(self.part(one) or 0.0 for one in known)
        return self.count("done", known) / parts if parts else None

    @cache  # noqa: B019
    def expected(self, at: int) -> float | None:
        part, level = self.part(at), self.middle_day(self.level, at)
        return None if part is None or level is None else part * level

    @cache  # noqa: B019
    def nearer(self, at: int) -> float | None:
        part, level, expected = self.part(at), self.level(at), self.expected(at)
        if part is None or level is None or expected is None:
            return expected
        return min(expected, part * level, key=lambda e: abs(self.n["done"][at] - e))

    @cache  # noqa: B019
    def as_before(self, at: int) -> float | None:
        """What is no news, as the same hour of the day before was much off in this direction as well."""

        def much(one: int, way: int) -> bool:
            usual = self.nearer(one)
            return usual is not None and way * (self.n["done"][one] - usual) > max(usual / 2, 4 * max(usual, 1) ** 0.5)

        n, usual = self.n["done"][at], self.nearer(at)
        if usual is None or n == usual:
            return None
        way = 1 if n > usual else -1
        day_before = [self.n["done"][one] for one in self.shown.get(self.clock[at] - DAY, []) if much(one, way)]
        if not day_before:
            return None
        before = max(day_before, key=lambda came: way * came)
        if way * (before - usual) <= 0:
            return None
        edge = usual + 1.5 * (before - usual)
        return min(n, edge) if way > 0 else max(n, edge)

    @cache  # noqa: B019
    def both(self, at: int) -> tuple[float | None, float | None]:
        """Expected by the level of seven days, and by today's."""
        before, part, level = self.as_before(at), self.part(at), self.level(at)
        today = None if part is None or level is None else part * level
        return (self.expected(at), today) if before is None else (before, before)

    def usual(self, at: int) -> float | None:
        return self.nearer(at) if self.as_before(at) is None else self.as_before(at)

    def moment(self, pairs: Iterable[tuple[float, float | None]]) -> float | None:
        """The dispersion of these, counts and what was expected."""
        known = [(n, e) for n, e in pairs if e is not None]
        squares = sum(e * e for _, e in known)
        return (sum((n - e) ** 2 for n, e in known) - sum(e for _, e in known)) / squares if squares else None

    @cache  # noqa: B019
    def dispersion(self, at: int) -> float | None:
        return self.moment((self.n["done"][one], self.both(one)[0]) for one in self.day(at))

    @cache  # noqa: B019
    def off(self, at: int) -> float | None:
        dispersion = self.middle_day(self.dispersion, at)
        off = None if dispersion is None else _done_off(self.n["done"][at], *self.both(at), dispersion)
        return off if off is None or self.as_before(at) is None else off / math.sqrt(2)

    @cache  # noqa: B019
    def done_score(self, at: int) -> float | None:
        off = self.off(at)
        if off is None:
            return None
        if off < 0 and not self.n["done"][at]:
            squares = 0.0
            for one in reversed(self.between(self.clock[at] - DAY + HOUR, self.clock[at])):
                if one > at:
                    continue
                if self.n["done"][one] or (self.off(one) or 0.0) >= 0:
                    break
                squares += (self.off(one) or 0.0) ** 2
            off = -math.sqrt(squares)
        return round(off / math.sqrt(1 + 1 / max(1, len(self.earlier(at)) - 2)), 6)

    @cache  # noqa: B019
    def share(self, name: str, at: int) -> float | None:
        weeks, shown = self.earlier(at), self.clock[at]
        if len(weeks) < 3:
            return None
        halves = [self.between(shown - DAY, shown - DAY // 2 - HOUR), self.between(shown - DAY // 2, shown - HOUR)]
        shares = [ratio(self.count(name, own), self.count(OF[name], own)) or 0.0 for own in halves]
        return max(self.share_before(name, at), min(shares))

    def of_weeks(self, name: str, at: int) -> tuple[int, int]:
        return self.count(name, self.earlier(at)), self.count(OF[name], self.earlier(at))

    def share_before(self, name: str, at: int) -> float:
        """The hour's own share in earlier weeks counts by how much a week's hours differ beside chance."""
        week = self.between(self.clock[at] - WEEK + HOUR, self.clock[at])
        cells = [self.of_weeks(name, one) for one in week if len(self.earlier(one)) >= 3]
        n, of = self.of_weeks(name, at)
        mean = ratio(sum(cell[0] for cell in cells), sum(cell[1] for cell in cells)) or 0.0
        chance = mean * (1 - mean)
        beside = sum((part - mean * whole) ** 2 - chance * whole for part, whole in cells)
        variance = max(0.0, ratio(beside, sum(whole**2 for _, whole in cells)) or 0.0)
        known = of * variance + chance
        return mean + (n - of * mean) * variance / known if known else mean

    @cache  # noqa: B019
    def share_off(self, name: str, at: int) -> float | None:
        share, n, of = self.share(name, at), self.n[name][at], self.n[OF[name]][at]
        if share is None:
            return None
        return _share_off(n, of * min(max(share, 1e-6), 1 - 1e-6), of)

    @cache  # noqa: B019
    def share_score(self, name: str, at: int) -> float | None:
        def worst(one: int) -> float | None:
            return max((off for hour in self.day(one) if (off := self.share_off(name, hour)) is not None), default=None)

        off, usual = self.share_off(name, at), self.middle_day(worst, at)
        return None if off is None else round(off / max(1.0, (usual or 0.0) / 2.3), 6)

    # -- several hours

    @cache  # noqa: B019
    def window(self, at: int, hours: int) -> tuple[int, ...] | None:
        """The hours that end with this one; None if not all of them have scores."""
        own = range(at - (hours - 1) * HOUR, at + HOUR, HOUR)
        known = all(
            one in self.clock and self.done_score(one) is not None and self.share("failed", one) is not None
            for one in own
        )
        return tuple(own) if known else None

    @cache  # noqa: B019
    def window_moment(self, at: int, hours: int) -> float | None:
        windows = [self.window(one, hours) for one in self.day(at)]
        return self.moment(
            (self.count("done", own), sum(self.both(one)[0] or 0.0 for one in own)) for own in windows if own
        )

    def window_score(self, measure: str, at: int, hours: int) -> float | None:
        """None: not unusual. Of hours that are far off by themselves what is usual counts."""
        own = self.window(at, hours)
        return (
            None if own is None else self._done_window(own) if measure == "done" else self._share_window(measure, own)
        )

    def _done_window(self, own: tuple[int, ...]) -> float | None:
        hours, at = len(own), own[-1]
        n = sum(
            (self.usual(one) or 0.0) if abs(self.done_score(one) or 0.0) > 4 else self.n["done"][one] for one in own
        )
        expected = sum(self.both(one)[0] or 0.0 for one in own)
        of_today = [e for one in own if (e := self.both(one)[1]) is not None]
        today = sum(of_today) if of_today else None
        dispersion = self.middle_day(lambda one: self.window_moment(one, hours), at)
        if dispersion is None:
            return None
        dispersion = max(
            dispersion / {3: 0.92, 6: 0.84, 12: 0.69}[hours], (self.middle_day(self.dispersion, at) or 0.0) / hours
        )
        off = _done_off(n, expected, today, dispersion)
        usual = min((e for e in (expected, today) if e is not None), key=lambda e: abs(n - e))
        if off is None or usual < 20 or abs(n - usual) < 0.1 * usual or usual <= n < usual + 5:
            return None
        score = round(off / math.sqrt(1 + 1 / max(1, len(self.earlier(at)) - 2)), 6)
        return score if abs(score) > 4 else None

    @cache  # noqa: B019
    def _window_off(self, measure: str, own: tuple[int, ...]) -> tuple[float, float, int, float]:
        of = self.count(OF[measure], own)
        usual = sum((self.share(measure, one) or 0.0) * self.n[OF[measure]][one] for one in own)
        n = sum(
            (self.share(measure, one) or 0.0) * self.n[OF[measure]][one]
            if (self.share_score(measure, one) or 0.0) > 3.7 else self.n[measure][one]
            for one in own
        )  # fmt: skip
        mean = min(max(usual, of * 1e-6), of * (1 - 1e-6))
        return n, usual, of, _share_off(n, mean, of)

    def _share_window(self, measure: str, own: tuple[int, ...]) -> float | None:
        hours, at = len(own), own[-1]

        def worst(one: int) -> float | None:
            windows = [self.window(hour, hours) for hour in self.day(one)]
            return max((self._window_off(measure, w)[3] for w in windows if w), default=None)

        n, usual, of, off = self._window_off(measure, own)
        times = (self.middle_day(worst, at) or 0.0) / {3: 2.0, 6: 1.7, 12: 1.4}[hours]
        score = round(off / max(1.0, times), 6)
        limit = 2.9 if n >= 2.5 * usual else 3.5
        matters = (measure == "failed" or of >= 20) and n >= usual + 5 and n >= usual + 0.01 * of
        return score if score > limit and matters else None


def _done_off(n: float, expected: float | None, today: float | None, dispersion: float) -> float | None:
    """The signed root of twice the log of how much likelier the count would be if it were expected."""
    known = [e for e in (expected, today) if e is not None]
    if expected is None:
        return None
    mean, size = min(known, key=lambda e: abs(n - e)), 1 / max(dispersion, 1e-6)
    if min(known) <= n <= max(known) or (n == 0 and mean <= 0.01):
        return 0.0
    mean = max(mean, 0.01)
    x = 0.0 if n == 0 else max(n - 0.5, mean) if n > mean else min(n + 0.5, mean)
    likelier = (x * math.log(x / mean) if x else 0.0) - (x + size) * (math.log1p(x / size) - math.log1p(mean / size))
    return math.copysign(math.sqrt(max(0.0, 2 * likelier)), n - mean)


def _share_off(n: float, mean: float, of: int) -> float:
    if n <= mean:
        return 0.0
    x = max(n - 0.5, mean)
    rest = (of - x) * math.log((of - x) / (of - mean)) if of > x else 0.0
    return math.sqrt(max(0.0, 2 * (x * math.log(x / mean) + rest)))


def busy_days(log: Log) -> dict[str, set[int]]:
    """Of each topic that has any: at least 24 attempts, or 5 in an hour."""
    found: dict[str, set[int]] = {}
    for (topic, day), own in by(
        [e for e in log if e.event in ENDED], lambda e: (e.topic, e.finished // DAY * DAY)
    ).items():
        if len(own) >= 24 or max(Counter(hour_of(e.finished) for e in own).values()) >= 5:
            found.setdefault(topic, set()).add(day)
    return found


def anomalies(log: Log, slo: int = 1000, tz: str = "UTC") -> Table:
    table: Table = []
    end = hour_of(max((e.finished for e in log), default=0))
    for topic, busy in busy_days(log).items():
        hours = Hours(log, topic, end, slo, tz)
        for at in hours.at:
            day = at // DAY * DAY
            if hours.before(at) < day - 57 * DAY or not any(day - 57 * DAY <= one <= day for one in busy):
                continue
            for measure in ("done", "failed", "late"):
                attempts = hours.n[OF[measure]][at]
                n, share = hours.n[measure][at], None if measure == "done" else hours.share(measure, at)
                score = hours.done_score(at) if measure == "done" else hours.share_score(measure, at)
                usual = hours.usual(at) if measure == "done" else None if share is None else share * attempts
                more = 0.0 if usual is None else n - usual
                limit, matters = 3.7, (measure == "failed" or attempts >= 20) and more >= max(5, 0.01 * attempts)
                if measure == "done" and usual is not None:
                    limit, matters = 4, abs(more) >= 0.1 * usual and (more < 0 or more >= 5)
                alone, length = score is not None and abs(score) > limit and matters, 1
                scores = {k: s for k in (3, 6, 12) if (s := hours.window_score(measure, at, k)) is not None}
                best = max(scores, key=lambda k: (abs(scores[k]), -k), default=1)
                together = not alone and best > 1 and scores[best] * more > 0
                if together:
                    score, length = scores[best], best
                table.append(
                    {
                        "topic": topic, "hour": at, "measure": measure, "value": n, "usual": usual,
                        "attempts": attempts, "weeks": len(hours.earlier(at)), "hours": length, "score": score,
                        "anomaly": alone or together,
                    }
                )  # fmt: skip
    return table


def incidents(log: Log, slo: int = 1000, tz: str = "UTC") -> Table:
    table: Table = []
    judged = anomalies(log, slo, tz)
    for (topic, measure), rows in by(judged, lambda r: (r["topic"], r["measure"])).items():
        together: list[Table] = []
        for row in sorted((row for row in rows if row["anomaly"]), key=lambda r: r["hour"]):
            begin = row["hour"] - (row["hours"] - 1) * HOUR
            if not together or begin - together[-1][-1]["hour"] > 2 * HOUR:
                together.append([])
            together[-1].append(row)
        for own in together:
            worst = max(own, key=lambda r: (abs(r["score"]), -r["hour"]))
            spans = [(r["hour"] - (r["hours"] - 1) * HOUR, r["hour"]) for r in own if r is worst or r["hours"] == 1]
            first, last = min(span[0] for span in spans), max(span[1] for span in spans)
            within = [r for r in rows if first <= r["hour"] <= last]
            more = [r["value"] - r["usual"] for r in within if r["usual"] is not None]
            table.append(
                {
                    "topic": topic, "measure": measure, "first_hour": first, "last_hour": last,
                    "hours": (last - first) // HOUR + 1, "value": sum(r["value"] for r in within),
                    "usual": sum(r["usual"] or 0.0 for r in within),
                    "size": max(sum(m for m in more if m > 0), -sum(m for m in more if m < 0)), "score": worst["score"],
                }
            )  # fmt: skip
    return table


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


class Forecasts:
    """Of hours that are coming, and of past ones by what was known when their day began."""

    def __init__(self, log: Log, tz: str, holidays: Iterable[date] = (), start: int | None = None) -> None:
        self.last = hour_of(max(e.finished for e in log))
        begin = self.last - 92 * DAY
        self.topics = {topic for topic, days in busy_days(log).items() if max(days) + DAY > begin}
        self.log = [e for e in log if hour_of(e.finished) >= begin and e.topic in self.topics]
        self.past = _hourly(self.log, lambda e: e.event in ENDED)
        self.start = self.last if start is None else start
        self._clock = Clock(tz)
        self._holidays = set(holidays)

    @cache  # noqa: B019
    def day(self, topic: str, ago: int) -> int | None:
        """What was done on a day, if all of its hours are known."""
        known = [self.past.get((topic, self.last - ago * DAY + k * HOUR)) for k in range(24)]
        return None if None in known else sum(n for n in known if n is not None)

    @cache  # noqa: B019
    def growth(self, topic: str, ago: int, weeks: int) -> float | None:
        pairs = [(self.day(topic, ago + k), self.day(topic, ago + k + 7 * weeks)) for k in range(1, 8)]
        if any(n is None for pair in pairs for n in pair):
            return None
        ratios = [now / then for now, then in pairs if now is not None and then]
        return statistics.median(ratios) if ratios else None

    def days_ago(self, hour: int) -> int:
        return max(0, -(-(self.last - hour) // DAY))

    def earlier(self, topic: str, hour: int, weeks: int = 7) -> list[int]:
        """The known hours of so many weeks before in which the clocks showed the same hour of a week."""
        shown = self._clock.shown(hour) % WEEK
        around = [hour - k * WEEK + off for k in range(1, weeks + 1) for off in (-HOUR, 0, HOUR)]
        return [one for one in around if (topic, one) in self.past and self._clock.shown(one) % WEEK == shown]

    @cache  # noqa: B019
    def reported(self, topic: str, hour: int) -> list[float]:
        as_it_was, adjusted = [], []
        for ago in self.earlier(topic, hour):
            n, times = self.past[topic, ago], self.growth(topic, self.days_ago(hour), round((hour - ago) / WEEK))
            as_it_was.append(float(n))
            adjusted += [] if times is None else [n * times]
        return sorted(adjusted if len(adjusted) >= 2 else as_it_was)

    def usual(self, topic: str, hour: int) -> float | None:
        values = self.reported(topic, hour)
        return statistics.median(values) if len(values) >= 2 else None

    @cache  # noqa: B019
    def kind(self, hour: int) -> str | None:
        shown = datetime.fromtimestamp(self._clock.shown(hour) / 1000, UTC)
        return "holiday" if shown.date() in self._holidays else "month start" if shown.day == 1 else None

    @cache  # noqa: B019
    def of_day(self, topic: str, hour: int) -> float | None:
        """With what an odd day brings beside a usual one."""
        usual, kind, shown, more = self.usual(topic, hour), self.kind(hour), self._clock.shown(hour), []
        if usual is None or kind is None:
            return usual
        for (of, one), came in self.past.items():
            if of == topic and self._clock.shown(one) % DAY == shown % DAY and self.kind(one) == kind:
                then = self.usual(topic, one)
                if then is not None and self.days_ago(one) > self.days_ago(hour) + 1:
                    more.append((came - then) * (usual + 10) / (then + 10))
        if not more and kind == "holiday":
            sunday = shown - (shown // DAY - 3) % 7 * DAY
            same = [one for one in self.known(topic) if one <= hour and self._clock.shown(one) == sunday]
            more = [(self.usual(topic, one) or 0.0) - usual for one in same if self.usual(topic, one) is not None]
        off = statistics.median(more) if more else 0.0
        return max(usual + off, 0.0) if abs(off) > 2 * max(usual, 1) ** 0.5 else usual

    def known(self, topic: str) -> list[int]:
        """The past hours of the topic, and the coming ones, as of now."""
        return [one for of, one in self.past if of == topic] + [self.start + k * HOUR for k in range(24)]

    @cache  # noqa: B019
    def direction(self, topic: str, hour: int) -> tuple[float, int] | None:
        """How far a past hour was off, and in which direction if that is much."""
        expected, came = self.of_day(topic, hour), self.past.get((topic, hour))
        if expected is None or came is None:
            return None
        off = came - expected
        return off, (off > 0) - (off < 0) if abs(off) > max(expected / 2, 4 * max(expected, 1) ** 0.5) else 0

    @cache  # noqa: B019
    def expected(self, topic: str, hour: int) -> float | None:
        expected = self.of_day(topic, hour)
        days = [self.direction(topic, hour - k * DAY) for k in (1, 2, 3)]
        off = [day for day in days if day is not None]
        if expected is not None and abs(sum(way for _, way in off)) == 3:
            return max(0.0, expected + statistics.median(more for more, _ in off))
        return expected

    @cache  # noqa: B019
    def missed(self, topic: str, days_ago: int) -> list[float]:
        begin, found = self.last - days_ago * DAY, []
        for hour in range(begin, begin + DAY, HOUR):
            expected = self.expected(topic, hour)
            if (topic, hour) in self.past and expected is not None:
                found.append((self.past[topic, hour] - expected) / max(expected, 1) ** 0.5)
        return found

    def band(self, topic: str, hour: int) -> tuple[float | None, float | None]:
        expected, values, ago = self.expected(topic, hour), self.reported(topic, hour), self.days_ago(hour)
        if expected is None:
            return None, None
        missed = [one for day in range(ago + 1, ago + 29) for one in self.missed(topic, day)]
        if len(missed) < 168:
            beside = expected - (self.usual(topic, hour) or 0.0)
            return round(max(0.0, values[0] + beside), 6), round(max(0.0, values[-1] + beside), 6)
        spread = max(expected, 1) ** 0.5
        least, most = (quantile(missed, at) or 0.0 for at in (0.1, 0.9))
        return round(max(0.0, expected + least * spread), 6), round(expected + most * spread, 6)


def forecast(
    log: Log,
    waiting: dict[tuple[str, int], int] | None = None,
    start: int | None = None,
    tz: str = "UTC",
    holidays: Iterable[date] = (),
) -> Table:
    if not log:
        return []
    reported, table = Forecasts(log, tz, holidays, start), []
    start = reported.start
    for topic in reported.topics | {topic for topic, _ in waiting or {}}:
        for hour in range(start, start + 24 * HOUR, HOUR):
            expected, (low, high) = reported.expected(topic, hour), reported.band(topic, hour)
            waits = None if waiting is None else waiting.get((topic, hour), 0)
            table.append(
                {
                    "topic": topic, "hour": hour, "expected": expected, "low": low, "high": high,
                    "weeks": len(reported.reported(topic, hour)), "waiting": waits,
                    "load": max((v for v in (expected, waits) if v is not None), default=None),
                }
            )  # fmt: skip
    return table


def forecast_accuracy(log: Log, tz: str = "UTC", holidays: Iterable[date] = ()) -> Table:
    if not log:
        return []
    reported, table = Forecasts(log, tz, holidays), []
    for topic in reported.topics:
        rows = []
        for hour in range(reported.last - 14 * DAY, reported.last, HOUR):
            week_before = reported.earlier(topic, hour, weeks=1)
            expected, came = reported.expected(topic, hour), reported.past.get((topic, hour))
            if expected is not None and came is not None and week_before:
                naive = max(reported.past[topic, one] for one in week_before)
                low, high = reported.band(topic, hour)
                assert low is not None
                assert high is not None
                rows.append((came, abs(came - expected), abs(came - naive), low <= came <= high))
        if rows:
            came = sum(row[0] for row in rows)
            table.append(
                {
                    "topic": topic, "hours": len(rows), "attempts": came, "error": ratio(sum(r[1] for r in rows), came),
                    "error_last_week": ratio(sum(r[2] for r in rows), came),
                    "covered": sum(r[3] for r in rows) / len(rows),
                }
            )  # fmt: skip
    return table


def changes(log: Log, slo: int = 1000) -> Table:
    table: Table = []
    if not log:
        return table
    end = hour_of(max(e.finished for e in log))
    for topic, rows in by(log, lambda e: e.topic).items():
        periods = [[e for e in rows if (end - hour_of(e.finished)) // WEEK == age] for age in (1, 0)]
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


def capacity(
    log: Log,
    waiting: dict[tuple[str, int], int] | None = None,
    asked_at: int | None = None,
    slo: int = 1000,
    objective: float = 0.99,
    tz: str = "UTC",
) -> Table:
    if not log:
        return []
    last = max(e.finished for e in log)
    tried = [e for e in log if e.event in ENDED and (hour_of(last) - hour_of(e.finished)) // WEEK < 2]
    of_queue = by(tried, lambda e: (e.topic, e.group))
    whole_days = by([e for e in log if e.event in ENDED], lambda e: (e.topic, e.group))
    arrivals = {queue: _arrivals(whole_days[queue], last, slo, objective, Clock(tz)) for queue in of_queue}
    pools = _pools({queue: seen for queue, seen in arrivals.items() if seen})
    ahead = {} if waiting is None else _ahead(log)
    table = []
    for row in forecast(log, waiting, None if asked_at is None else hour_of(asked_at), tz):
        queues = [queue for queue in of_queue if queue[0] == row["topic"]]
        still = _not_enqueued(ahead.get(row["topic"], []), row["hour"], asked_at or last)
        for queue in queues or [(row["topic"], None)]:
            part = len(of_queue[queue]) / sum(len(of_queue[q]) for q in queues) if queues else 1.0
            loads = [
                None if row["load"] is None else (row["waiting"] or 0) + (row[name] or 0) * still * part
                for name in ("low", "expected", "high")
            ]
            seen = arrivals.get(queue)
            slots = [None if load is None or not seen else seen.slots(load, row["hour"]) for load in loads]
            table.append(
                {
                    "topic": queue[0], "group": queue[1], "hour": row["hour"],
                    **dict(zip(("load_low", "load", "load_high"), loads, strict=True)),
                    "attempt_ms": seen.mean_ms if seen else None,
                    "parts": [None if load is None or not seen else seen.part(load, row["hour"]) for load in loads],
                    **dict(zip(("slots_low", "slots", "slots_high"), slots, strict=True)), "pool": pools.get(queue),
                }
            )  # fmt: skip
    return _staffed(table, pools, arrivals, worked_of_day(log), last)


class Arrivals:
    """When a queue's attempts were ready, who ran them, and how long they took."""

    def __init__(self, tried: Log, last: int, slo: int, objective: float, clock: "Clock") -> None:
        self.consumers: set[str] = set()
        self._objective, self._clock, self._last = objective, clock, last
        needed: list[tuple[int, float]] = []
        for own in by(tried, lambda e: e.finished // DAY).values():
            if mean_ms := _mean_ms(own):
                needed += self._needed(own, mean_ms, max(mean_ms, slo))
        self.known = bool(needed)
        self.mean_ms = _mean_ms([e for e in tried if self._is_recent(e)]) or 0.0
        self._window = max(self.mean_ms, slo)
        self._of_hour = by(needed, lambda one: self._shown(one[0]))
        self._at_once = {
            shown: quantile([slots for _, slots in own], objective) for shown, own in self._of_hour.items()
        }

    def _is_recent(self, e: Happened) -> bool:
        return (hour_of(self._last) - hour_of(e.finished)) // WEEK < 2

    def _needed(self, tried: Log, mean_ms: float, window: float) -> Iterator[tuple[int, float]]:
        """Of a day: when each was ready, and how many slots those took that were ready within the window."""
        moments, recent = [], []
        for e in tried:
            ready = max((at for at in (e.moved, e.due) if at is not None), default=e.started)
            if ready is not None:
                moments.append(ready)
                if self._is_recent(e):
                    recent.append(ready)
                    self.consumers |= {e.consumer} - {None}  # type: ignore[arg-type]
        in_tenths = Counter(math.floor(at * 10 / window) for at in moments)
        for at in recent:
            yield at, sum(in_tenths[math.floor(at * 10 / window) - k] for k in range(10)) * mean_ms / window

    def _shown(self, at: int) -> int:
        return self._clock.shown(hour_of(at)) % DAY

    def slots(self, load: float, hour: int) -> float:
        if not load:
            return load
        part = self.part(load, hour)
        return round(max(part.mean + part.by_chance, part.seen), 3)

    def part(self, load: float, hour: int) -> "Part":
        """Of a pool's slots."""
        own = self.mean_ms / self._window
        z = max(0.0, statistics.NormalDist().inv_cdf(self._objective))
        mean = load * self.mean_ms / HOUR
        by_chance = z * (load * self._window / HOUR) ** 0.5 * own
        if not (seen := self._of_hour.get(self._shown(hour))):
            return Part(own, mean, by_chance, 0.0, 0.0, by_chance)
        usual = len(seen) / len({hour_of(at) for at, _ in seen})
        growth = max(load / usual, (load / usual) ** 0.5)
        most = self._at_once[self._shown(hour)] or 0.0
        in_window = usual * self._window / HOUR
        expected = 1 + math.ceil(in_window + z * in_window**0.5)  # with itself
        burst = max(0.0, most - expected * own) * growth
        beside = max(0.0, most - usual * self.mean_ms / HOUR - own) * growth
        seen_so = own + min((most - own) * growth, mean + beside)
        return Part(own, mean, by_chance, seen_so, burst, max(by_chance, beside - burst))


class Part(NamedTuple):
    """What a queue adds to its pool's slots. `own`: one attempt; `seen`: what an attempt took with those beside it;
    `burst`: the part of that which is no chance; `spread`: the rest.
    """

    own: float
    mean: float
    by_chance: float
    seen: float
    burst: float
    spread: float


def _of_pool(parts: Sequence[Part], slots: Sequence[float]) -> float:
    spread = sum(part.spread**2 for part in parts) ** 0.5
    together = sum(part.mean + part.burst for part in parts) + spread + max(part.own for part in parts)
    return round(min(sum(slots), together), 3)


def _mean_ms(tried: Log) -> float | None:
    took = [min(d, 48 * HOUR) for e in tried if (d := duration(e)) is not None]
    return max(1.0, sum(took) / len(took)) if took else None


def _arrivals(tried: Log, last: int, slo: int, objective: float, clock: "Clock") -> Arrivals | None:
    found = Arrivals(tried, last, slo, objective, clock)
    return found if found.known else None


def _ahead(log: Log) -> dict[str, list[int]]:
    """By topic: how long before its due time it was known that each attempt would be due."""
    last = hour_of(max(e.finished for e in log))
    own = [e for e in log if e.event in ENDED and hour_of(e.finished) > last - 2 * WEEK]
    first = [e for e in own if e.attempt <= 1 and e.due is not None and e.created is not None]
    known = [(e.topic, (e.due or 0) - (e.created or 0)) for e in first]
    known += [(e.topic, wait) for e, wait, _ in _retried(log) if hour_of(e.finished) > last - 2 * WEEK]
    return {topic: [ms for _, ms in rows] for topic, rows in by(known, lambda one: one[0]).items()}


def _not_enqueued(ahead: Sequence[int], hour: int, now: int) -> float:
    """Of what is due in that hour, the share that comes later than now."""
    return sum(ms <= max(0, hour + HOUR // 2 - now) for ms in ahead) / len(ahead) if ahead else 1.0


def _pools(arrivals: dict[Any, Arrivals]) -> dict[Any, int]:
    together: list[tuple[set[Any], set[str]]] = []
    for queue, seen in arrivals.items():
        if seen.consumers:
            own = [pool for pool in together if pool[1] & seen.consumers]
            merged = ({queue}.union(*(p[0] for p in own)), seen.consumers.union(*(p[1] for p in own)))
            together = [pool for pool in together if pool not in own] + [merged]
    together.sort(key=lambda pool: min((topic, group is not None, group or "") for topic, group in pool[0]))
    return {queue: n for n, pool in enumerate(together, 1) for queue in pool[0]}


def _staffed(
    table: Table, pools: dict[Any, int], arrivals: dict[Any, Arrivals | None], worked: Table, last: int
) -> Table:
    sizes: dict[int | None, tuple[float | None, float | None]] = {None: (None, None)}
    for pool in set(pools.values()):
        members = {
            (group, one)
            for (topic, group), number in pools.items()
            if number == pool and (seen := arrivals[topic, group])
            for one in seen.consumers
        }
        rows = [r for r in worked if (r["group"], r["consumer"]) in members and r["hour"] > hour_of(last) - 2 * WEEK]
        most = [
            max(row["most_at_once"] for row in own)
            for own in by(rows, lambda row: row["consumer"]).values()
            for _ in range(sum(row["ended"] for row in own))
        ]
        day = by((row for row in rows if row["hour"] > hour_of(last) - DAY), lambda row: row["hour"])
        there = [len({row["consumer"] for row in own}) for own in day.values()]
        sizes[pool] = quantile(most, 0.5), quantile(there, 0.5)
    for row in table:
        concurrency, there_now = sizes[row["pool"]]
        same = [r for r in table if (r["pool"], r["hour"]) == (row["pool"], row["hour"])]
        for band, end in enumerate(("low", "slots", "high")):
            name = "slots" if end == "slots" else f"slots_{end}"
            slots = [r[name] for r in same if r[name] is not None]
            parts = [r["parts"][band] for r in same if r["parts"][band]]
            row[f"pool_{end}"] = _of_pool(parts, slots) if slots else None
        row["concurrency"] = concurrency
        for end, name in (("low", "workers_low"), ("slots", "workers"), ("high", "workers_high")):
            needed = row[f"pool_{end}"]
            row[name] = None if needed is None or not concurrency else math.ceil(round(needed / (0.8 * concurrency), 6))
        row["workers_seen"] = there_now
    for row in table:
        del row["parts"]
    return table


Spans = tuple[tuple[int, int], tuple[int, int]]
"""Two: from, and before."""


def compared(log: Log, spans: Spans | None = None, level: float = 0.05) -> Table:
    if spans is None:
        return []
    both = [[e for e in log if e.event in ENDED and since <= e.finished < until] for since, until in spans]
    table: Table = []
    for queue in {(e.topic, e.group) for e in both[0] + both[1]}:
        own = [[e for e in rows if (e.topic, e.group) == queue] for rows in both]
        table += [
            {"topic": queue[0], "group": queue[1], "of_before": len(row[0]), "of_after": len(row[1])} | rest
            for row, rest in _compared_measures(own)
        ]
        rates = [len(rows) / ((until - since) / HOUR) for rows, (since, until) in zip(own, spans, strict=True)]
        table.append(
            {
                "topic": queue[0], "group": queue[1], "measure": "attempts", "error": None, "before": rates[0],
                "after": rates[1], "of_before": len(own[0]), "of_after": len(own[1]), "p": None,
            }
        )  # fmt: skip
    _holm(table)
    return [_judged(row, level) for row in table]


_Hits = list[tuple[int, bool]]
"""The hour of an attempt, and whether it counts."""


def _compared_measures(own: Sequence[Log]) -> Iterator[tuple[list[_Hits], dict[str, Any]]]:
    counted: dict[tuple[str, str | None], Callable[[Happened], bool]] = {
        ("failed", None): lambda e: e.event != "done",
        ("dead", None): lambda e: e.event == "dead",
    }
    for error in {e.error for rows in own for e in rows if e.event != "done"} - {None}:
        counted["error", error] = lambda e, error=error: e.event != "done" and e.error == error  # type: ignore[misc]
    for (measure, error), counts in counted.items():
        hits = [[(hour_of(e.finished), counts(e)) for e in rows] for rows in own]
        values = [ratio(sum(hit for _, hit in one), len(one)) for one in hits]
        yield hits, {"measure": measure, "error": error, "before": values[0], "after": values[1], "p": _p(hits)}
    times = {"lateness": lateness, "duration": lambda e: duration(e) if e.event == "done" else None}
    for kind, time_of in times.items():
        timed = [[(hour_of(e.finished), ms) for e in rows if (ms := time_of(e)) is not None] for rows in own]
        for name, at in (("p50", 0.5), ("p99", 0.99)):
            limit = quantile([ms for one in timed for _, ms in one], at)
            if limit is not None:
                hits = [[(hour, ms > limit) for hour, ms in one] for one in timed]
                before, after = (quantile([ms for _, ms in one], at) for one in timed)
                yield hits, {
                    "measure": f"{kind}_{name}", "error": None, "before": before, "after": after, "p": _p(hits),
                }  # fmt: skip


def _p(hits: Sequence[_Hits]) -> float | None:
    if not all(hits):
        return None
    (n, m), (x, y) = map(len, hits), (sum(hit for _, hit in one) for one in hits)
    pooled = (x + y) / (n + m)
    if min(pooled, 1 - pooled) * min(n, m) < 5:
        return None
    by_hour, free = 0.0, -2
    for one, share in zip(hits, (x / n, y / m), strict=True):
        hours = by(one, lambda hit: hit[0]).values()
        free += len(hours)
        if len(hours) > 1:
            off = sum((sum(hit for _, hit in hour) - share * len(hour)) ** 2 for hour in hours)
            by_hour += off / len(one) ** 2 * len(hours) / (len(hours) - 1)
    return _two_sided(x / n - y / m, pooled * (1 - pooled) * (1 / n + 1 / m), by_hour, free)


def _two_sided(off: float, by_chance: float, by_hour: float, free: int) -> float:
    z = abs(off) / max(by_chance, by_hour) ** 0.5
    if by_hour > by_chance:
        z = (free * math.log1p(z * z / free)) ** 0.5 * (8 * free + 1) / (8 * free + 3)
    return math.erfc(z / 2**0.5)


def _holm(rows: Table) -> None:
    """Adds `chance`, from `p`."""
    tested, most = sorted((row for row in rows if row["p"] is not None), key=lambda row: row["p"]), 0.0
    for n, row in enumerate(tested):
        most = max(most, min(1.0, row["p"] * (len(tested) - n)))
        row["chance"] = round(most, 4)


def _judged(row: dict[str, Any], level: float) -> dict[str, Any]:
    before, after, of_error = row["before"], row["after"], row["measure"] == "error"
    is_share = row["measure"] in {"failed", "dead", "error"}
    chance, verdict, size = row.get("chance"), "same", None
    if before is not None and after is not None:
        least, most = sorted((before, after))
        matters = (
            most - least >= 0.001 or (of_error and not least) if is_share else most - least >= 5 and most >= 1.1 * least
        )
        little = 0.0005 if is_share else 1.0
        size = (max(0, most) + little) / (max(0, least) + little)
        if chance is not None and chance < level and matters:
            verdict = "worse" if after > before else "better"
            if of_error and not least:
                verdict = "gone" if before else "new"
    if row["measure"] == "attempts":
        verdict = "not judged"
    elif chance is None:
        verdict = "too little"
    names = ("topic", "group", "measure", "error", "before", "after", "of_before", "of_after")
    return {name: row[name] for name in names} | {"chance": chance, "verdict": verdict, "size": size}


def _budget_hours(log: Log, slo: int) -> dict[str, dict[int, tuple[int, int]]]:
    """Topic → hour → attempts and late ones, of the last 28 days."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    if log:
        last = hour_of(max(e.finished for e in log))
        recent = [e for e in log if e.event in ENDED and hour_of(e.finished) > last - 28 * DAY]
        for topic, rows in by(recent, lambda e: e.topic).items():
            found[topic] = {
                hour: (len(own), sum((lateness(e) or 0) > slo for e in own))
                for hour, own in by(rows, lambda e: hour_of(e.finished)).items()
            }
    return found


def budget(log: Log, slo: int = 1000, objective: float = 0.99) -> Table:
    last, allowed, table = hour_of(max((e.finished for e in log), default=0)), 1 - objective, []
    for topic, hours in _budget_hours(log, slo).items():
        first = min(hour_of(e.finished) for e in log if e.topic == topic and hour_of(e.finished) > last - 28 * DAY)
        attempts, late = (sum(own[n] for own in hours.values()) for n in (0, 1))
        burns: dict[int, float | None] = {}
        few: dict[int, bool] = {}
        for length in (1, 6, 72):
            of_window = [own for hour, own in hours.items() if hour > last - length * HOUR]
            burn = ratio(sum(n for _, n in of_window), sum(n for n, _ in of_window))
            burns[length] = None if burn is None else burn / allowed
            few[length] = sum(n for _, n in of_window) < 5
        burning = {
            length: not few[length] and min(burns[length] or 0, burns[short] or 0) >= spent * 672 / length
            for length, short, spent in ((1, 1, 0.02), (6, 1, 0.05), (72, 6, 0.1))
        }
        table.append(
            {
                "topic": topic, "days": (last - first + HOUR) / DAY, "attempts": attempts, "late": late,
                "on_time": (attempts - late) / attempts, "spent": late / attempts / allowed,
                "left": 1 - late / attempts / allowed, "burn_1h": burns[1], "burn_6h": burns[6], "burn_3d": burns[72],
                "alert": "page" if burning[1] or burning[6] else "ticket" if burning[72] else "none",
            }
        )  # fmt: skip
    return table


def budget_incidents(log: Log, slo: int = 1000, objective: float = 0.99) -> Table:
    table = []
    for topic, hours in _budget_hours(log, slo).items():
        whole = sum(attempts for attempts, _ in hours.values()) * (1 - objective)
        together: list[list[int]] = []
        for hour in sorted(hour for hour, (attempts, late) in hours.items() if late > attempts * (1 - objective)):
            if together and hour - together[-1][-1] <= 2 * HOUR:
                together[-1].append(hour)
            else:
                together.append([hour])
        for own in together:
            attempts, late = (sum(hours[hour][n] for hour in own) for n in (0, 1))
            if late / whole >= 0.01 and late >= 5:
                table.append(
                    {
                        "topic": topic, "first_hour": own[0], "last_hour": own[-1], "hours": len(own),
                        "attempts": attempts, "late": late, "spent": late / whole,
                    }
                )  # fmt: skip
    return table


def _host(e: Happened) -> str | None:
    """The consumer is the host, its process and when that began."""
    parts = (e.consumer or "").rsplit("-", 2)
    is_whole = len(parts) == 3 and parts[1].isdigit() and len(parts[2]) == 10
    return parts[0] if is_whole else e.consumer


def errors(log: Log) -> Table:
    table = []
    for (topic, group, day), rows in by(
        (e for e in log if e.event in ENDED), lambda e: (e.topic, e.group, e.finished // DAY * DAY)
    ).items():
        failed = [e for e in rows if e.event != "done" and e.error is not None]
        for error, own in by(failed, lambda e: e.error).items():
            table.append(
                {
                    "topic": topic, "group": group, "error": error, "day": day, "failed": len(own),
                    "attempts": len(rows), "share": len(own) / len(rows),
                    "hosts": len({_host(e) for e in own} - {None}),
                }
            )  # fmt: skip
    return table


def error_classes(log: Log) -> Table:
    table: Table = []
    last = hour_of(max((e.finished for e in log), default=0))
    tried = [e for e in log if e.event in ENDED]
    for (topic, group), rows in by(tried, lambda e: (e.topic, e.group)).items():
        weeks = [[e for e in rows if (last - hour_of(e.finished)) // WEEK == age] for age in (1, 0)]
        failed = [e for e in rows if e.event != "done" and e.error is not None]
        for error, own in by(failed, lambda e: e.error).items():
            hits = [[(hour_of(e.finished), e.event != "done" and e.error == error) for e in week] for week in weeks]
            seen = any(hit for one in hits for _, hit in one)
            values = [ratio(sum(hit for _, hit in one), len(one)) for one in hits] if seen else [None, None]
            hosts = Counter(_host(e) for e in own)
            host, most = min(hosts.items(), key=lambda item: (-item[1], item[0] or ""))
            table.append(
                {
                    "topic": topic, "group": group, "error": error, "failed": len(own),
                    "first": min(e.finished for e in own), "last": max(e.finished for e in own),
                    "last_id": max(own, key=lambda e: (e.finished, e.id)).id, "hosts": len(hosts.keys() - {None}),
                    "host": host, "of_host": most / len(own), "before": values[0], "now": values[1],
                    "p": _p(hits) if seen else None,
                }
            )  # fmt: skip
    _holm(table)
    for row in table:
        p, before, now = row.pop("p"), row["before"], row["now"]
        row["chance"] = row.pop("chance", None)
        row["verdict"] = "too little"
        if p is not None:
            differs = row["chance"] < 0.05 and (abs(now - before) >= 0.001 or 0 in (now, before))
            words = ("new" if before == 0 else "spreading") if now > before else "fading" if now else "gone"
            row["verdict"] = words if differs else "same"
    return table


def hosts(log: Log) -> Table:
    last = hour_of(max((e.finished for e in log), default=0))
    tried = [e for e in log if e.event in ENDED and hour_of(e.finished) > last - 2 * WEEK]
    took = {
        queue: quantile([d for e in own if e.event == "done" and (d := duration(e)) is not None], 0.9)
        for queue, own in by(tried, lambda e: (e.topic, e.group, e.finished // DAY)).items()
    }
    counted = {
        "failed": [(e, e.event != "done") for e in tried if e.consumer is not None],
        "slow": [
            (e, d > took[e.topic, e.group, e.finished // DAY])  # type: ignore[operator]
            for e in tried
            if e.consumer is not None and e.event == "done" and (d := duration(e)) is not None
        ],
    }
    table: Table = []
    for measure, attempts in counted.items():
        strata = by(attempts, lambda one: (one[0].topic, one[0].group, hour_of(one[0].finished)))
        found: dict[Any, list[tuple[int, int, int, int, int]]] = defaultdict(list)
        for (_, group, hour), rows in strata.items():
            everything, bad = len(rows), sum(hit for _, hit in rows)
            for host, own in by(rows, lambda one: _host(one[0])).items():
                if len(own) < everything:
                    found[group, host].append((hour, len(own), sum(hit for _, hit in own), everything, bad))
        for (group, host), strata_of in found.items():
            n, seen = sum(one[1] for one in strata_of), sum(one[2] for one in strata_of)
            expected = sum(n * bad / whole for _, n, _, whole, bad in strata_of)
            by_chance = sum(
                n * bad / whole * (whole - bad) / whole * (whole - n) / (whole - 1) for _, n, _, whole, bad in strata_of
            )
            hours = by(strata_of, lambda one: one[0]).values()
            offs = [sum(x - n * bad / whole for _, n, x, whole, bad in own) for own in hours]
            by_hour = statistics.variance(offs) * len(offs) if len(offs) > 1 else 0.0
            enough = min(expected, n - expected) >= 5 and by_chance > 0
            table.append(
                {
                    "group": group, "host": host, "measure": measure, "attempts": n, "seen": seen,
                    "usual": sum(n * (bad - x) / (whole - n) for _, n, x, whole, bad in strata_of),
                    "p": _two_sided(seen - expected, by_chance, by_hour, max(1, len(offs) - 1)) if enough else None,
                }
            )  # fmt: skip
    _holm(table)
    for row in table:
        del row["p"]
        chance = row["chance"] = row.pop("chance", None)
        more = row["seen"] >= 1.5 * row["usual"] and row["seen"] >= row["usual"] + 5
        row["verdict"] = "too little" if chance is None else "bad" if chance < 0.05 and more else "ok"
    return table
