"""How attempts end, and how Redis hears of it. Each ends once, by the worker's loop, or by the thread of
the heartbeats while the loop is blocked. Ends of the same few milliseconds share one script call.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from pydantic import ValidationError

from ..config import MAX_CLAIM
from ..errors import BodyUnreadable, ServerError, StreamdqError
from ..keys import ShardKeys
from ..link.connection import Link
from ..link.session import Op, arun, begin, run
from ..metrics import declared
from ..operations.attempts.claimed import ClaimedJob
from ..operations.attempts.ends import (
    AttemptResult,
    DeadReason,
    End,
    can_be_sent,
    end_of_failure,
    ends_together,
    hide,
    send_ends,
    tell_calls,
    too_late,
    unreadable,
)
from ..operations.attempts.error_text import is_a, text_of, why_invalid
from ..process.logs import log, place_of, users_calls, way, what, where, where_called
from ..process.loop import cancel_and_wait
from ..store.jobs.results import not_kept
from ..store.replies import Refused
from ..store.scripts import Scripts
from ..times.durations import show_ms
from .member import Member
from .running_job import end_attempt

_BACKOFF_S = 0.2
_GATHER_S = 0.001  # the longest that the first end of a batch waits for others
_MOST_BEGUN = 16  # calls whose replies are awaited at once: Redis stands still
_NEVER = float("inf")
_COMPLAIN_S = 10.0  # between warnings of bodies that can't be read
PASSED = "TimeoutError: TTR "
"""How the error of an attempt begins whose TTR has passed."""

_DONE = AttemptResult.DONE  # each look into the class of an Enum takes as long as a call
_Key = tuple[ShardKeys, AttemptResult, str]  # shard, outcome, generation of the group


class Ends:
    """Decides how an attempt ends, and has that sent."""

    def __init__(self, member: Member, sender: EndSender, clock: Clock, *, show_errors: bool = True) -> None:
        """``show_errors``: log and keep the messages and tracebacks of exceptions."""
        self._member = member
        self._sender = sender
        self.clock = clock
        self._show_errors = show_errors
        self._lock = threading.Lock()
        self._complain_at = 0.0
        self.is_draining = False  # an attempt that is cancelled now goes back
        self._serving: tuple[asyncio.Task[Any], int] | None = None  # the worker's task, and how often it was cancelled

    def serve_in(self, task: asyncio.Task[Any] | None) -> None:
        """The worker's task: when it is cancelled, the worker will drain."""
        self._serving = (task, task.cancelling()) if task is not None else None

    def is_stopped(self) -> bool:
        """Whether the worker drains, or will: ``asyncio.run`` cancels the worker and its attempts at once, and these
        may end first.
        """
        if self.is_draining or self._serving is None:
            return self.is_draining
        task, before = self._serving
        return task.cancelling() > before

    def end(self, held: ClaimedJob, end: End, took_s: float = 0.0) -> None:
        """Unless it has ended before."""
        if self._is_first(held, took_s):
            self._sender.put(end)

    def end_beside(self, held: ClaimedJob, end: End, took_s: float) -> bool:
        """As ``end``, for another thread than the loop's; whether it had not ended before."""
        first = self._is_first(held, took_s)
        if first:
            self._sender.put_beside(end)
        return first

    def _is_first(self, held: ClaimedJob, took_s: float) -> bool:
        with self._lock:
            if held.ended:
                return False
            held.ended, held.took_s = True, took_s
        end_attempt(held)
        return True

    def release(self, held: ClaimedJob) -> None:
        """The job goes back, uncounted."""
        self.end(held, End(held, AttemptResult.RELEASED))

    def returned(self, held: ClaimedJob, error: BaseException | None) -> End:
        """How it ends when the handler has returned, or raised this."""
        return End(held, _DONE) if error is None else self.raised(held, error)

    def result_refused(self, held: ClaimedJob, why: str) -> bytes:
        """What is kept of a result that can't be: an error, as much of it as may be shown."""
        if self._show_errors and not held.job.is_hidden:
            log.warning("result not kept", error=why, **self._member.naming(held.job))
            return not_kept(why)
        kind = why.partition(":")[0]
        log.warning("result not kept", error=kind, **self._member.naming(held.job))
        return not_kept(f"{kind}: its message is not kept")

    def raised(self, held: ClaimedJob, error: BaseException) -> End:
        """How it ends when the handler has raised this, or was cancelled."""
        cancelled = is_a(error, asyncio.CancelledError)  # by the watchdog or by the drain; `late` tells which
        if cancelled and self._goes_back(held):
            return End(held, AttemptResult.RELEASED)
        naming = self._member.naming(held.job)
        log.debug("attempt failed", error=text_of(error).partition(":")[0], way=way(error), **naming)
        end = end_of_failure(held, _passed(held) if cancelled else error, self._member.retry_of(held))
        end.at = _place(held, error, cancelled=cancelled)
        if self._show_errors:
            tell_calls(end, error)
            end.cause = None if held.late or held.job.is_hidden else error
        else:
            hide(end, own=cancelled)
        return end

    def _goes_back(self, held: ClaimedJob) -> bool:
        """Whether its job does, after a handler that was cancelled. An aborted one is cancelled by that."""
        return held.lost or held.aborted or (self.is_stopped() and not held.late)

    def too_late(self, held: ClaimedJob) -> End:
        """How it ends when it came too late to start; one that was stopped before goes back."""
        if self.is_stopped():
            held.started_ms = 0
            return End(held, AttemptResult.RELEASED)
        return too_late(held, self._member.retry_of(held), self.clock.now_ms())

    def refused(self, held: ClaimedJob, error: BaseException) -> End:
        """How it ends when its body does not get as far as the handler."""
        if is_a(error, BodyUnreadable):
            self._complain(held, error)
            return unreadable(held, error)
        if is_a(error, ValidationError):
            hidden = not self._show_errors
            why = why_invalid(error, hidden=held.job.is_hidden or hidden)
            return End(held, AttemptResult.DEAD, why, reason=DeadReason.INVALID, hidden=hidden)
        return self.raised(held, error)  # by the user's own validator or upcast function

    def _complain(self, held: ClaimedJob, error: BodyUnreadable) -> None:
        now = time.monotonic()
        if now >= self._complain_at:  # it may be so for every job, again and again
            self._complain_at = now + _COMPLAIN_S
            log.warning("a body can't be read here", why=error.why, **self._member.naming(held.job))


