"""``python -m benchmarks.what_if_reruns``: whether `streamdq what-if` says what really happens with other settings.

Real workers do the same jobs three times on a real Redis: with few handlers, with twice as many, and with few and
another retry schedule. Of each job it is known when it is due, how long each attempt takes and how it ends. Each run's
history is dumped. From the first run, what-if predicts the two others, and from each of these the first one: another
number of handlers is half or twice as many. What is predicted is compared with what happened.

The few handlers are busy for 60, 75 and 90 % of the time. Aims: a topic's median lateness within 15 %, its 99th
percentile within 25 %; differences of up to 3 ms are none. ``--repeat`` runs the first one twice: how far two runs with
the same settings are apart. If other programs keep the machine busy, no two runs are alike: ``--run-only`` with
``--keep`` lets the workers run with priority, and the same command without it then compares.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from streamdq.job.retry import RetrySchedule
from streamdq.terminal import table
from streamdq.times.durations import show_ms
from streamdq_spark.events import read_events
from streamdq_spark.session import session, settings_for
from streamdq_spark.whatif import Answer, Change, what_if
from streamdq_spark.whatif.answer import Figures

from .what_if import Kind, Load, run

BURSTS = {60: 0.6, 75: 0.5, 90: 0.25}
"""How busy the few handlers are, in percent, and the share of jobs in bursts: so that the median job waits."""
_WORKERS, _FEW, _MANY = 2, 16, 32
_RETRY, _OTHER = "300ms 2s 4s", "1s 5s"
_MEDIAN, _P99, _NONE_MS = 0.15, 0.25, 3.0
_LEAST_MS, _ORDERS_MS, _MAILS_MS, _FAILS = 500, 1500, 2000, 0.25
_BURSTS_EVERY_S = 20.0


def load_of(busy: int) -> Load:
    """Two thirds of the work are orders, one third mails, which fail."""
    slots = _WORKERS * _FEW * busy / 100
    a_mail_ms = _MAILS_MS * sum(_FAILS**n for n in range(4))
    kinds = (
        _kind("orders", 2 / 3 * slots / _ORDERS_MS, BURSTS[busy], _ORDERS_MS),
        _kind("mails", slots / 3 / a_mail_ms, BURSTS[busy], _MAILS_MS, _FAILS),
    )
    return Load(f"busy-{busy}", _WORKERS, _FEW, kinds, _BURSTS_EVERY_S, _RETRY, "1m")


def _kind(topic: str, each_ms: float, bursts: float, mean_ms: float, fails: float = 0.0) -> Kind:
    each_s = 1000 * each_ms
    burst = round(each_s * bursts * _BURSTS_EVERY_S)
    return Kind(topic, each_s * (1 - bursts), burst, _LEAST_MS, mean_ms - _LEAST_MS, fails)


def loads_of(busy: int, repeat: bool) -> dict[str, Load]:
    few = load_of(busy)
    loads = {"few": few, "many": replace(few, concurrency=_MANY), "retry": replace(few, retry=_OTHER)}
    return loads | ({"again": few} if repeat else {})


def run_all(busy: int, loads: dict[str, Load], seconds: float, folder: Path, seed: int) -> None:
    for name, load in loads.items():
        if not (folder / f"{busy}-{name}").exists():
            run(load, _WORKERS, seconds, folder / f"{busy}-{name}", seed)


def compare(busy: int, loads: dict[str, Load], folder: Path) -> Iterator[tuple[bool, list[str]]]:
    retries = {_RETRY: RetrySchedule.of(_RETRY).steps_ms, _OTHER: RetrySchedule.of(_OTHER).steps_ms}
    asked = [
        (f"{_FEW} → {_MANY} handlers", "few", "many", Change(concurrency=_MANY)),
        (f"{_MANY} → {_FEW} handlers", "many", "few", Change(concurrency=_FEW)),
        (f"{_RETRY} → {_OTHER}", "few", "retry", Change(retry_ms=retries[_OTHER], topics=frozenset({"mails"}))),
        (f"{_OTHER} → {_RETRY}", "retry", "few", Change(retry_ms=retries[_RETRY], topics=frozenset({"mails"}))),
    ]
    with session("local[2]", settings=settings_for(1)) as spark:

        def answer(name: str, change: Change) -> Answer:
            events = read_events(spark, str(folder / f"{busy}-{name}"))
            return what_if(spark, events, change, had_concurrency=loads[name].concurrency)

        happened = {name: answer(name, Change(workers=_WORKERS)) for name in loads}
        for what, before, after, change in asked:
            predicted = answer(before, change)
            for queue, really in zip(predicted.queues, happened[after].queues, strict=True):
                yield _compared(f"{busy} %, {what}", queue.topic, really.seen, queue.changed)
        if "again" in loads:
            for first, again in zip(happened["few"].queues, happened["again"].queues, strict=True):
                yield True, _compared(f"{busy} %, the same again", first.topic, first.seen, again.seen)[1]


def _compared(what: str, topic: str, really: Figures, predicted: Figures) -> tuple[bool, list[str]]:
    pairs = [(really.p50_ms or 0.0, predicted.p50_ms or 0.0), (really.p99_ms or 0.0, predicted.p99_ms or 0.0)]
    cells, good = [what, topic, f"{really.attempts:,}", f"{predicted.attempts:,}"], True
    for (came, said), limit in zip(pairs, (_MEDIAN, _P99), strict=True):
        off = abs(said - came)
        good &= off <= max(_NONE_MS, limit * came)
        cells += [show_ms(came), show_ms(said), f"{off:.0f} ms" if off <= _NONE_MS else f"{off / max(came, 1):.0%}"]
    return good, [*cells, "" if good else "too far"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.what_if_reruns", description=__doc__)
    parser.add_argument("--seconds", type=float, default=180, help="how long jobs come (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--busy", type=int, choices=list(BURSTS), action="append", help="only so busy; may be repeated")
    parser.add_argument("--keep", type=Path, help="a folder for the dumps; those that are there already are used")
    parser.add_argument("--repeat", action="store_true", help="also run the first one twice")
    parser.add_argument("--run-only", action="store_true", help="don't compare; needs --keep")
    options = parser.parse_args()
    shown = table(
        "busy, change", "topic", "attempts", "predicted", "p50", "predicted", "off", "p99", "predicted", "off", ""
    )
    well = True
    with tempfile.TemporaryDirectory() as own:
        folder = options.keep or Path(own)
        for busy in options.busy or BURSTS:
            loads = loads_of(busy, options.repeat)
            run_all(busy, loads, options.seconds, folder, options.seed)
            for good, cells in () if options.run_only else compare(busy, loads, folder):
                shown.add_row(*cells)
                well &= good
    if not options.run_only:
        Console(width=140).print(shown)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
