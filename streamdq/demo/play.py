"""The demo's story: what happens when, and what the demo shows of it.

Orders come in, and each is closed after half an hour unless it is paid before. The merchant is notified of a payment;
some merchants refuse it at first, so that it takes retry steps. One merchant is down until somebody repairs it and
kicks the dead letter. Halfway, one of the two shop workers is killed with -9.
"""

from __future__ import annotations

import heapq
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path

from ..config import Settings
from ..errors import StreamdqError
from ..job.job import JobState
from ..operations.topics.stats import Stats
from ..queue import Queue
from ..store.history.rows import Event, HistoryRow
from ..times.clock import wall_ms
from ..times.durations import show_ms
from .processes import WorkerProcess, WorkerProcesses
from .shop import (
    ANALYST_GROUP,
    CLOSE,
    CLOSED_MERCHANT,
    NOTIFY,
    SHOP_GROUP,
    UNPAID_AFTER_S,
    Notice,
    Order,
    Scale,
    mended_file,
)
from .view import View, WorkerShown

ORDERS, ORDERS_FOR_S = 120, 20.0
PAID_SHARE = 0.4
KILL_AT_S, KICK_AFTER_S = 14.0, 1.0
RUSH, _LEAST_LOST = 8, 3
WHOLE_S, PATIENCE_S = 34.0, 60.0
_TICK_S, _LOOK_S = 0.02, 0.2
_START_S = 15.0
_REFUSALS = (0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6)
_LONG_REFUSALS = {4: 8, 7: 7}  # the fourth and the seventh notice get far into the schedule
CLOSED_ID = "notice-closed"


