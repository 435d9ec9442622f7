"""How far handlers say they are, on its way to Redis: once a second for all jobs together, only the latest of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context

from ..keys import ShardKeys
from ..link.session import arun
from ..operations.attempts.claimed import ClaimedJob
from ..operations.attempts.ends import can_be_sent
from ..process.logs import log, what
from .member import Member

_EACH_S = 1.0
_MOST = 200  # in one call


class ProgressSender:
    """A report that can't be sent is dropped: the handler's next one follows. ``aborted``: is called with a job whose
    attempt was aborted, as the reply says so.
    """

    def __init__(self, member: Member, aborted: Callable[[ClaimedJob], None]) -> None:
        self._member = member
        self._aborted = aborted
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._waiting: dict[ClaimedJob, None] = {}
        self._sending: asyncio.Task[None] | None = None

    def put(self, held: ClaimedJob, report: str) -> None:
        """Any thread may call it."""
        was_sent = held.report is None
        held.report = report
        if was_sent:  # otherwise the latest report goes with the call that is to come
            self._loop.call_soon_threadsafe(self._put, held, context=self._context)

    def _put(self, held: ClaimedJob) -> None:
        self._waiting[held] = None
        if self._sending is None:
            self._sending = self._loop.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                calls: dict[tuple[ShardKeys, str], list[ClaimedJob]] = {}
                for held in self._waiting:
                    calls.setdefault((held.shard, held.generation), []).append(held)
                self._waiting.clear()
                for (shard, generation), waiting in calls.items():
                    for i in range(0, len(waiting), _MOST):
                        await self._call(shard, generation, waiting[i : i + _MOST])
                await asyncio.sleep(_EACH_S)
        finally:
            self._sending = None

    async def _call(self, shard: ShardKeys, generation: str, waiting: list[ClaimedJob]) -> None:
        args: list[bytes | str] = []
        sent: list[ClaimedJob] = []
        for held in waiting:
            report, held.report = held.report, None
            if report is not None and not held.ended and can_be_sent(held):
                sent.append(held)
                args += [held.main, held.entry, held.job.id, report]
        if not sent:
            return
        member = self._member
        try:
            refused = await arun(
                member.link, member.scripts.report(shard, member.group, generation, member.consumer, args)
            )
        except Exception as error:
            log.debug("progress not sent", topic=shard.topic, jobs=len(sent), error=what(error))
            return
        for i in refused.aborted:
            self._aborted(sent[i])

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