def _passed(held: ClaimedJob) -> str:
    """The error of an attempt that was cancelled. If it is not late, the handler awaited something that was cancelled.
    If its job were handed back, it would run again at once, forever; so this counts as a failure.
    """
    if not held.late:
        return "CancelledError: the handler cancelled itself"
    return f"{PASSED}{show_ms(held.touch_ms or held.ttr_ms)} passed"


def _place(held: ClaimedJob, error: BaseException, *, cancelled: bool) -> str:
    """Where the code failed."""
    if not held.late:
        return where(error)
    if cancelled and not users_calls(way(error)):  # a thread, or a coroutine that goes on
        return place_of(users_calls(held.was_in)) or where(error)
    held.was_in = ()  # the exception tells more
    return where_called(error)


class Clock(Protocol):
    def now_ms(self) -> int:
        """Redis's time."""


class Confirmed(Protocol):
    """Hears of ends that Redis has received (reports.py)."""

    def confirmed(self, ends: Sequence[End], refused: Refused) -> None:
        """``ends``: of one topic; their outcome is the same, but ABORTED for those that were aborted."""


class EndSender:
    """Collects the ends of attempts and sends them. If a call fails, its ends are kept and sent again; none is
    dropped.

    What was not sent when its process is killed is done again. So an end that waits for more than a millisecond is sent
    at once, whatever calls are under way and however many attempts are about to end in this iteration of the loop.
    While the loop is blocked, the thread of the heartbeats (heartbeats.py) sends what waits; the one that takes an end
    sends it.
    """

    def __init__(self, member: Member, reports: Confirmed) -> None:
        self._member = member
        self._link = member.link
        self._reports = reports
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # for `_waiting` and `size`
        self._waiting: dict[_Key, list[End]] = {}
        self.failing: set[ShardKeys] = set()
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._begun: set[asyncio.Task[Refused]] = set()
        self._since = _NEVER  # when the first end came that was not sent
        self._gauge = declared.UNSENT.labels(member.namespace, member.group)
        self._gauge.set(0)
        self.size = 0  # what Redis has not confirmed

    def put(self, end: End) -> None:
        self._add(end)
        self._filled.set()
        now = time.monotonic()
        if self._since == _NEVER:
            self._since = now
        elif now - self._since >= _GATHER_S:
            self._since = now
            self._gauge.set(self.size)
            if len(self._begun) < _MOST_BEGUN and not self._link.is_cluster:
                self._begin_all()

    def _add(self, end: End) -> None:
        held = end.held
        with self._lock:
            self._waiting.setdefault((held.shard, end.outcome, held.generation), []).append(end)
            self.size += 1

    def _take(self, key: _Key) -> list[End]:
        """Ends to be sent in one call, and by nobody else; none if none waits."""
        with self._lock:
            waiting = self._waiting.get(key)
            if not waiting:
                self._waiting.pop(key, None)
                return []
            batch = ends_together(waiting, self._groups(key[0].topic))
            del waiting[: len(batch)]
            return batch

    def _put_back(self, key: _Key, batch: list[End]) -> None:
        with self._lock:
            self._waiting.setdefault(key, [])[:0] = batch

    def _begin_all(self) -> None:
        """Sends the ends that wait now. What can't be sent so is left to ``run``."""
        for key in list(self._waiting):
            shard, _, generation = key
            batch: list[End] = []
            while key in self._waiting:
                try:
                    if not (batch := self._take(key)):
                        break
                    rest = begin(self._link, self._call(self._member.scripts, shard, batch))
                except Exception as error:  # as a handler has changed its Job
                    log.debug("ends not sent at once", error=what(error), generation=generation)
                    rest = None
                if rest is None:
                    self._put_back(key, batch)
                    return
                task = asyncio.create_task(rest)
                self._begun.add(task)
                task.add_done_callback(partial(self._answered, key, batch))
        self._since = _NEVER

    def _answered(self, key: _Key, batch: list[End], task: asyncio.Task[Refused]) -> None:
        """A call that was begun has ended. If it failed, ``run`` sends its ends again, and says what is wrong."""
        self._begun.discard(task)
        if task.cancelled() or task.exception() is not None:
            self._put_back(key, batch)
            self._filled.set()
            return
        self._are_confirmed(batch, task.result())

    def _are_confirmed(self, batch: list[End], refused: Refused) -> None:
        with self._lock:
            self.size -= len(batch)
        self._gauge.set(self.size)
        self._reports.confirmed(batch, refused)
        if self.size == 0:
            self._empty.set()

    # -- in another thread, while the event loop is blocked

    def put_beside(self, end: End) -> None:
        """As ``put``, for another thread."""
        self._add(end)
        self._loop.call_soon_threadsafe(self._filled.set)

    def send_beside(self, link: Link, scripts: Scripts, until: float) -> Iterable[Exception | None]:
        """Sends what waits, by the other thread's ``link`` and ``scripts``; no call begins after ``until`` on the
        monotonic clock. For each call, what it raised: its ends wait again, and others are not held up, as these may go
        to another node. The loop hears of the replies when it is back.
        """
        keys = list(self._waiting)
        random.shuffle(keys)  # a node that does not answer must not take all of the time each time
        for key in keys:
            error: Exception | None = None
            while error is None and time.monotonic() < until:
                batch: list[End] = []
                try:
                    if not (batch := self._take(key)):
                        break
                    refused = run(link, self._call(scripts, key[0], batch))
                except Exception as raised:
                    self._put_back(key, batch)
                    if not isinstance(raised, StreamdqError) and self._give_up_unsendable(key):
                        continue
                    error = raised
                    self._loop.call_soon_threadsafe(self._filled.set)
                else:
                    self._loop.call_soon_threadsafe(self._are_confirmed, batch, refused)
                yield error

    # -- in the loop

    @property
    def unsent(self) -> int:
        """How many ends wait, not counting those of ``failing`` shards: no jobs are claimed from these anyway."""
        if not self.failing:
            return self.size
        return sum(len(ends) for (shard, *_), ends in list(self._waiting.items()) if shard not in self.failing)

    async def run(self) -> None:
        """Sends the collected ends as soon as the previous call has returned, so load makes the batches larger. On a
        Cluster each shard has its own calls, as only some nodes may be reachable.
        """
        sending: dict[ShardKeys, asyncio.Task[None]] = {}
        if self._waiting:  # this loop has failed, and runs again
            self._filled.set()
        try:
            while True:
                await self._filled.wait()
                await self._gather()
                if not self._link.is_cluster:
                    await self._send_all(list(self._waiting))
                else:
                    self._filled.clear()
                    await self._send_beside(sending)
                if not self._waiting:
                    self._filled.clear()
                    if self.size == 0:
                        self._empty.set()
        finally:
            await cancel_and_wait([*sending.values(), *self._begun])
            self._link.drop_begun()

    async def _gather(self) -> None:
        """Waits for as long as the next iterations of the loop bring more ends, up to a whole batch: under load, the
        attempts that are about to start end at once, and a call costs as much as a few of them.
        """
        until, before = time.monotonic() + _GATHER_S, 0
        while before < self.size < MAX_CLAIM and time.monotonic() < until:
            before = self.size
            await asyncio.sleep(0)  # what ends now makes room
            await asyncio.sleep(0)  # for what starts now

    async def _send_beside(self, sending: dict[ShardKeys, asyncio.Task[None]]) -> None:
        """Starts one task per shard, then waits until there is more to send or a task is done."""
        keys_now = list(self._waiting)
        for shard in {key[0] for key in keys_now} - sending.keys():
            keys = [key for key in keys_now if key[0] == shard]
            sending[shard] = asyncio.create_task(self._send_all(keys))
        filled = asyncio.create_task(self._filled.wait())
        try:
            await asyncio.wait((filled, *sending.values()), return_when=asyncio.FIRST_COMPLETED)
        finally:
            filled.cancel()
        for shard in [shard for shard, task in sending.items() if task.done()]:
            sending.pop(shard).result()
        if self._waiting:
            self._filled.set()

    async def _send_all(self, keys: list[_Key]) -> None:
        failed: ServerError | None = None
        for key in keys:
            try:
                await self._send(key)
            except ServerError as error:  # concerns this shard or outcome; the others are still sent
                failed = error
                if self._link.is_cluster:
                    self.failing.add(key[0])
            else:
                self.failing.discard(key[0])
        if failed is not None:
            log.warning("outcomes not sent yet", waiting=self.size, error=str(failed))
            await asyncio.sleep(_BACKOFF_S)

    async def _send(self, key: _Key) -> None:
        while key in self._waiting:
            batch: list[End] = []
            self._since = _NEVER
            self._gauge.set(self.size)
            try:
                if not (batch := self._take(key)):
                    return
                refused = await arun(self._link, self._call(self._member.scripts, key[0], batch))
            except BaseException as error:
                self._put_back(key, batch)
                if not isinstance(error, Exception) or isinstance(error, StreamdqError):
                    raise
                if not self._give_up_unsendable(key):
                    raise
                continue
            self._are_confirmed(batch, refused)

    def _give_up_unsendable(self, key: _Key) -> bool:
        """Drops ends that can't be sent, which would keep back all others; their jobs are taken over when their TTR
        passes. Returns whether there were any.
        """
        with self._lock:
            waiting = self._waiting.get(key, [])
            left = [end for end in waiting if can_be_sent(end.held)]
            dropped = len(waiting) - len(left)
            waiting[:] = left
            self.size -= dropped
        if dropped:
            topic = key[0].topic
            log.error("outcomes not sent: their handlers have changed the Job", topic=topic, attempts=dropped)
        return dropped > 0

    def _call(self, scripts: Scripts, shard: ShardKeys, batch: list[End]) -> Op[Refused]:
        return send_ends(scripts, shard, self._member.group, self._member.consumer, batch)

    def _groups(self, topic: str) -> int:
        settings = self._member.topics.known.get(topic)  # None: the topic was deleted
        return len(settings.groups) if settings else 1

    async def drained(self) -> None:
        """Waits until nothing is left to send."""
        while self.size > 0:
            self._empty.clear()
            await self._empty.wait()
