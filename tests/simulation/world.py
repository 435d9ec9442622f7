"""One seed's history: who takes part in it, what happens to them, and whether every promise was kept."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

from sqlalchemy import Engine, event

from streamdq import AsyncQueue, Queue, Worker
from streamdq.config import Settings
from streamdq.errors import StreamdqError
from streamdq.keys import NamespaceKeys, ShardKeys
from streamdq.link import link_thread as link_thread_module
from streamdq.link import session as session_module
from streamdq.link.address import Target
from streamdq.mover import mover as mover_module
from streamdq.operations.flows import builder as builder_module
from streamdq.outbox import relay as relay_module
from streamdq.store.scripts import Scripts
from streamdq.store.topics import changes as changes_module
from streamdq.worker import heartbeats as heartbeats_module
from streamdq.worker import serving as serving_module

from . import clients, flows, operators, troubles, workers
from .archiver import keep_archive
from .calls import call_of
from .finders import find_and_act
from .link import LATEST_S, Network, SimulatedLink
from .linkers import link
from .links import note_ends
from .loop import Process, SimulatedLoop, running
from .model import Broken, Model
from .movers import SimulatedMoverThread
from .plan import DEFAULT_DELIVERIES, GROUPS, MAX_DELIVERIES, RETRIES, Plan, key_limits
from .progress import Progress
from .relays import Database, relay, sell
from .rest import come_to_rest
from .schedulers import keep_schedules
from .store import Fields, HalfDone, Store
from .threads import BlockingLink, SimulatedPulse, ThreadedQueue, sleep
from .transitions import STEPS
from .waiters import RESULTS, retentions, wait_for_results

EPOCH_S = 1_800_000_000
_CALM_S = 6.0  # after any trouble
Main = Callable[[], Coroutine[Any, Any, None]]
_URL = "redis://simulated:6379/0"


class World:
    """``run`` makes the history of one seed. Those who take part are coroutine functions that get the World."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"{seed} what")
        self.plan = Plan.drawn(self.random, Random(f"{seed} later"))
        self.happened: Counter[str] = Counter()
        paces = Random(f"{seed} starts")
        self.sparse = Random(f"{seed} sparse").random() < 0.1  # few jobs, so that the mover is idle in between
        self.paces = paces if paces.random() < 0.22 else None  # otherwise as before there were rates of keys
        self.loop = SimulatedLoop(Random(f"{seed} order"), self.plan.shuffled)
        self.clock_s = float(EPOCH_S)
        self.store = Store(lambda: self.clock_s + self.loop.time())
        self.network = Network(self.loop, self.store, Random(f"{seed} network"), self._applied, self.note)
        self.model = Model(STEPS)
        self.model.lives = self._lives
        trades = Random(f"{seed} trades")  # with an outbox, but those of the fixed set keep their histories
        self.relays = trades.choice((1, 2, 2)) if 0.63 < trades.random() < 0.81 else 0
        self.model.outbox.clock, self.model.outbox.keeps = self.loop.time, trades.random() < 0.6
        changes = Random(f"{seed} changes of rows")
        self.changes = changes if self.relays and changes.random() < 0.5 else None  # rows wait in the outbox
        self.links = Random(f"{seed} links").random() < 0.35  # jobs wait for others
        self.flows = self.links and Random(f"{seed} flows").random() < 0.5
        adding = self.flows and _takes_part(seed, "who adds jobs", 0.18, 0.53)
        self.adds = Random(f"{seed} what is added") if adding else None  # handlers add jobs to the flows of their own
        twins = Random(f"{seed} ids of what is added")
        self.twins = twins if twins.random() < 0.6 else None  # several with the same id
        self.model.after_step = note_ends
        self.model.is_of_flows = flows.is_own
        self.aborts = Random(f"{seed} what is aborted")
        classes = Random(f"{seed} classes")
        some = any(_takes_part(seed, "priorities", *span) for span in ((0.55, 0.594), (0.73, 0.785), (0.94, 1.0)))
        self.classes = classes if some else None  # jobs have priorities
        self.reporting = _takes_part(seed, "aborts", 0.485, 0.59)  # their handlers say how far they are
        self.waits = Random(f"{seed} what is waited for")
        self.retention = retentions(seed) if _takes_part(seed, "results", *RESULTS) else None  # of results
        self.serving: dict[Process, Worker] = {}
        self.progress = Progress(self)
        self.troubled_at = 0.0  # the network or Redis; infinite while it lasts
        self.topics = [f"t{i}" for i in range(self.plan.topics)] + ["fleeting"] * self.plan.fleeting
        self.schedules: list[tuple[str, str]] = []  # topic and id of those that were made
        self.changed: set[str] = set()  # ids of those that were changed since
        self.ids: list[tuple[str, str]] = []  # of jobs, with their topics
        self.processes: list[Process] = []
        self.calm = False  # no more faults, nothing new
        self.settings = Settings(url=_URL, call_timeout_s=2.0, grace_s=2.0, history_length=200)
        self._serials = count()
        self._names = count()
        self._tasks: list[tuple[Process | None, asyncio.Task[None]]] = []
        self._broken: BaseException | None = None

    # -- the frame

    def run(self) -> None:
        """Raises Broken, or whatever else went wrong."""
        with tempfile.TemporaryDirectory() as directory:
            self.archive_url = f"sqlite:///{directory}/archive.db"
            self.database = Database(self, f"sqlite:///{directory}/outbox.db")
            with self._simulated():
                try:
                    self.loop.run_until_complete(self.loop.create_task(self._history()))
                finally:
                    self.happened.update(self.model.happened)

    @contextmanager
    def _simulated(self) -> Iterator[None]:
        entropy = Random(f"{self.seed} ids")
        link = lambda *_: SimulatedLink(self.network, Target("node", _URL))  # noqa: E731
        with ExitStack() as stack:
            stack.enter_context(self.store.keeping_time())
            for target, name, value in (
                (time, "monotonic", self.loop.time),
                (time, "sleep", sleep),
                (os, "urandom", entropy.randbytes),
                (session_module, "consumer_name", lambda: f"c{next(self._names)}"),
                (serving_module, "AsyncLink", link),
                (serving_module, "Link", lambda *_: BlockingLink(link())),
                (heartbeats_module, "pulse", SimulatedPulse()),
                (serving_module, "install", self.loop.install),
                (serving_module, "uninstall", self.loop.uninstall),
                (link_thread_module, "AsyncLink", link),
                (random, "uniform", lambda _least, most: most),  # pauses before another try are their longest
                (mover_module, "MoverThread", SimulatedMoverThread),
                # topics are deleted as if their workers had just left, and come back
                (changes_module, "_check_unserved", lambda *_: ()),
                (Scripts, "check_rights", lambda *_: iter(())),  # this server knows no users
                (relay_module, "Rows", self.database.rows),
                (builder_module, "_WITHIN_MS", flows.WITHIN_MS),
                (builder_module, "MAX_BATCH", flows.AT_ONCE),
                (AsyncQueue, "_link_class", staticmethod(lambda: link)),
                (Queue, "_link_class", staticmethod(lambda: lambda *_: BlockingLink(link()))),
                # sets of shards are ordered by it, and by default it is the address
                (ShardKeys, "__hash__", lambda keys: hash(keys.prefix)),
            ):
                stack.enter_context(patch.object(target, name, value))
            event.listen(Engine, "connect", self.database.connected)
            stack.callback(event.remove, Engine, "connect", self.database.connected)
            asyncio.set_event_loop(self.loop)
            try:
                yield
            finally:
                self._bury_the_dead()
                asyncio.set_event_loop(None)

    def _bury_the_dead(self) -> None:
        """Coroutines that nothing will continue end here, and what they still try to do has no effect."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in asyncio.all_tasks(self.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
            self.loop._ready.clear()  # type: ignore[attr-defined]
            self.loop.close()

    def flushed(self) -> None:
        self._applied((b"FLUSHALL",), b"OK")

    def _applied(self, fields: Fields, reply: Any) -> None:
        call = call_of(len(self.store.log), int(self.store.time() * 1000), fields, reply)
        self.note(f"call {call.name}")
        try:
            if isinstance(reply, HalfDone):
                raise Broken(f"{call.name} ended half way: {reply}")
            self.model.applied(call)
        except Exception as error:  # a fault of the judge, too: the loop would only log it
            self._broken = self._broken or error

    def _lives(self, consumer: str) -> bool:
        """Whether it could send a heartbeat every second, for so long that nobody may take it for dead."""
        calm_from = self.loop.time() - _CALM_S
        return any(
            worker.name == consumer and process.alive and not process.stopped and not self.network.faults.down
            and max(process.troubled_at, self.troubled_at) < calm_from
            for process, worker in self.serving.items()
        )  # fmt: skip

    # -- the history

    async def _history(self) -> None:
        plan = self.plan
        await self._configure_all()
        if self.relays:
            self.database.create(None if self.changes is None else self.changes.choice((2, 10)))
        self._start_all()
        for trouble in troubles.planned(plan):
            self._tasks.append((None, self.loop.create_task(trouble(self))))
        end = self.loop.time() + plan.horizon_s * (4 if self.sparse else 1)
        while self.loop.time() < end:
            await asyncio.sleep(0.2)
            self.check()
        await come_to_rest(self)
        self.check()

    def _start_all(self) -> None:
        plan = self.plan
        for group in GROUPS[:2]:
            for _ in range(plan.workers if group == GROUPS[0] else 1):
                self.start("worker", partial(workers.work, self, group))
        for _ in range(plan.producers):
            self.start("producer", partial(clients.produce, self))
        for _ in range(plan.takers):
            self.start("taker", partial(clients.take, self))
        for _ in range(plan.operators):
            self.start("operator", partial(operators.operate, self))
        self._start_some()

    def _start_some(self) -> None:
        """Those that only some histories have."""
        plan = self.plan
        for kind, main, least, most in (
            ("schedules", keep_schedules, 0.0, 0.3),
            ("finds", find_and_act, 0.0, 0.3),
            ("aborts", operators.abort_some, 0.485, 0.59),
            ("results", wait_for_results, *RESULTS),
        ):
            if _takes_part(self.seed, kind, least, most):
                self.start(kind, partial(main, self))
        if self.links:
            self.start("links", partial(link, self))
        if self.flows:
            for _ in range(2):
                self.start("flows", partial(flows.build_flows, self))
        if plan.archive:
            self.start("archiver", partial(keep_archive, self))
        for main in [sell, *[relay] * self.relays] if self.relays else ():
            self.start(main.__name__, partial(main, self))

    async def _configure_all(self) -> None:
        deliveries = {topic: self.random.choice(MAX_DELIVERIES) for topic in self.topics}
        self.model.deliveries_at_most = max(DEFAULT_DELIVERIES, *deliveries.values())
        self.model.deliveries_at_least = min(DEFAULT_DELIVERIES, *deliveries.values())
        self.model.judges_rates = not (self.plan.network or self.plan.crashes or self.plan.server)
        self.model.outbox.late_s = 1.0 if self.model.judges_rates else LATEST_S + troubles.STOPPED_S + 5.0
        async with AsyncQueue(settings=self.settings) as queue:
            for topic in self.topics:
                await queue.configure(
                    topic, groups=GROUPS[:2], shards=self.plan.shards, ttr=self.plan.ttr,
                    retry=self.random.choice(RETRIES), max_deliveries=deliveries[topic],
                    **(key_limits(self.random, self.paces) if self.plan.has_keys else {}),
                    result=self.retention and {GROUPS[0]: self.retention},
                )  # fmt: skip

    # -- for those who take part

    def start(self, kind: str, main: Main) -> Process:
        """Starts a process, and another one like it some time after it was killed."""
        process = Process(f"{kind}{len(self.processes)}")
        if self.plan.crashes and not self.calm and self.random.random() < 0.5:
            process.dies_at = self.random.randrange(1, 3000)
        self.processes.append(process)
        process.on_death = lambda: self._died(process, kind, main)
        self._tasks.append((process, self.loop.spawn(process, main)))
        return process

    def _died(self, process: Process, kind: str, main: Main) -> None:
        self.note("killed", process)
        self.progress.trouble()
        if process is self.mover():
            self.note("killed as the mover")
        if not self.calm:
            self.loop.call_later(self.random.expovariate(1.0), self._start_again, kind, main)

    def _start_again(self, kind: str, main: Main) -> None:
        if not self.calm:
            self.start(kind, main)

    def check(self) -> None:
        """Raises what went wrong so far."""
        if self._broken is not None:
            raise self._broken
        for process, task in self._tasks:
            if task.done() and (process is None or process.alive):
                task.result()
        self._tasks = [(process, task) for process, task in self._tasks if not task.done()]
        self.progress.look()

    def at_work(self, kind: str) -> list[Process]:
        """The processes of a kind that are alive and have not ended."""
        alive = {process for process, task in self._tasks if not task.done()}
        return [p for p in self.processes if p in alive and p.alive and p.name.startswith(kind)]

    def mover(self) -> Process | None:
        """The worker whose mover is active."""
        holder = self.store.ask("GET", NamespaceKeys(self.settings.namespace).mover)
        return next((process for process, worker in self.serving.items() if worker.name.encode() == holder), None)

    def others_at_work(self) -> bool:
        """Whether anything but workers has yet to end."""
        return any(
            not task.done() and (process is None or (process.alive and not process.name.startswith("worker")))
            for process, task in self._tasks
        )

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Whatever promise is found broken in it ends the history soon."""
        try:
            yield
        except Broken as error:
            self._broken = self._broken or error

    @contextmanager
    def client(self, what: str) -> Iterator[None]:
        """Errors are a client's daily bread; what they may mean is for the model to say."""
        try:
            yield
        except StreamdqError as error:
            self.note(f"{what}: {type(error).__name__}")

    def note(self, what: str, process: Process | None = None) -> None:
        """Counts what happened; to a process, also which call it was waiting for."""
        self.happened[what] += 1
        for call in {*process.calling} if process else ():
            self.happened[f"{what} in {call}"] += 1

    def note_states(self, what: str) -> None:
        """Counts what happened to Redis, and which states jobs were in then."""
        self.note(what)
        for state in self.model.states():
            self.note(f"{what} while {state}")

    async def pause(self, most_s: float) -> None:
        await asyncio.sleep(self.random.uniform(0.0, most_s))

    def queue(self) -> Any:
        """A new AsyncQueue, or a Queue that stands in for it."""
        if self.random.random() < 0.75:
            return AsyncQueue(settings=self.settings)
        return ThreadedQueue(Queue(settings=self.settings))

    def serial(self) -> int:
        return next(self._serials)

    def new_id(self, topic: str, few: bool = False) -> str:
        """Often one that another job has or had; of ``few``, nearly always."""
        if few:
            id = f"u{self.random.randrange(8)}"
        else:
            id = f"j{self.random.randrange(40)}" if self.random.random() < 0.3 else f"n{next(self._names)}"
        self.ids.append((topic, id))
        return id

    def known_id(self, random: Random | None = None) -> tuple[str, str]:
        return (random or self.random).choice(self.ids[-30:] or [(self.topics[0], "none")])

    @staticmethod
    def here() -> Process:
        process = running.get()
        assert process is not None
        return process


def _takes_part(seed: int, kind: str, least: float, most: float) -> bool:
    """By a choice of its own, so that other seeds' histories stay as they are."""
    return least <= Random(f"{seed} {kind}").random() < most
