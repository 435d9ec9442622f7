"""The promise that work goes on: while a group has jobs that are due, a worker of it has free slots, and nothing is
wrong, one of them starts soon. Or the log says why not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamdq.keys import NamespaceKeys, ShardKeys

from .loop import Process
from .model import Broken, Serial, Shard, Tracked

if TYPE_CHECKING:
    from .world import World

STARTS_WITHIN_S = 5.0
"""A mover that was lost is replaced within 2.5 s, and a lost wakeup costs 2 s."""
CALM_S, CALM_NETWORK_S = 6.0, 11.0
"""After any trouble. If connections may be dead, that is noticed within ten seconds."""
APART_MS = 10_000
"""For so long a job that was lost twice in a row is held back (lua/lib/crash.lua)."""


@dataclass
class _Slots:
    """Those of one worker."""

    group: str
    count: int
    runs: list[Sequence[Serial]] = field(default_factory=list)  # the jobs of each call of a handler


class Progress:
    """Looks at the history several times a second."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._slots: dict[Process, _Slots] = {}
        self._waits: dict[tuple[Shard, str], tuple[float, int]] = {}  # since when, and how many jobs it had got before
        self._undisturbed_from = 0
        self._troubled_at = 0.0

    # -- what is reported to it

    def trouble(self) -> None:
        """A process was killed or stopped, or goes on: perhaps it was the active mover."""
        self._troubled_at = self._world.loop.time()

    def serves(self, process: Process, group: str, slots: int) -> None:
        self._slots[process] = _Slots(group, slots)

    @contextmanager
    def runs(self, serials: Sequence[Serial]) -> Iterator[None]:
        """In the running process, with these jobs."""
        runs = self._slots[self._world.here()].runs
        runs.append(serials)
        try:
            yield
        finally:
            runs.remove(serials)

    # -- what it sees

    def look(self) -> None:
        now, waits = self._world.loop.time(), self._ready() if self._is_calm() else {}
        self._waits = {place: at for place, at in self._waits.items() if place in waits}
        for place, job in waits.items():
            got = self._world.model.given[place]
            since, had = self._waits.get(place, (now, got))
            if had != got:
                since = now
            self._waits[place] = since, got
            self._world.note("work should go on")
            if now - since > STARTS_WITHIN_S and not self._has_lost_reads(*place):
                raise Broken(
                    f"job {job.serial} is ready in {place[1]} of {place[0]}, a worker has a free slot, nobody was told "
                    f"of a handler that hangs, and nothing has started for {STARTS_WITHIN_S} s: {job}"
                )

    def _has_lost_reads(self, shard: Shard, group: str) -> bool:
        """A request to read that came after its consumer had left took entries along, or the reply to a read was lost.
        Nobody knows of these entries, so they come back at their TTR.
        """
        here = {self._world.serving[process].name.encode() for process in self._world.at_work("worker")}
        keys = ShardKeys(self._world.settings.namespace, *shard)
        for stream in (keys.ready, keys.ready_of(group)):
            rows = self._world.store.ask("XPENDING", stream, group, "-", "+", "100")
            lost = self._world.network.lost_reads
            if any(consumer not in here or (stream.encode(), entry) in lost for entry, consumer, *_ in rows):
                return True
        return False

    def _ready(self) -> dict[tuple[Shard, str], Tracked]:
        """Of each shard and group a job that should start, if a worker has a free slot."""
        has_room, found = dict[str, bool](), dict[tuple[Shard, str], Tracked]()
        now_ms = int(self._world.store.time() * 1000)
        for job, group in self._world.model.ready(now_ms):
            before = job.of(group)
            was_lost = before.lost or before.maybe_lost
            if was_lost and before.claim and now_ms < before.claim.until_ms + APART_MS:  # for the second time
                continue
            if group not in has_room:
                has_room[group] = self._has_room(group)
            if has_room[group]:
                found.setdefault((job.shard, group), job)
        return found

    def _is_calm(self) -> bool:
        """Nothing has happened for a while to a process, to Redis or to the network."""
        world = self._world
        if self._undisturbed_from != world.model.undisturbed_from:
            self._undisturbed_from = world.model.undisturbed_from
            self.trouble()
        calm_s = CALM_NETWORK_S if world.plan.network else CALM_S
        return max(self._troubled_at, world.troubled_at) < world.loop.time() - calm_s

    def _has_room(self, group: str) -> bool:
        """Whether a worker of the group has a free slot, and no log line says that its handlers hang."""
        for process in self._world.at_work("worker"):
            slots = self._slots.get(process)
            if slots is None or slots.group != group or process.stopped or process.stop_requested_at is not None:
                continue
            if self._taken(process, slots) < slots.count and not self._is_logged(process):
                return True
        return False

    def _taken(self, process: Process, slots: _Slots) -> int:
        """How many of its slots have a handler which it may run: its claim holds."""
        return sum(any(self._holds(process, slots.group, serial) for serial in run) for run in slots.runs)

    def _holds(self, process: Process, group: str, serial: Serial) -> bool:
        job = self._world.model.jobs.get(serial)
        claim = job.of(group).claim if job is not None else None
        name, now_ms = self._world.serving[process].name, self._world.store.time() * 1000
        return claim is not None and claim.consumer == name and now_ms < claim.until_ms

    def _is_logged(self, process: Process) -> bool:
        name = self._world.serving[process].name
        key = NamespaceKeys(self._world.settings.namespace).hung(name)
        return self._world.store.ask("GET", key) is not None
