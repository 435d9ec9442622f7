"""The TTR of running attempts: handlers are cancelled just before it passes, and touches extend it."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from itertools import chain
from typing import Any

from ..errors import NewerFormat
from ..job.job import Job, check_ttr
from ..job.ttr import LONGEST_CUT_MS
from ..keys import ShardKeys
from ..link.connection import Link
from ..link.session import Op, arun, run
from ..operations.attempts.claimed import ClaimedJob
from ..operations.attempts.ends import End, can_be_sent
from ..process.cancellations import uncancelled
from ..process.logs import OWN_CODE, calls_in, calls_of, log, what
from ..process.loop import wait
from ..store.aborts import AbortedAttempt
from ..store.scripts import Scripts
from ..times.durations import Duration
from .ends import Ends
from .handlers import Handler, is_complete
from .hung import HungHandlers
from .member import Member
from .progress_sender import ProgressSender
from .slots import Slots

_LONGEST_CUT_S = LONGEST_CUT_MS / 1000
_ROUND_S = 0.05
_LEAST_S = 0.001  # between two rounds, however many handlers are to be cancelled
_MOST_TOUCHES = 200  # in one call
_BACKOFF_S = 0.2
_ABORT_S = 1.0  # for a handler in a process to see that its job was aborted, before the process is killed
_CALLERS = f"{OWN_CODE}worker{os.sep}handlers.py:"  # below it, the user's calls begin


class Deadlines:
    """Looks at all running handlers in rounds, and at once where a time is up: what matters is the little time that is
    left then to tell Redis, before the job may be taken over.

    ``running``: the attempts that each task makes; one, or those of a batch.
    """

    def __init__(
        self, member: Member, handlers: Mapping[str, Handler], slots: Slots, ends: Ends, hung: HungHandlers
    ) -> None:
        self.running: dict[asyncio.Task[None], list[ClaimedJob]] = {}
        self.hung = hung
        self._member = member
        self._handlers = handlers
        self._slots = slots
        self._ends = ends
        self._touches = Touches(member, self)
        self._reports = ProgressSender(member, self.aborted)
        self.report = self._reports.put
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._context = copy_context()  # touches are sent in it, not in that of a handler
        self._next = 0.0  # round, on the monotonic clock
        self._sooner = asyncio.Event()

    @property
    def jobs(self) -> list[Job]:
        """Those whose handlers run."""
        return [held.job for attempts in self.running.values() for held in attempts]

    async def run(self) -> None:
        """A loop's body. A handler that ignores the cancellation, or takes long to clean up, keeps its slot, but its
        attempt ends.
        """
        while True:
            now = time.monotonic()
            self._next = now + _ROUND_S
            for task, held in [each for each in self.running.items() if self._has_late(each[1], now)]:
                self._end_late(task, held, now)
            least = now + _LEAST_S
            while (left_s := max(self._next, least) - time.monotonic()) > 0:
                self._sooner.clear()
                await wait(self._sooner, left_s)

    def begins(self, held: ClaimedJob) -> None:
        """Its attempt begins, or its TTR starts again."""
        if held.deadline - _LONGEST_CUT_S < self._next:
            self._look_by(held.cut_at)

    def _has_late(self, held: list[ClaimedJob], now: float) -> bool:
        """Whether the time of one of them is up. If not, the next round is no later than that."""
        found = False
        for one in held:
            if one.ended or (one.deadline - _LONGEST_CUT_S > self._next and not one.late):
                continue
            at = one.give_up_at if one.late else one.cut_at
            found = found or at <= now
            if now < at < self._next:
                self._next = at
        return found

    def _end_late(self, task: asyncio.Task[None], held: list[ClaimedJob], now: float) -> None:
        for one in held:
            if one.give_up_at <= now and not one.ended:
                self.hung.add_uncancellable(task, one.job)
                self._give_up(one)
        if not all(one.late or one.ended for one in held):
            self._cut(task, held, now)

    def _give_up(self, held: ClaimedJob) -> None:
        """Ends an attempt whose handler goes on."""
        end = self._ends.raised(held, asyncio.CancelledError())
        self._ends.end(held, end, time.monotonic() - held.started)

    def lost(self, held: ClaimedJob) -> None:
        """Its claim was taken over, so its handler must not go on beside that of another worker: it is cancelled. One
        of several goes on for the others.
        """
        for task, attempts in self.running.items():
            if held in attempts and not held.late:
                held.lost = held.late = True
                if not all(one.late or one.ended for one in attempts):
                    self._give_up(held)
                else:
                    self._cut(task, [held], time.monotonic())
                return

    def notified(self, attempt: AbortedAttempt) -> None:
        """Somebody has aborted this attempt; it may be another worker's, or have ended."""
        if attempt.consumer == self._member.consumer.encode():
            running = chain.from_iterable(self.running.values())
            for held in [*running, *self._slots.in_line()]:
                if (held.shard.prefix, held.main, held.entry) == (attempt.shard, attempt.main, attempt.entry):
                    self.aborted(held)

    def aborted(self, held: ClaimedJob) -> None:
        """Its job was aborted: an ``async def`` handler is cancelled, unless it goes on for others of its batch; a
        ``def`` handler can see it, also in a process, which is killed a second later. What has not started goes back:
        then Redis cancels it.
        """
        if held.aborted or held.ended:
            return
        job: Any = held.job
        held.aborted = job.aborted = True
        for task, attempts in self.running.items():
            if held in attempts:
                self._stop_aborted(task, held, attempts)
                return
        self._ends.release(held)

    def _stop_aborted(self, task: asyncio.Task[None], held: ClaimedJob, attempts: Sequence[ClaimedJob]) -> None:
        if held.runs_in is not None:
            held.runs_in.abort(held)
        if not all(one.aborted or one.late or one.ended for one in attempts):
            return
        handler = self._handlers[held.job.topic]
        if handler.is_async:
            task.cancel()
        elif handler.process:
            self._loop.call_later(_ABORT_S, task.cancel)

    def _cut(self, task: asyncio.Task[None], held: list[ClaimedJob], now: float) -> None:
        self._note_calls(task, held)
        for one in held:
            left_s = one.deadline - now  # half of it is for what the handler does to clean up
            one.late, one.give_up_at = True, now + (min(_ROUND_S, left_s / 2) if left_s > 0 else _ROUND_S)
            self._look_by(one.give_up_at)
        task.cancel()

    def _note_calls(self, task: asyncio.Task[None], held: Sequence[ClaimedJob]) -> None:
        """Where the handler is now: a cancelled thread raises nothing that tells, nor does a coroutine that goes on."""
        thread, handler = held[0].runs_in, self._handlers[held[0].job.topic]
        if handler.process:
            for one in held:
                one.was_in = [handler.defined_at]
            return
        if thread is not None:
            calls = calls_of(thread.ident)
        elif asyncio.current_task(self._loop) is task:  # it blocks the event loop
            calls = calls_of(self._loop_thread)
        else:
            calls = calls_in(task)
        callers = [number for number, call in enumerate(calls) if call.startswith(_CALLERS)]
        for one in held:
            one.was_in = calls[callers[-1] + 1 :] if callers else ()

    def _look_by(self, at: float) -> None:
        if at < self._next:
            self._next = at
            self._sooner.set()

    # -- touches

    def touch(self, held: ClaimedJob, ttr: Duration | None) -> None:
        """Extends the deadline, here at once and in Redis as soon as the touch arrives. Any thread may call it.
        Once the handler was cancelled, it comes too late.
        """
        ttr_ms = held.ttr_ms if ttr is None else check_ttr(ttr)
        if held.late or held.aborted:
            return
        held.touch_ms = ttr_ms
        held.deadline = time.monotonic() + ttr_ms / 1000  # last: Touches reads it first
        if not held.touching:  # otherwise the touch that is about to be sent carries the latest TTR
            held.touching = True
            self._loop.call_soon_threadsafe(self._touched, held, context=self._context)

    def _touched(self, held: ClaimedJob) -> None:
        held.touching = False
        self.begins(held)
        self._touches.put(held, held.touch_ms)

    def close(self) -> None:
        self._touches.close()
        self._reports.close()

    # -- while the event loop is blocked: in another thread (heartbeats.py)

    def named(self, task: Any) -> dict[str, Any]:
        """The fields that name the job which the task runs, for the log; none if it runs no job."""
        held = self.running.get(task)
        return {} if held is None else self._member.naming(held[0].job)

    def overdue(self, now: float) -> list[asyncio.Task[None]]:
        """Ends the attempts that the loop should have ended by now: a thread has returned, their TTR passes, or they
        did not start in time. Returns the tasks whose handlers are to be cancelled; what has not begun finds out by
        itself that it is too late. The loop does not end them any more.
        """
        late = []
        for task, attempts in list(self.running.items()):
            if is_cut := _is_up(attempts, now):
                self._note_calls(task, attempts)
            ended = [held for held in attempts if self._ends_beside(held, now, is_cut=is_cut)]
            if any(held.late for held in ended):
                late.append(task)
        for held in self._slots.in_line():
            self._ends_beside(held, now, is_cut=False)
        return late

    def _ends_beside(self, held: ClaimedJob, now: float, *, is_cut: bool) -> bool:
        end = self._end_beside(held, now, is_cut=is_cut)
        return end is not None and self._ends.end_beside(held, end, now - held.started if held.begun else 0)

    def _end_beside(self, held: ClaimedJob, now: float, *, is_cut: bool) -> End | None:
        if held.ended or (not held.begun and now < held.start_by):
            return None
        if not held.begun:
            return self._ends.too_late(held)
        if (returned := returned_by(held.thread)) is not None:
            return self._ends.returned(held, returned[1])
        if not is_cut:
            return None
        held.late = True
        return self._ends.raised(held, asyncio.CancelledError())

    def send_touches(self, link: Link, scripts: Scripts, until: float) -> Iterator[Exception | None]:
        """Sends the last touches that Redis has not received, by the other thread's ``link`` and ``scripts``; no call
        begins after ``until`` on the monotonic clock. For each call, what it raised.
        """
        touched: dict[tuple[ShardKeys, str], list[ClaimedJob]] = {}
        for held in filter(_is_unsent, chain.from_iterable(list(self.running.values()))):
            touched.setdefault((held.shard, held.generation), []).append(held)
        for key in random.sample(list(touched), len(touched)):
            if time.monotonic() >= until:
                return
            error: Exception | None = None
            try:
                batch = {held: held.touch_ms for held in touched[key][:_MOST_TOUCHES]}
                for refused, held in run(link, self._touches.tell(scripts, *key, batch)):
                    self._loop.call_soon_threadsafe(refused, held)
            except Exception as raised:
                error = raised
            yield error

    def cut(self, task: asyncio.Task[None]) -> None:
        """In the loop: cancels the handler of attempts that were ended so."""
        if (held := self.running.get(task)) is not None:
            task.cancel()
            self.hung.add_uncancellable(task, held[0].job)


