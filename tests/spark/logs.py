"""Made-up histories: what can happen to a job, at random, and the corners by hand."""

import random
from collections.abc import Iterator
from itertools import count

from tests.spark.plain import DAY, HOUR, WEEK, Happened

MONDAY = 1_767_571_200_000  # 2026-01-05 00:00 UTC
WAITS = (15_000, 180_000, 600_000)
CONSUMERS = ("w1", "w2", "w3")
_ENTRIES = count(1)


def random_log(seed: int, jobs: int, weeks: float = 5) -> list[Happened]:
    """Jobs of two topics and groups with reused ids, failures, losses, kicks and gaps."""
    chance = random.Random(seed)
    numbers = count(1)
    log: list[Happened] = []
    for number in range(jobs):
        topic = chance.choice(["orders", "sms <b>"])
        created = MONDAY + int(chance.random() * weeks * WEEK)
        for group in ("default", "audit")[: chance.choice([1, 1, 2])]:
            log += _life(chance, numbers, topic, f"j{number % (jobs * 2 // 3)}", group, created)
    return log


def _life(
    chance: random.Random, numbers: Iterator[int], topic: str, id: str, group: str, created: int
) -> Iterator[Happened]:
    due, step = created + chance.choice([0, 60_000, 2 * HOUR]), 0
    for attempt in range(1, 9):
        start = due + int(chance.expovariate(1 / 200)) + chance.choice([0] * 30 + [1500, 90_000])
        end = start + int(chance.expovariate(1 / 80)) + chance.choice([0] * 60 + [HOUR])
        kind = chance.choices(
            ["done", "retry", "dead", "released", "reclaimed", "cancelled", "expired"], [70, 14, 3, 4, 4, 2, 3]
        )[0]
        step_now: int | None = step
        if kind == "retry" and step == len(WAITS):
            kind = "dead"
        error = chance.choice(["ValueError", "TimeoutError", "Ünïcode<x>"]) if kind in {"retry", "dead"} else None
        if kind == "released" and start % 2:
            error = "Snooze"
        reason = chance.choice(["exhausted", "buried", "invalid", "crashed"]) if kind == "dead" else None
        ran = kind not in {"cancelled", "expired"}
        yield Happened(
            topic, hash_of(id), f"{end}-{next(numbers)}", kind, id, group, attempt, step_now,
            chance.choice(CONSUMERS) if ran else None,
            created if kind != "expired" else None,
            due if chance.random() > 0.02 else None,
            due + 1,
            start if ran and chance.random() > 0.03 else None,
            end, error, reason, chance.randrange(2000), key_of(id),
        )  # fmt: skip
        if kind == "done" and chance.random() < 0.01:
            continue  # done once more, which must never happen
        if kind not in {"retry", "released", "reclaimed"}:
            return
        if kind == "retry" and end % 6 == 0:
            due = end + 7_000  # the handler told how long, which uses no step
        elif kind == "retry":
            due, step = end + WAITS[step] + chance.choice([0, 0, 1]), step + 1
        else:
            due = end


def key_of(id: str) -> str | None:
    """Two in three jobs have a key."""
    number = int(id[1:])
    return f"customer {number % 31}" if number % 3 else None


def hash_of(id: str) -> int:
    return len(id) % 2


def done(
    topic: str, finished: int, *, id: str = "", started: int | None = None, due: int | None = None, **rest: object
) -> Happened:
    """An attempt that ended well, on time and in 50 ms unless told otherwise."""
    started = finished - 50 if started is None else started
    due = started if due is None else due
    e = Happened(
        topic, 0, f"{finished}-{next(_ENTRIES)}", "done", id or str(finished), "default", 1, 0, "w1", due, due, due,
        started, finished, None, None, 10,
    )  # fmt: skip
    return e._replace(**rest)  # type: ignore[arg-type]


