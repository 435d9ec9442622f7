"""Consumers that live, and what becomes of the claims of those that are gone."""

from __future__ import annotations

from collections.abc import Sequence

from ...config import TopicSettings
from ...keys import ShardKeys
from ...link.session import Op
from ..assembly import keys_of
from ..calling import ScriptCalls
from ..replies import Reclaimed, TakenOver


class ConsumerScripts(ScriptCalls):
    def heartbeat(self, consumer: str, within_s: float) -> Op[int]:
        """Redis's time, in ms."""
        reply: int = yield from self._run(
            "heartbeat", keys_of("heartbeat", self._session.keys), (self._now(), consumer), True, within_s
        )
        return reply

    def read_heartbeats(self, consumers: Sequence[str], within_s: float) -> Op[tuple[int, list[int | None]]]:
        """Redis's time, and when each consumer sent its last heartbeat, in ms."""
        keys, args = keys_of("read_heartbeats", self._session.keys), (self._now(), *consumers)
        now_ms, *heartbeats = yield from self._run("read_heartbeats", keys, args, True, within_s)
        return now_ms, [int(heartbeat) if heartbeat else None for heartbeat in heartbeats]

    def reclaim(
        self,
        k: ShardKeys,
        group: str,
        topic: TopicSettings,
        limit: int,
        cursors: tuple[bytes, bytes],
        watch_ms: int,
        missing: int = 0,
    ) -> Op[Reclaimed]:
        reply = yield from self._run(
            "reclaim",
            keys_of("reclaim", k, group),
            (self._now(), group, self._history, topic.ttr_of(group), limit, *cursors, watch_ms, missing),
        )  # fmt: skip
        return Reclaimed(*reply)

    def take_over(
        self, k: ShardKeys, group: str, topic: TopicSettings, consumer: str, silent_ms: int, limit: int, within_s: float
    ) -> Op[TakenOver]:
        reply = yield from self._run(
            "take_over",
            keys_of("take_over", k, group),
            (self._now(), group, self._history, topic.ttr_of(group), consumer, silent_ms, limit,
             topic.max_deliveries),
            within_s=within_s,
        )  # fmt: skip
        return TakenOver(*reply)

    def remove_consumer(self, k: ShardKeys, group: str, consumer: str | bytes, limit: int) -> Op[bool]:
        """Returns False if more than ``limit`` entries were pending; call it again."""
        keys = keys_of("remove_consumer", k, group)
        reply = yield from self._run("remove_consumer", keys, (self._now(), group, consumer, limit, self._history))
        return bool(reply == 1)