def _is_up(attempts: Iterable[ClaimedJob], now: float) -> bool:
    """Whether the TTR of one of them passes: then the call that makes them is cancelled for all."""
    return any(one.begun and not one.ended and now >= one.cut_at for one in attempts)


def _is_unsent(held: ClaimedJob) -> bool:
    """Whether Redis has not received its last touch, as far as is known."""
    return held.touch_ms > 0 and held.extended_until != held.deadline and not held.ended and can_be_sent(held)


def returned_by(call: Future[Any] | None) -> tuple[Any, BaseException | None] | None:
    """What a call in a thread has returned, if nothing is left to do in the loop."""
    if call is None or not call.done() or call.cancelled() or call.exception() is not None:
        return None
    returned: tuple[Any, BaseException | None] = call.result()
    return returned if is_complete(returned[0]) else None


class Touches:
    """Sends touches to Redis; however often a handler touches its job, at most one is under way. Those that come during
    a call go with the next one, only the latest of each claim. A touch that failed is sent again for as long as the
    attempt runs. While the event loop is blocked, another thread sends them (``Deadlines.send_touches``).
    """

    def __init__(self, member: Member, deadlines: Deadlines) -> None:
        self._member = member
        self._deadlines = deadlines
        self._waiting: dict[tuple[ShardKeys, str], dict[ClaimedJob, int]] = {}  # by shard and generation of the group
        self._sending: set[asyncio.Task[None]] = set()

    def put(self, held: ClaimedJob, ttr_ms: int) -> None:
        key = held.shard, held.generation
        if key in self._waiting:
            self._waiting[key][held] = ttr_ms
            return
        self._waiting[key] = {held: ttr_ms}  # before the task is there: an eager one begins at once
        task = asyncio.create_task(self._send(*key))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, shard: ShardKeys, generation: str) -> None:
        waiting = self._waiting[shard, generation]
        try:
            while waiting:
                batch = {held: waiting.pop(held) for held in list(waiting)[:_MOST_TOUCHES]}
                batch = {held: ttr_ms for held, ttr_ms in batch.items() if self._is_wanted(held)}
                if batch and not await self._is_sent(shard, generation, batch):
                    self._waiting[shard, generation] = waiting = batch | waiting
                    await asyncio.sleep(_BACKOFF_S)
        finally:
            del self._waiting[shard, generation]

    def _is_wanted(self, held: ClaimedJob) -> bool:
        """Whether its attempt runs. One that can't be sent would keep back all others; the handler ends, because its
        claim will be taken over.
        """
        if held.ended or can_be_sent(held):
            return not held.ended
        log.error("touch not sent: its handler has changed the Job", topic=held.shard.topic)
        self._deadlines.lost(held)
        return False

    async def _is_sent(self, shard: ShardKeys, generation: str, batch: dict[ClaimedJob, int]) -> bool:
        try:
            await uncancelled(partial(self._call, shard, generation, batch))
        except NewerFormat:
            return True  # the worker's loops get this error, too, and end the worker
        except Exception as error:
            log.warning("touches not sent yet", topic=shard.topic, waiting=len(batch), error=what(error))
            return False
        return True

    async def _call(self, shard: ShardKeys, generation: str, batch: dict[ClaimedJob, int]) -> None:
        for refused, held in await arun(self._member.link, self.tell(self._member.scripts, shard, generation, batch)):
            refused(held)

    def tell(
        self, scripts: Scripts, shard: ShardKeys, generation: str, batch: Mapping[ClaimedJob, int]
    ) -> Op[list[tuple[Callable[[ClaimedJob], None], ClaimedJob]]]:
        """Returns those that Redis has refused, each with what is to be called with it, in the loop: their claim was
        taken over, or their job was aborted.
        """
        member = self._member
        deadlines = [(held, held.deadline) for held in batch]
        deadlines = [(held, at) for held, at in deadlines if held.touch_ms == batch[held]]  # no other touch has come
        group_ttr_ms = member.topics.settings_of(shard.topic).ttr_of(member.group)
        claims = [part for held, ttr_ms in batch.items() for part in (held.main, held.entry, held.job.id, ttr_ms)]
        refused = yield from scripts.touch(shard, member.group, generation, member.consumer, group_ttr_ms, claims)
        for held, deadline in deadlines:
            held.extended_until = deadline
        lost, aborted = self._deadlines.lost, self._deadlines.aborted
        return [
            (aborted if i in refused.aborted else lost, held)
            for i, held in enumerate(batch)
            if (i in refused.stale or i in refused.aborted) and not held.ended
        ]

    def close(self) -> None:
        for task in self._sending:
            task.cancel()
