"""Schedules, and the jobs of their occurrences."""

from __future__ import annotations

from ...keys import ShardKeys
from ...link.session import Op
from ..assembly import keys_of
from ..calling import ScriptCalls, Spread
from ..replies import Fired, Written, fired_in


class ScheduleScripts(ScriptCalls):
    def schedule(
        self, first: ShardKeys, spread: Spread, id: str, version: int, look_ms: int | None, missed: int, record: bytes
    ) -> Op[Written]:
        """Writes a schedule in place of this version of it, 0 if there is none. ``first``: the topic's shard 0."""
        reply = yield from self._run(
            "schedule",
            keys_of("schedule", first),
            (self._now(), spread, id, version, "" if look_ms is None else look_ms, missed, record),
        )
        return Written(reply)

    def unschedule(self, first: ShardKeys, id: str) -> Op[bool | None]:
        """Whether there was such a schedule; None: the job of its next occurrence has to be taken back before."""
        keys = keys_of("unschedule", first)
        reply = yield from self._run("unschedule", keys, (self._now(), id))
        return None if reply < 0 else bool(reply)

    def retract(self, first: ShardKeys, id: str) -> Op[str]:
        """Takes back the occurrence of a schedule that is enqueued and not due yet; returns its job's id, "" if there
        is none.
        """
        keys = keys_of("retract", first)
        reply: bytes = yield from self._run("retract", keys, (self._now(), id, self._history))
        return reply.decode()

    def fire(
        self, first: ShardKeys, spread: Spread, limit: int, *, late_ms: int, again_ms: int, ahead_ms: int
    ) -> Op[Fired]:
        """Enqueues the jobs of at most ``limit`` occurrences that are due within ``ahead_ms``, none later than
        ``late_ms`` unless its plan says so. ``again_ms``: after how long to look again at what waits.
        """
        keys = keys_of("fire", first)
        args = (self._now(), spread, limit, late_ms, again_ms, ahead_ms)
        return fired_in((yield from self._run("fire", keys, args)))