def corners() -> list[Happened]:
    """One topic for each: percentiles of one value, ties, an attempt over many hours, nothing but a cancel, an id used
    again, a job whose beginning is not in the data, a schedule whose end never helps, hours with a burst and an outage.
    """
    at = MONDAY + 4 * WEEK + 12 * HOUR
    log = [done("one", at)]
    log += [done("tie", at + 100, id=f"t{i}", started=at + 50) for i in range(4)]
    log += [done("tie", at + 150, id=f"u{i}", started=at + 100) for i in range(3)]
    log += [done("long", at, started=at - 3 * HOUR - 7, due=at - 4 * HOUR, consumer="slow")]
    log += [done("endless", at + 5, started=at - 9 * DAY, consumer="stuck")]
    log += [done("gone", at, event="cancelled", attempt=0, started=None, consumer=None)]
    log += [done("again", at + 1000 * i, id="same", created=at - 10 * (i % 3)) for i in range(4)]
    log += [done("no created", at, id="x", created=None, group=None, step=None)]
    log += [done("zero", at, started=at, id=str(i)) for i in range(2)]
    log += [done("edge", at + ms, due=at, started=at + ms, id=str(ms)) for ms in (999, 1000, 1001)]
    log += [done("tail", at, id="began before", created=at - DAY, attempt=2, step=1)]
    log += [
        done("busy", MONDAY + week * WEEK + 40 * HOUR + ms, id=f"{week}.{ms}")
        for week, jobs in enumerate((240, 240, 241, 240, 320))
        for ms in range(jobs)
    ]
    for i in range(2004):  # of its time-outs the first two may be the handler's own, the others took too long for that
        took, error = (90, "TimeoutError") if i in (7, 8) else (100 + i, "TimeoutError" if i > 1999 else None)
        log.append(
            done("timeouts", at + i, id=str(i), started=at + i - took, error=error)._replace(
                event="retry" if error else "done"
            )
        )
    log += _schedule("hopeless", at, 1100, last_helps=False) + _schedule("helps", at, 1100, last_helps=True)
    log += _schedule("few", at, 30, last_helps=False)
    log += flows_at(at)
    for hour in range(5 * 7 * 24):
        start = MONDAY + hour * HOUR
        week, in_week = divmod(hour, 7 * 24)
        jobs = 0 if in_week == 3 else 12 + in_week % 7
        if week == 4:
            jobs = {30: 60, 50: 0}.get(in_week, jobs)
        log += [done("rhythm", start + 60_000 * i, id=f"r{hour}.{i}") for i in range(jobs)]
    return log


def flows_at(at: int) -> list[Happened]:
    """Flows that have ended: one of a topic whose name looks like more, one whose end was repeated, one that was found
    without its path at first, two without a path, and one without a row that says more.
    """

    def ended(name: str, *accounts: str | None) -> list[Happened]:
        first = done("streamdq.flows", at, id=name, event="unblocked", created=at - 5000)
        end = first._replace(attempt=0, consumer=None, due=None, moved=None, started=None)
        rows = [end._replace(event="flow", entry=f"{at + 1}-{name}{n}", reason=one) for n, one in enumerate(accounts)]
        return [end, *rows]

    return [
        *ended("1", "done 3 part=1000,3000 a=7,8,x=0,1000"),
        *ended("2", "failed 2 part=4500,500", "failed 2 part=4500,500"),
        *ended("3", "cancelled 2", "cancelled 2 part=5000,0"),
        *ended("4", "done 40000"),
        *ended("5", None),
        *ended("6"),
    ]


def _schedule(topic: str, at: int, jobs: int, *, last_helps: bool) -> list[Happened]:
    """Half is done at once; the rest fails, half of that is done at step 1, the others go on to step 2."""
    log = []
    for i in range(jobs * 2):
        first = done(topic, at + i, id=f"s{i}", created=at - 5)
        if i % 2 == 0:
            log.append(first)
            continue
        log.append(first._replace(event="retry", error="OSError"))
        due = first.finished + 15_000
        second = done(topic, due + 70, id=f"s{i}", due=due, created=at - 5, attempt=2, step=1)
        if i % 4 == 1:
            log.append(second)
            continue
        log.append(second._replace(event="retry", error="OSError"))
        due = second.finished + 21_600_000
        third = done(topic, due + 70, id=f"s{i}", due=due, created=at - 5, attempt=3, step=2)
        helped = last_helps and i % 8 == 3
        log.append(third if helped else third._replace(event="dead", error="OSError", reason="exhausted"))
    return log
