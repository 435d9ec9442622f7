"""One seed's history: workers, producers and operators, each a process of its own, and what happens to them."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Any
from unittest.mock import patch

from streamdq import AsyncQueue, Bury, Job, NewJob, Snooze, Worker
from streamdq.config import Settings
from streamdq.errors import StreamdqError
from streamdq.keys import ShardKeys
from streamdq.link import session as session_module
from streamdq.link.address import Target
from streamdq.operations.jobs import OnConflict
from streamdq.store.assembly import load_script, lua_directory
from streamdq.worker import worker as worker_module

from .link import Network, SimulatedLink
from .loop import Process, SimulatedLoop, running
from .model import Broken, Call, Model
from .store import Fields, Store

_EPOCH_S = 1_800_000_000
_GROUPS = ("default", "audit", "extra")  # the first is there all the time
_CONFLICTS: tuple[OnConflict, ...] = ("reject", "keep", "replace")
_CALM_S = 6.0  # after any trouble
_RETRIES = ("1s 2s", "0", "500ms 1s 5s", "3s")


@cache
def _scripts() -> dict[bytes, str]:
    return {
        key: path.stem
        for path in lua_directory().glob("*.lua")
        for script in [load_script(path.stem)]
        for key in (script.sha.encode(), script.source.encode())
    }


def call_of(index: int, now_ms: int, fields: Fields, reply: Any) -> Call:
    name, *rest = fields
    if name in (b"EVALSHA", b"EVAL"):
        count = int(rest[1])
        keys, args = rest[2 : 2 + count], rest[2 + count :]
        return Call(index, now_ms, _scripts()[rest[0]], [key.decode() for key in keys], args, reply)
    return Call(index, now_ms, name.decode(), [], rest, reply)


@dataclass(frozen=True)
class Plan:
    """What kind of history a seed makes."""

    topics: int
    shards: int
    workers: int  # for each group
    producers: int
    horizon_s: float
    shuffled: bool
    crashes: bool  # processes are killed and stopped
    network: bool  # messages are lost or late, connections cut
    server: bool  # Redis restarts, fails over, is flushed, its clock jumps
    operators: bool

    @classmethod
    def drawn(cls, random: Random) -> Plan:
        return cls(
            topics=random.choice((1, 1, 2)),
            shards=random.choice((1, 1, 2, 3)),
            workers=random.choice((1, 2, 2, 3)),
            producers=random.choice((1, 2)),
            horizon_s=random.choice((10.0, 20.0, 40.0)),
            shuffled=random.random() < 0.5,
            crashes=random.random() < 0.6,
            network=random.random() < 0.6,
            server=random.random() < 0.4,
            operators=random.random() < 0.7,
        )


class World:
    """``run`` makes the history of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"{seed} what")
        self.plan = Plan.drawn(self.random)
        self.happened: Counter[str] = Counter()
        self.loop = SimulatedLoop(Random(f"{seed} order"), self.plan.shuffled)
        self._clock_s = float(_EPOCH_S)
        self.store = Store(lambda: self._clock_s + self.loop.time())
        self.network = Network(self.loop, self.store, Random(f"{seed} network"), self._applied, self._happened)
        self.model = Model()
        self.model.lives = self._lives
        self.topics = [f"t{i}" for i in range(self.plan.topics)]
        self._serials = iter(range(10**9))
        self._names = iter(range(10**9))
        self._ids: list[tuple[str, str]] = []
        self._workers: dict[Process, str] = {}  # and their groups
        self._serving: dict[Process, Worker] = {}
        self._troubled: dict[Process | None, float] = {}  # when each was last stopped or continued; None: everybody
        self._tasks: list[asyncio.Task[Any]] = []
        self._calm = False
        self._broken: BaseException | None = None
        self.settings = Settings(url="redis://simulated:6379/0", call_timeout_s=2.0, grace_s=2.0, history_length=200)

    # -- the world's frame

    def run(self) -> None:
        """Raises Broken, or whatever else went wrong."""
        with self._simulated():
            main = self.loop.create_task(self._history())
            self.loop.run_until_complete(main)

    @contextmanager
    def _simulated(self) -> Iterator[None]:
        entropy = Random(f"{self.seed} ids")
        link = lambda *_: SimulatedLink(self.network, Target("node", "redis://simulated:6379/0"))  # noqa: E731
        with ExitStack() as stack:
            stack.enter_context(self.store.keeping_time())
            stack.enter_context(patch.object(time, "monotonic", self.loop.time))
            stack.enter_context(patch.object(os, "urandom", entropy.randbytes))
            stack.enter_context(patch.object(session_module, "consumer_name", lambda: f"c{next(self._names)}"))
            stack.enter_context(patch.object(worker_module, "AsyncLink", link))
            stack.enter_context(patch.object(AsyncQueue, "_link_class", staticmethod(link)))
            stack.enter_context(patch.object(ShardKeys, "__hash__", lambda keys: hash(keys.prefix)))
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

    def _happened(self, what: str) -> None:
        self.happened[what] += 1

    def _applied(self, fields: Fields, reply: Any) -> None:
        now_ms = int(self.store.time() * 1000)
        call = call_of(len(self.store.log), now_ms, fields, reply)
        self.happened[f"call {call.name}"] += 1
        try:
            self.model.applied(call)
        except Broken as error:
            self._broken = self._broken or error

    def _lives(self, consumer: str) -> bool:
        """Whether it could give a sign of life every second, for so long that nobody may take it for dead."""
        calm_from = self.loop.time() - _CALM_S
        return any(
            worker.name == consumer and process.alive and not process.stopped
            and max(self._troubled.get(process, 0.0), self._troubled.get(None, 0.0)) < calm_from
            for process, worker in self._serving.items()
        )  # fmt: skip

    def _trouble(self, process: Process | None = None) -> None:
        self._troubled[process] = self.loop.time()

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    # -- the history

    async def _history(self) -> None:
        plan = self.plan
        await self._configure_all()
        for group in _GROUPS[:2]:
            for _ in range(plan.workers if group == _GROUPS[0] else 1):
                self._start_worker(group)
        parts: list[Callable[[], Awaitable[None]]] = [self._produce] * plan.producers
        if plan.operators:
            parts.append(self._operate)
        tasks = [self.loop.spawn(Process(f"client{i}"), part) for i, part in enumerate(parts)]
        for trouble, there in (
            (self._kill_some, plan.crashes),
            (self._cut_some, plan.network),
            (self._shake, plan.server),
        ):
            if there:
                tasks.append(self.loop.create_task(trouble()))
        end = self.loop.time() + plan.horizon_s
        while self.loop.time() < end:
            await asyncio.sleep(0.2)
            self._check()
            for task in tasks:
                if task.done():
                    task.result()
        self._calm = True
        await asyncio.gather(*tasks)
        await self._come_to_rest()
        self._check()

    async def _configure_all(self) -> None:
        ttr = Random(f"{self.seed} ttr").choice(("2s", "2s", "60s"))
        async with AsyncQueue(settings=self.settings) as queue:
            for topic in self.topics:
                await queue.configure(
                    topic, groups=_GROUPS[:2], shards=self.plan.shards, ttr=ttr, retry=self.random.choice(_RETRIES),
                    max_deliveries=self.random.choice((3, 20)),
                )  # fmt: skip

    async def _pause(self, most_s: float) -> None:
        await asyncio.sleep(self.random.uniform(0.0, most_s))

    # -- workers

    def _start_worker(self, group: str) -> None:
        process = Process(f"worker{len(self._workers)}")
        if self.plan.crashes and not self._calm and self.random.random() < 0.5:
            process.dies_at = self.random.randrange(1, 3000)
        self._workers[process] = group
        process.on_death = lambda: self._died(process)
        task = self.loop.spawn(process, lambda: self._work(group))
        self._tasks.append(task)

    def _died(self, process: Process) -> None:
        self.happened["killed"] += 1
        if not self._calm:
            self.loop.call_later(self.random.expovariate(1.0), self._restart, self._workers[process])

    def _restart(self, group: str) -> None:
        if not self._calm:
            self._start_worker(group)

    async def _work(self, group: str) -> None:
        worker = Worker(group=group, settings=self.settings, concurrency=self.random.choice((1, 3, 10)))
        if (process := running.get()) is not None:
            self._serving[process] = worker
        for topic in self.topics:
            worker.handler(topic)(self._handler(worker, group))
        while True:
            try:
                await worker.serve()
                return
            except StreamdqError as error:
                self.happened[f"worker: {type(error).__name__}"] += 1
                await asyncio.sleep(0.5)

    def _handler(self, worker: Worker, group: str) -> Callable[[Any, Job], Awaitable[None]]:
        async def handle(body: Any, job: Job) -> None:
            try:
                self.model.started(body["n"], job.attempt, group, worker.name)
            except Broken as error:
                self._broken = self._broken or error
            plan = body["plan"]
            what, seconds = plan[job.attempt - 1] if job.attempt <= len(plan) else ("ok", 0.0)
            self.happened[f"handler {what}"] += 1
            if seconds:
                await asyncio.sleep(seconds)
            if what == "raise":
                raise ValueError("as told")
            if what == "bury":
                raise Bury("as told")
            if what == "snooze" and job.snoozed < 2:
                raise Snooze(0.5)
            if what == "touch":
                job.touch()
                await asyncio.sleep(1.5)

        return handle

    # -- producers

    def _body(self) -> dict[str, Any]:
        kinds = ("ok", "ok", "ok", "raise", "raise", "bury", "snooze", "touch", "hang")
        plan = []
        for _ in range(self.random.randrange(4)):
            what = self.random.choice(kinds)
            plan.append((what, 5.0 if what == "hang" else self.random.choice((0.0, 0.0, 0.01, 0.5, 1.5))))
        return {"n": next(self._serials), "plan": plan}

    def _new(self) -> dict[str, Any]:
        random = self.random
        options: dict[str, Any] = {"delay": random.choice((0, 0, 0.1, 1.0, 3.0, 8.0)), "id": self._id()}
        if random.random() < 0.1:
            options["ttr"] = random.choice(("1s", "5s"))
        if random.random() < 0.1:
            options["expire"] = "2s"
        if random.random() < 0.2:
            options["retry"] = random.choice(_RETRIES)
        return options

    def _id(self) -> str:
        return f"j{self.random.randrange(40)}" if self.random.random() < 0.3 else f"n{next(self._names)}"

    async def _produce(self) -> None:
        random = self.random
        async with AsyncQueue(settings=self.settings) as queue:
            while not self._calm:
                await self._pause(1.0)
                topic = random.choice(self.topics)
                with self._client("enqueue"):
                    conflict = random.choice(_CONFLICTS)
                    if random.random() < 0.3:
                        jobs = [NewJob(self._body(), **self._new()) for _ in range(random.randrange(1, 12))]
                        self._ids += [(topic, job.id or "") for job in jobs]
                        result = await queue.enqueue_many(topic, jobs, on_conflict=conflict)
                        for job in jobs:
                            if job.id not in result.existing:
                                self._acknowledged(job.body["n"])
                    else:
                        body, options = self._body(), self._new()
                        self._ids.append((topic, options["id"]))
                        made = await queue.enqueue(topic, body, on_conflict=conflict, **options)
                        self._acknowledged(made.body["n"])

    def _acknowledged(self, serial: int) -> None:
        self.happened["acknowledged"] += 1
        self.model.acknowledged(serial)

    @contextmanager
    def _client(self, what: str) -> Iterator[None]:
        """Errors are a client's daily bread; what they may mean is for the model to say."""
        try:
            yield
        except StreamdqError as error:
            self.happened[f"{what}: {type(error).__name__}"] += 1

    # -- operators

    async def _operate(self) -> None:
        random = self.random
        async with AsyncQueue(settings=self.settings) as queue:
            while not self._calm:
                await self._pause(2.0)
                topic = random.choice(self.topics)
                what = random.choice(_OPERATIONS)
                with self._client(what.__name__):
                    await what(self, queue, topic)

    def _known(self) -> tuple[str, str]:
        return self.random.choice(self._ids[-30:] or [(self.topics[0], "none")])

    async def _cancel(self, queue: AsyncQueue, _: str) -> None:
        await queue.cancel(*self._known())

    async def _reschedule(self, queue: AsyncQueue, _: str) -> None:
        await queue.reschedule(*self._known(), delay=self.random.choice((0, 0.5, 4.0)))

    async def _pause_topic(self, queue: AsyncQueue, topic: str) -> None:
        await queue.pause(topic)
        await self._pause(3.0)
        await queue.resume(topic)

    async def _kick(self, queue: AsyncQueue, topic: str) -> None:
        await queue.kick(topic, group=self.random.choice(_GROUPS[:2]))

    async def _purge(self, queue: AsyncQueue, topic: str) -> None:
        await queue.purge(topic, group=self.random.choice(_GROUPS[:2]))

    async def _regroup(self, queue: AsyncQueue, topic: str) -> None:
        await queue.configure(topic, groups=_GROUPS[: self.random.choice((1, 2, 3))])

    async def _tune(self, queue: AsyncQueue, topic: str) -> None:
        random = self.random
        await queue.configure(
            topic, ttr=random.choice(("1s", "2s", "4s")), retry=random.choice(_RETRIES), rate=random.choice((0, 0, 20)),
        )  # fmt: skip

    async def _reshard(self, queue: AsyncQueue, topic: str) -> None:
        await queue.configure(topic, shards=self.random.choice((1, 2, 3)))

    async def _look(self, queue: AsyncQueue, topic: str) -> None:
        await queue.stats(topic)
        await queue.upcoming(topic)
        await queue.get(*self._known())

    # -- trouble

    async def _kill_some(self) -> None:
        while not self._calm:
            await self._pause(4.0)
            alive = [process for process in self._workers if process.alive and not process.stopped]
            if not alive:
                continue
            process = self.random.choice(alive)
            if self.random.random() < 0.5:
                self.loop.kill(process)
            else:
                self.happened["stopped"] += 1
                self.loop.stop_process(process)
                self.loop.call_later(self.random.choice((0.1, 1.0, 3.0, 8.0)), self._continue, process)

    def _continue(self, process: Process) -> None:
        self.loop.continue_process(process)
        self._trouble(process)

    async def _cut_some(self) -> None:
        faults, random = self.network.faults, self.random
        while not self._calm:
            await self._pause(4.0)
            kind = random.choice(("lossy", "slow", "cut", "fine"))
            self.happened[f"network {kind}"] += 1
            rate = random.choice((0.01, 0.1, 0.3)) if kind == "lossy" else 0.0
            faults.lose_request = faults.lose_reply = faults.late = faults.refuse = rate
            faults.slow_s = random.choice((0.01, 0.1, 0.5)) if kind == "slow" else 0.0005
            faults.cut = {p for p in self._workers if random.random() < 0.5} if kind == "cut" else set()
            self._trouble()
            if kind != "fine":
                self._troubled[None] = float("inf")
        self._heal_network()

    def _heal_network(self) -> None:
        faults = self.network.faults
        faults.lose_request = faults.lose_reply = faults.late = faults.refuse = 0.0
        faults.slow_s, faults.cut, faults.down = 0.0005, set(), False
        self._trouble()

    async def _shake(self) -> None:
        while not self._calm:
            await self._pause(8.0)
            what = self.random.choice(("restart", "fail over", "flush", "flush scripts", "clock"))
            self.happened[f"redis {what}"] += 1
            if what == "restart":
                self.network.faults.down = True
                self.network.drop_all()
                self.store.flush_scripts()
                await self._pause(3.0)
                self.network.faults.down = False
            elif what == "fail over":
                lost = min(len(self.store.log), self.random.choice((0, 1, 3, 20)))
                self.network.drop_all()
                self.store.take_over(lost)
                self.model.forget(len(self.store.log))
            elif what == "flush":
                self.store.flush()
                self._applied((b"FLUSHALL",), b"OK")
            elif what == "flush scripts":
                self.store.flush_scripts()
            else:
                self._clock_s += self.random.choice((-3600.0, -5.0, -0.5, 0.5, 5.0))
                self.model.disturb()
            if what != "clock" and self._troubled.get(None) != float("inf"):
                self._trouble()

    # -- the end

    async def _come_to_rest(self) -> None:
        """Everything heals, and time goes on until nothing is left to do."""
        self._clock_s = max(self._clock_s, float(_EPOCH_S))
        self._heal_network()
        for process in list(self._workers):
            if process.stopped:
                self.loop.continue_process(process)
            process.dies_at = None
        for group in _GROUPS:
            self._start_worker(group)
        async with AsyncQueue(settings=self.settings) as queue:
            for topic in self.topics:
                await self._until_done(partial(queue.configure, topic, rate=0))
                await self._until_done(partial(queue.resume, topic))
            for _ in range(400):
                await asyncio.sleep(1.0)
                self._check()
                if not await self._busy(queue):
                    break
            else:
                stats = await queue.stats()
                raise Broken(f"it does not come to rest: {stats}")
            await asyncio.sleep(5.0)
            self._check()
            self.model.at_rest(_GROUPS[:1], self._stored())
            for topic in self.topics:
                audit = await queue.audit(topic)
                if not audit.balanced:
                    raise Broken(f"the audit does not balance: {audit}")

    async def _until_done(self, operation: Callable[[], Awaitable[Any]]) -> None:
        for _ in range(100):
            try:
                await operation()
                return
            except StreamdqError:
                await asyncio.sleep(0.5)
        raise Broken("operations go on failing, though nothing is broken any more")

    async def _busy(self, queue: AsyncQueue) -> bool:
        found = await queue.stats()
        return any(
            group.delayed + group.ready + group.running
            for topic in found.topics.values()
            for group in topic.groups.values()
        )

    def _stored(self) -> list[tuple[tuple[str, int], str]]:
        found = []
        for key in self.store.all_keys():
            if key.endswith(":jobs"):
                topic, _, shard = key[key.index("{") + 1 : key.index("}")].rpartition(":")
                found += [((topic, int(shard)), id.decode()) for id in self.store.ask("HKEYS", key)]
        return found


_OPERATIONS = (
    World._cancel, World._cancel, World._reschedule, World._pause_topic, World._kick, World._purge, World._regroup,
    World._tune, World._reshard, World._look,
)  # fmt: skip
