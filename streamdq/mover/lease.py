"""The lease decides which of a namespace's movers is at work, or which ones, each at a place with a lease of its own
(places.py). It saves work, and is not needed for correctness.

One process holds the lease and renews it. The others stand in line, each place with a lease of its own, which lasts
longer than the one before: the deputy watches the mover's lease, the reserve the deputy's, the fourth in line the
reserve's, all others the fourth's. Who watches sleeps until the lease would have expired, so idle processes stay quiet.

While nothing is due soon and nothing runs, the mover at work makes its lease last until a second after it has something
to do, sixteen times as long as usual at most. What comes earlier comes with a ring. So the deputy hears the rings, too,
and then asks: it cuts the lease to the usual time and tells the mover, which renews it if it is alive.

Who leaves its place, or moves up, tells the line: so only the place of a process that was killed is waited for.

Where several may be at work, each watches the lease of the next one, and tells the others when it has run out. The line
is behind the first place; the deputy also takes any other one that is free. Those who are there only because there are
many shards (``rests``) leave it when they have had nothing to do for a while; so at rest one is at work, with a long
lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine
from itertools import count
from typing import Any

from ..errors import ServerError, ServerUnavailable
from ..link.connection import AsyncLink
from ..link.session import Session, arun
from ..process.logs import log
from ..process.loop import cancel_and_wait, wait
from ..store import namespace
from ..store.scripts import Scripts
from .places import Places
from .rings import Listener

_RENEW_BEFORE = 0.25  # of the usual time: several times as long as a slow call
_LINE_BEFORE = 0.5  # of the mover's usual time: those in line can wait until shortly before their leases end
_STANDBY_MARGIN_S = 0.05
_DEPUTY, _RESERVE, _FOURTH = 4, 8, 16  # so many times as long as the mover's their leases last
_IDLE = 16  # so many times as long as usual the lease of an idle mover may last
_SOON_S = 2.0  # a mover that has something to do by then is not idle
_CHECK_S = 15.0
_WATCH_MARGIN_S = 0.01  # after another one's lease should have run out
_ALONE_S = 10.0  # between looks for others at work, who tell when they come
_REST_AFTER_S = 10.0  # without anything to do, one of several leaves its place
_REST_S = 60.0  # and takes none for so long
_BUSY_S = 15.0  # the first mover, before one that has rested comes to its aid
_ALL_EVERY = 10  # looks at the next one's lease: those with another setting, and who could tell nobody
_LISTENS = " listens"
"""What a deputy writes behind its name. One of the version before hears no rings: for it the lease stays short."""


class _Hold:
    """A key that expires and names its holder: for ``ms`` as a rule, and never for longer than ``longest_ms``.

    ``asked``: the stream to which a holder listens that may have it for longer than ``ms``.
    """

    def __init__(
        self,
        link: AsyncLink,
        session: Session,
        scripts: Scripts,
        key: str,
        name: str,
        ms: int,
        longest_ms: int = 0,
        asked: str | None = None,
        before_ms: float | None = None,
    ) -> None:
        """``before_ms``: how long before its end to renew it."""
        self._link = link
        self._session = session
        self._scripts = scripts
        self._key = key
        self._name = name
        self._asked = asked
        self._until = 0.0  # it is held until then, unless another process has cut that
        self._before_ms = ms * _RENEW_BEFORE if before_ms is None else before_ms
        self.ms = ms
        self.longest_ms = max(ms, longest_ms)

    async def take(self) -> tuple[bool, int]:
        """Takes the key if it is free. Returns whether this process holds it, and for how many ms it is still held. If
        another one holds it for longer than ``ms``, that is cut, and it is told to renew it.
        """
        began = time.monotonic()
        held, left_ms = await arun(self._link, self._scripts.lease(self._name, self.ms, self._key, self._asked))
        if held:
            self._until = began + self.ms / 1000
        return held, left_ms

    def renew_after_s(self, ms: int) -> float:
        """When to renew what is held for so long."""
        return (ms - self._before_ms) / 1000

    async def renew(self, ms: int) -> bool | None:
        """Returns whether this process still holds the key; None: nobody does.

        A plain command costs Redis a fraction of the script, and is not refused at the memory limit. If another process
        holds the key, the command only prolongs that process's hold; one that comes late asks before, as that process
        may not want it.
        """
        began = time.monotonic()
        if began > self._until:
            holder = await self.holder()
            if holder != self._name:
                return None if holder is None else False
        holder = await arun(self._link, namespace.prolong_lease(self._session, self._key, ms))
        self._until = began + ms / 1000
        return None if holder is None else holder == self._name

    async def holder(self) -> str | None:
        return await arun(self._link, namespace.lease_holder(self._session, self._key))

    async def left_ms(self) -> int:
        return await arun(self._link, namespace.lease_left_ms(self._session, self._key))

    async def give_up(self) -> None:
        """Only if this process still holds it."""
        await arun(self._link, self._scripts.drop_lease(self._name, self._key))


class Lease:
    """The mover's lease and those of the line behind it, as one process sees them.

    ``idle_s``: for how many seconds the mover at work has nothing to do, as far as it knows. ``listen`` runs while this
    process is the deputy, without an end, and calls ``rung`` at each ring.
    """

    def __init__(
        self,
        link: AsyncLink,
        session: Session,
        scripts: Scripts,
        name: str,
        stopping: asyncio.Event,
        idle_s: Callable[[], float],
        listen: Callable[[], Coroutine[Any, Any, None]],
        most: Callable[[], int] = lambda: 1,
        *,
        rests: bool = False,
    ) -> None:
        """``most``: how many movers may be at work at once. ``rests``: all but one leave when nothing is to be done."""
        keys, ms = session.keys, session.settings.lease_ms
        self._link = link
        self._session = session
        self._scripts = scripts
        self._is_cluster = link.is_cluster
        self._name = name
        self._stopping = stopping
        self._idle_s = idle_s
        self._listen = listen
        self._most = most
        self._rung = asyncio.Event()
        self._told = asyncio.Event()  # that others may be at work now
        self._left = asyncio.Event()  # a place in line, or the mover's
        self._mover = _Hold(link, session, scripts, keys.mover, name, ms, ms * _IDLE, keys.asked)
        line = ((keys.deputy, name + _LISTENS, _DEPUTY), (keys.reserve, name, _RESERVE), (keys.fourth, name, _FOURTH))
        before_ms = ms * _LINE_BEFORE
        behind = [_Hold(link, session, scripts, key, who, ms * times, before_ms=before_ms) for key, who, times in line]
        self._deputy = behind[0]
        self._line = (self._mover, *behind)
        self._own = self._mover  # of the places at work, that of this process
        self._holds = {1: self._mover}
        self.places = Places(link, session)
        self._place = len(self._line)  # behind all of them
        self._rests = rests
        self._busy_at = 0.0  # when it last had something to do
        self._rests_until = 0.0
        self._seen_busy = float("inf")  # since when, by the deputy, the first mover has had a short lease
        self._checked = float("-inf")  # when it was last seen that there is no deputy who hears no rings

    @property
    def usual_s(self) -> float:
        """How long a busy mover does not renew its lease."""
        return self._mover.renew_after_s(self._mover.ms)

    def rung(self) -> None:
        """Something earlier may have arrived, or somebody asks whether the mover at work is alive."""
        self._rung.set()

    def told(self) -> None:
        """Others may be at work now."""
        self._told.set()

    @property
    def is_shared(self) -> bool:
        """Whether others may be at work as well."""
        return self._own is not self._mover or self._most() > 1

    @property
    def is_first(self) -> bool:
        """Whether this process does what only one should do."""
        return self._own is self._mover

    # -- in line

    async def acquire(self) -> bool:
        """Waits for the mover's lease; returns False if the process stops before it has it.

        On Cluster, perhaps only the node with the lease is lost. A process that can't ask then works without the lease
        on the other nodes' shards, perhaps beside others.
        """
        self._place, self._own = len(self._line), self._mover
        self.places.begin(1)
        try:
            await self._stand_in_line()
            if self._stopping.is_set() and self._place < len(self._line):
                await self._leave(self._place)
            return not self._stopping.is_set()
        except ServerUnavailable:
            if not self._is_cluster:
                raise
            log.warning("working without the mover's lease: its Redis node does not answer", mover=self._name)
            return True

    async def _join(self) -> None:
        """Takes the best place that is free. It waits once for each lease to run out: whoever has it may have been
        killed together with those behind it, as when all processes are started again.
        """
        for place in range(len(self._line)):
            left_ms = await self._try(place, begins=True)
            if left_ms <= 0 or await self._wait_to_join(left_ms / 1000 + _STANDBY_MARGIN_S):
                return
            if self._stopping.is_set() or await self._try(place, begins=True) <= 0:
                return

    async def _wait_to_join(self, seconds: float) -> bool:
        """Ends early if the process stops, or has a place that another one has left; returns whether it has one."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and (left_s := until - time.monotonic()) > 0:
            await self._sleep(left_s, len(self._line), 0.0)
            if self._left.is_set():
                self._left.clear()
                for place in range(len(self._line)):
                    if await self._try(place, begins=True) <= 0:
                        return True
        return False

    async def _try(self, place: int, begins: bool = False) -> int:
        """Takes the place if it is free, or instead of the first one, another place at work; but if such places are
        left when nothing is to be done, only one who ``begins``. Returns for how many ms another process has it; 0: it
        is this one's.
        """
        held, left_ms = await self._line[place].take()
        another = place == 0 and (begins or not self._rests)
        if not held and not (another and await self._take_another()):
            return max(1, left_ms)
        await self._move_up(place)
        return 0

    async def _move_up(self, place: int) -> None:
        had, self._place = self._place, place
        if had < len(self._line):
            await self._leave(had)

    async def _leave(self, place: int) -> None:
        await self._line[place].give_up()
        await self._tell_line()

    async def _tell_line(self) -> None:
        with contextlib.suppress(ServerError):  # as at the memory limit: then they wait until the lease has run out
            await arun(self._link, namespace.tell_line(self._session, self._name))

    async def _take_another(self) -> bool:
        """Takes a place at work that is not the first one, if there are more, and one is free."""
        if (most := self._most()) == 1 or time.monotonic() < self._rests_until:
            return False
        others = range(2, most + 1)
        left_ms = await self.places.left_ms_of(others)
        for place in others:
            if place not in left_ms and (await self._hold(place).take())[0]:
                self._own = self._hold(place)
                self.places.begin(place)
                return True
        return False

    async def _stand_in_line(self) -> None:
        """Until the process stops or has the mover's lease, or another place at work."""
        if await self._try(0, begins=True) <= 0:  # as a rule, if it is the only process: there is no line to listen to
            return
        line = Listener(self._link, self._session, lambda: [self._session.keys.line], self._heard, lambda: None)
        listening = asyncio.create_task(line.run())
        try:
            await self._join()
            while self._place > 0 and not self._stopping.is_set():
                await (self._stand_by() if self._place == 1 else self._watch())
        finally:
            await cancel_and_wait([listening])

    async def _heard(self, rung: Collection[str]) -> None:
        if rung:
            self._left.set()

    async def _stand_by(self) -> None:
        """As the deputy."""
        listening = asyncio.create_task(self._listen())
        self._rung.set()  # perhaps nobody listened for a while
        try:
            await self._watch()
        finally:
            await cancel_and_wait([listening])

    async def _watch(self) -> None:
        """Returns when the process stops or has another place: the one before its own, or none."""
        place, until = self._place, 0.0
        self._seen_busy = float("inf")
        renew_at = time.monotonic() + self._renew_after_s(place)
        while self._place == place and not self._stopping.is_set():
            now = time.monotonic()
            if now >= renew_at:
                renew_at = now + self._renew_after_s(place)
                if not await self._line[place].renew(self._line[place].ms):
                    self._place = len(self._line)
                elif place == 1:
                    await self._come_to_aid()
            elif now >= until or self._left.is_set() or self._has_to_ask(place, until - now):
                self._left.clear()
                left_ms = await self._look_ahead(place - 1, ask=self._has_to_ask(place, until - now))
                until = time.monotonic() + left_ms / 1000 + _STANDBY_MARGIN_S
                self._seen_busy = float("inf") if self._is_long(place, left_ms / 1000) else min(self._seen_busy, now)
            else:
                await self._sleep(min(until, renew_at) - now, place, until - now)

    def _renew_after_s(self, place: int) -> float:
        return self._line[place].renew_after_s(self._line[place].ms) if place < len(self._line) else float("inf")

    def _is_long(self, place: int, left_s: float) -> bool:
        return left_s > self._line[place - 1].ms / 1000 + _STANDBY_MARGIN_S

    async def _come_to_aid(self) -> None:
        """As the deputy: takes another place at work, if there is one, and work for it."""
        wanted = not self._rests or time.monotonic() - self._seen_busy > _BUSY_S
        if wanted and await self._take_another():
            await self._move_up(0)

    def _has_to_ask(self, place: int, left_s: float) -> bool:
        """Whether something has rung while the mover's lease lasts longer than usual."""
        return place == 1 and self._rung.is_set() and self._is_long(place, left_s)

    async def _look_ahead(self, place: int, ask: bool) -> int:
        """Takes the place if its lease has run out. Returns for how many ms another process still has it."""
        left_ms = 0 if ask else await self._line[place].left_ms()
        if 0 < left_ms <= self._line[place].longest_ms:  # else it has run out, or Redis's clock was set back
            return left_ms
        self._rung.clear()
        return await self._try(place)

    async def _sleep(self, seconds: float, place: int, left_s: float) -> None:
        """Ends early if the process stops, has to ask, or hears that somebody has left."""
        asks = [self._rung] if place == 1 and self._is_long(place, left_s) else []
        events = [self._stopping, self._left, *asks]
        waiting = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(waiting)

    # -- at work

    async def keep(self) -> None:
        """Returns when the lease is lost: another process holds it, or nobody does because this process was stopped for
        a while. Redis decides that, not a clock here: on a busy machine every wait ends late.
        """
        ms = self._mover.ms
        self._busy_at = time.monotonic()
        while True:
            if ms > self._mover.ms:
                await wait(self._rung, self._mover.renew_after_s(ms))
            else:
                await asyncio.sleep(self._mover.renew_after_s(ms))
            try:
                if self._has_rested():
                    self._rests_until = time.monotonic() + _REST_S
                    await self.give_up()
                    return
                own, ms = self._own, await self._for_ms()
                held = await own.renew(ms)
                if held is None and self._is_cluster:  # the key was lost with its node, or was never taken
                    held, _ = await own.take()
                if not held and own is self._own:  # otherwise it has another place by now
                    return
            except ServerUnavailable:
                if not self._is_cluster:
                    raise
                ms = self._mover.ms

    def _has_rested(self) -> bool:
        """Whether this process should leave its place at work: it is not the first, and had nothing to do for long."""
        now = time.monotonic()
        if self._own is self._mover or self._idle_s() < _SOON_S:
            self._busy_at = now
        return self._rests and now - self._busy_at > _REST_AFTER_S

    @property
    def _is_alone(self) -> bool:
        """Whether nobody else is at work, as far as is known. With a fixed number of movers others soon are."""
        return not self.is_shared or (self._rests and self.is_first and len(self.places.held) == 1)

    async def _for_ms(self) -> int:
        """For how long to hold the lease now."""
        rung = self._rung.is_set()
        self._rung.clear()
        usual, longest = self._mover.ms, self._mover.longest_ms
        idle_s = self._idle_s()
        if rung or idle_s < _SOON_S or not self._is_alone or await self._needs_usual():
            return usual
        return min(longest, usual + int(min(idle_s * 1000, longest)))

    async def _needs_usual(self) -> bool:
        """Whether there is a deputy who hears no rings."""
        if time.monotonic() - self._checked < _CHECK_S:
            return False
        deputy = await self._deputy.holder()
        if deputy is not None and not deputy.endswith(_LISTENS):
            return True
        self._checked = time.monotonic()
        return False

    async def give_up(self) -> None:
        await self._own.give_up()
        if self.is_first:
            await self._tell_line()
        if self.is_shared:
            await self._tell()

    # -- several at work

    async def watch(self, changed: Callable[[], None]) -> None:
        """Keeps up with who else is at work. Calls ``changed`` when this process has another part; never returns."""
        for number in count(1):
            told, part = self._told.is_set(), self.places.part
            self._told.clear()
            pause_s = await self._watch_others(told, thorough=number % _ALL_EVERY == 0) if self.is_shared else _ALONE_S
            if self.places.part != part:
                changed()
            await wait(self._told, pause_s)

    async def _watch_others(self, told: bool, thorough: bool) -> float:
        """Returns after how many seconds to look again."""
        try:
            if not told and not thorough and (left_ms := await self._neighbour_left_ms()) > 0:
                self.places.let_go()
            else:
                left_ms = await self.look(told)
        except ServerUnavailable:  # see acquire
            if not self._is_cluster:
                raise
            self.places.saw(self.places.mine, ())
            left_ms = 0
        return min(left_ms / 1000, self.places.lets_go_in_s) + _WATCH_MARGIN_S if left_ms > 0 else _ALONE_S

    async def look(self, told: bool = False) -> int:
        """Looks which places at work are held, and takes the first one if it is free. Returns for how many ms the next
        one has its lease; 0: there is no other. Tells the others if something is new, unless it was ``told``.
        """
        if not self.is_shared:
            return 0
        left_ms = await self.places.left_ms(self._most())
        mine, before = self.places.mine, self.places.held
        if mine != 1 and 1 not in left_ms and (await self._mover.take())[0]:
            await self._move_to_first(left_ms)
            await self._tell()
        else:
            self.places.saw(mine, left_ms)
            if before != self.places.held and not told:
                await self._tell()
        return left_ms.get(self.places.neighbour or 0, 0)

    async def _move_to_first(self, left_ms: dict[int, int]) -> None:
        """It has the lease of the first place, and notes that before it gives up its own: it keeps it from now on."""
        had, self._own = self._own, self._mover
        left_ms.pop(self.places.mine, None)
        self.places.saw(1, left_ms)
        await had.give_up()

    async def _neighbour_left_ms(self) -> int:
        """For how long the next one at work has its lease; 0 or less: it has run out, or there is nobody."""
        if (place := self.places.neighbour) is None:
            return 0
        hold = self._hold(place)
        left_ms = await hold.left_ms()
        if left_ms > hold.ms:  # Redis's clock was set back, or it is the long one of a process with another setting
            held, left_ms = await hold.take()
            if held:
                await hold.give_up()
        return left_ms

    async def _tell(self) -> None:
        with contextlib.suppress(ServerError):  # as at the memory limit: then they find it out by themselves
            await arun(self._link, namespace.tell_movers(self._session, self._name))

    def _hold(self, place: int) -> _Hold:
        """The lease of a place at work."""
        if place not in self._holds:
            key = self._session.keys.mover_at(place)
            self._holds[place] = _Hold(self._link, self._session, self._scripts, key, self._name, self._mover.ms)
        return self._holds[place]