class Play:
    """One run, from the first order to the last finish."""

    def __init__(self, queue: Queue, processes: WorkerProcesses, view: View, directory: Path, scale: Scale) -> None:
        self._queue = queue
        self._processes = processes
        self._view = view
        self._directory = directory
        self._scale = scale
        self._random = random.Random(30)  # noqa: S311 - the same story each time
        self._acts: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._notices = count(1)
        self._rushed = count(ORDERS + 1)
        self._rush_ends = 0.0
        self._closing: dict[str, float] = {}  # orders about to be closed, and when
        self._after: dict[str, dict[int, str]] = {}
        self._attempts: Counter[str] = Counter()
        self._to_place = ORDERS
        self._kicked = self._finished = False
        self._stats = Stats()
        self.killed_ms: int | None = None
        self.rows: list[HistoryRow] = []

    def run(self) -> None:
        """Runs until nothing is left to do, in the queue and in the story.

        Raises:
            StreamdqError: a worker ended unexpectedly, or the demo takes too long.
        """
        self._prepare()
        self._started = time.monotonic()
        self._write()
        looked = 0.0
        while not self._finished:
            self._act()
            if self._now() - looked > _LOOK_S / self._scale.speed:
                looked = self._now()
                self._look()
            if self._now() > (WHOLE_S + PATIENCE_S) / self._scale.speed + _START_S:
                raise StreamdqError("demo: it is taking too long; is this machine very busy?")
            time.sleep(_TICK_S / self._scale.speed)

    def missing(self) -> list[str]:
        """Acts that should have been seen and were not."""
        seen = {row.event for row in self.rows}
        wanted = {
            Event.CANCELLED: "no order was paid in time",
            Event.RETRY: "no notice was repeated",
            Event.RECLAIMED: "no job was taken over",
            Event.DEAD: "no job used up its steps",
            Event.KICKED: "no dead letter was kicked",
        }
        wrong = [text for event, text in wanted.items() if event not in seen]
        closed_done = any(row.id == CLOSED_ID and row.event is Event.DONE for row in self._shop_rows())
        return wrong if closed_done else [*wrong, "the kicked job did not finish"]

    def _shop_rows(self) -> Iterator[HistoryRow]:
        return (row for row in self.rows if row.group == SHOP_GROUP)

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _at(self, when_s: float, act: Callable[[], None]) -> None:
        """Schedules an act at ``when_s``, in seconds of the story at speed 1."""
        heapq.heappush(self._acts, (when_s / self._scale.speed, next(self._numbers), act))

    def _later(self, pause_s: float, act: Callable[[], None]) -> None:
        """Schedules an act after ``pause_s`` real seconds; 0: at the next tick."""
        heapq.heappush(self._acts, (self._now() + pause_s, next(self._numbers), act))

    def _act(self) -> None:
        while self._acts and self._acts[0][0] <= self._now():
            heapq.heappop(self._acts)[2]()

    # -- the story

    def _prepare(self) -> None:
        for topic in (CLOSE, NOTIFY):
            self._queue.configure(topic, ttr=self._scale.ttr_s, groups=[SHOP_GROUP, ANALYST_GROUP])
        deadline = time.monotonic() + _START_S
        while not self._processes.at_work():
            self._processes.check()
            self._stats = self._queue.stats()
            self._view.show("workers are starting", 0.0, self._stats, self._members())
            if time.monotonic() > deadline:
                raise StreamdqError("demo: the workers did not start in time; is this machine very busy?")
            time.sleep(_TICK_S)

    def _write(self) -> None:
        for number in range(1, ORDERS + 1):
            self._at((number - 1) * ORDERS_FOR_S / ORDERS, partial(self._place, number))
        self._at(0.1, self._pay_closed)
        self._at(KILL_AT_S, self._rush)

    def _work_s(self, least: float, most: float) -> float:
        return round(self._random.uniform(least, most) / self._scale.speed, 3)

    def _place(self, number: int) -> None:
        """An order comes in; it may be paid after 2 to 28 minutes."""
        self._order(number, UNPAID_AFTER_S / self._scale.orders, self._work_s(0.2, 0.8))
        self._to_place -= 1
        if self._random.random() < PAID_SHARE:
            minutes = self._random.uniform(2, 28)
            self._later(minutes * 60 / self._scale.orders, partial(self._pay, number, minutes))

    def _pay(self, number: int, minutes: float) -> None:
        """Paid in time: the closing is cancelled, and the merchant is notified."""
        id = f"order-{number}"
        if not self._queue.cancel(CLOSE, id):
            self._view.event(f"{id} was paid too late: it is being closed", "yellow")
            return
        del self._closing[id]
        self._view.event(f"{id} was paid after {minutes:.0f} min: its closing is cancelled")
        which = next(self._notices)
        refusals = _LONG_REFUSALS.get(which, self._random.choice(_REFUSALS))
        merchant = f"merchant-{number % 7}.example"
        self._notify(f"notice-{number}", number, merchant, refusals)

    def _pay_closed(self) -> None:
        self._notify(CLOSED_ID, 0, CLOSED_MERCHANT, 0)
        self._view.event(f"{CLOSED_ID}: its merchant does not answer; it will use up all steps", "magenta", rare=True)

    def _notify(self, id: str, number: int, merchant: str, refusals: int) -> None:
        notice = Notice(order_id=number, merchant=merchant, refusals=refusals, work_s=self._work_s(0.005, 0.03))
        self._queue.enqueue(NOTIFY, notice, id=id)

    def _order(self, number: int, delay_s: float, work_s: float) -> None:
        id = f"order-{number}"
        self._queue.enqueue(CLOSE, Order(order_id=number, work_s=work_s), id=id, delay=delay_s)
        self._closing[id] = self._now() + delay_s

    def _rush(self) -> None:
        """Unpaid orders that all come due at once and take half their TTR: time enough for the kill."""
        delay_s = 1 / self._scale.speed
        for number in islice(self._rushed, RUSH):
            self._order(number, delay_s, self._scale.ttr_s / 2)
        self._view.event(f"{RUSH} more orders, all due in {show_ms(delay_s * 1000)}", rare=True)
        self._rush_ends = self._now() + delay_s + self._scale.ttr_s
        self._kill_one()

    def _kill_one(self) -> None:
        """Kills a shop worker in the middle of its jobs, which must not get lost."""
        if self._now() > self._rush_ends:  # this machine was too busy to catch a worker with running jobs
            self._rush()
            return
        # Before the victim is chosen: on a busy machine it takes longer than a job.
        leader = next((found.what for found in self._queue.doctor() if found.what.startswith("active mover")), None)
        running = {one.name: self._running(one) for one in self._processes.spawned}
        victim = max(self._processes.spawned, key=lambda one: len(running[one.name]))
        if len(running[victim.name]) < _LEAST_LOST:
            self._later(_TICK_S / self._scale.speed, self._kill_one)
            return
        victim.process.send_signal(signal.SIGSTOP)  # none of its jobs ends between this look and the kill
        lost = self._running(victim)
        if len(lost) < _LEAST_LOST:
            victim.process.send_signal(signal.SIGCONT)
            self._later(_TICK_S / self._scale.speed, self._kill_one)
            return
        victim.killed = True
        self.killed_ms = wall_ms()
        victim.process.kill()
        victim.process.wait()
        jobs = f"{len(lost)} jobs"
        self._view.event(f"kill -9 {victim.process.pid}: {victim.name} dies in the middle of {jobs}", "red", rare=True)
        if victim.is_consumer(leader):
            text = f"its mover was the active one: another takes over within {show_ms(Settings().lease_ms)}"
            self._view.event(text, "red", rare=True)

    def _running(self, one: WorkerProcess) -> list[str]:
        """Orders that this shop worker is closing right now."""
        if one.group != SHOP_GROUP:
            return []
        now, found = self._now(), []
        for id in [id for id, when in self._closing.items() if when <= now <= when + self._scale.ttr_s]:
            job = self._queue.get(CLOSE, id)
            progress = job.groups[SHOP_GROUP] if job else None
            if progress and progress.state is JobState.RUNNING and one.is_consumer(progress.consumer):
                found.append(id)
        return found

    def _mend(self) -> None:
        mended_file(self._directory).touch()
        self._queue.kick(NOTIFY, CLOSED_ID, SHOP_GROUP)
        self._kicked = True
        self._view.event(f"{CLOSED_ID}: its merchant is back; the dead letter is kicked", "cyan", rare=True)

    # -- what the demo shows

    def _look(self) -> None:
        self._processes.check()
        # Figures before history: if they say that no job is live, the history read after them is complete.
        self._stats = self._queue.stats()
        for topic in (CLOSE, NOTIFY):
            self._read_history(topic)
        share = min(1.0, self._now() * self._scale.speed / WHOLE_S)
        self._view.show(self._phase(), share, self._stats, self._members())
        live = self._stats.delayed + self._stats.ready + self._stats.running
        self._finished = self._kicked and not self._to_place and not self._acts and live == 0

    def _read_history(self, topic: str) -> None:
        while True:
            page = self._queue.history(topic, self._after.get(topic))
            if not page.rows:
                return
            self._after[topic] = page.after
            self.rows += page.rows
            for row in page.rows:
                self._tell(row)

    def _phase(self) -> str:
        if self._to_place:
            return "orders are coming in"
        return "finishing" if self._kicked else "retries go on"

    def _members(self) -> list[WorkerShown]:
        return [
            WorkerShown(
                one.name, one.group, one.process.pid, not one.killed,
                sum(n for consumer, n in self._attempts.items() if one.is_consumer(consumer)),
            )
            for one in self._processes.spawned
        ]  # fmt: skip

    def _tell(self, row: HistoryRow) -> None:
        """Shows one history row as an event; the analyst's rows are only counted."""
        if row.event in (Event.DONE, Event.RETRY, Event.DEAD, Event.RELEASED):
            self._attempts[row.consumer] += 1
        if row.event is Event.RECLAIMED:
            text = f"{row.id} was taken over: its TTR passed, as its worker is dead"
            self._view.event(text, "yellow", rare=True)
        if row.group != SHOP_GROUP:
            return
        if row.event is Event.DEAD:
            self._view.event(f"{row.id} is dead after {row.attempt} attempts: {row.error}", "red", rare=True)
            self._later(KICK_AFTER_S / self._scale.speed, self._mend)
        elif row.event is Event.RETRY:
            self._view.event(f"{row.id} was refused at attempt {row.attempt} ({row.error})", "magenta")
        elif row.event is Event.DONE and row.topic == CLOSE:
            self._closing.pop(row.id, None)
            self._view.event(f"{row.id} was not paid: closed", "dim")
        elif row.event is Event.DONE and row.attempt > 1:
            self._view.event(f"{row.id} was delivered at attempt {row.attempt}", "green", rare=row.id == CLOSED_ID)
