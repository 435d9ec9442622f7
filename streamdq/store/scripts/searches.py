"""Reads of many jobs: search, statistics, audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import ResponseError

from ...errors import ServerUnavailable
from ...keys import ShardKeys
from ...link.session import Op, returned, together
from ..assembly import keys_of
from ..calling import ScriptCalls
from ..find.wanted import Wanted
from ..jobs.members import id_in
from ..replies import (
    AuditedJobs,
    FoundInOrder,
    FoundPage,
    ShardStats,
    audited_jobs_in,
    found_in_order_in,
    found_page_in,
    in_streams_of,
    stats_in,
)

STATS_STEP = 50  # a millisecond of Redis's time
_BRIEF_S = 2.0


def _take_step(
    part: list[tuple[ShardKeys, Sequence[str]]],
    found: Sequence[ShardStats],
    take: Callable[[ShardKeys, ShardStats], None],
) -> None:
    for (k, _), stats in zip(part[: len(found)], found, strict=True):
        take(k, stats)
    del part[: len(found)]


class SearchScripts(ScriptCalls):
    def find_jobs(self, k: ShardKeys, cursor: bytes, limit: int, wanted: Wanted) -> Op[FoundPage]:
        keys = keys_of("find_jobs", k)
        return found_page_in((yield from self._run("find_jobs", keys, (cursor, limit, *wanted.args()))))

    def find_in_order(
        self, k: ShardKeys, index: str, after: tuple[Any, bytes], until: Any, limit: int, wanted: Wanted
    ) -> Op[FoundInOrder]:
        """``index``: the bucket, a group's dead letters, or the blocked jobs. ``after``: the first time in ms, and the
        member at which the previous page ended, or b"".
        """
        keys = keys_of("find_in_order", k, call=[index])
        return found_in_order_in((yield from self._run("find_in_order", keys, (*after, until, limit, *wanted.args()))))

    def stats(self, k: ShardKeys, groups: Sequence[str]) -> Op[ShardStats]:
        return stats_in((yield from self._run("stats", keys_of("stats", k, groups=groups), (self._now(),))), groups)

    def stats_of(
        self, shards: Sequence[tuple[ShardKeys, Sequence[str]]], timeout_s: float | None = None
    ) -> Op[list[ShardStats]]:
        """The stats of several shards with their groups, in one call. ``timeout_s``: the call is sent only once, and
        takes no longer.
        """
        commands = []
        for k, groups in shards:
            commands += self._commands("stats", [(keys_of("stats", k, groups=groups), (self._now(),))])
        replies = yield from self._session.call(commands, timeout_s=timeout_s)
        found = []
        for (k, groups), reply in zip(shards, replies, strict=True):
            if isinstance(reply, ResponseError):  # such as of a server that does not know the script yet
                found.append((yield from self.stats(k, groups)))
            else:
                found.append(stats_in(reply, groups))
        return found

    def stats_reached(
        self, shards: Sequence[tuple[ShardKeys, Sequence[str]]], take: Callable[[ShardKeys, ShardStats], None]
    ) -> Op[set[ShardKeys]]:
        """Like stats_of, for any number of shards: ``take`` gets each one's stats as they come in, and nobody keeps
        them. Asks a Cluster's nodes at the same time. Returns the shards whose node does not answer, if another does.
        """
        nodes: dict[str, list[tuple[ShardKeys, Sequence[str]]]] = {}
        for shard in shards:
            nodes.setdefault(self._session.last_node_of(shard[0].jobs), []).append(shard)
        # Other nodes' shards must not wait long for a lost node.
        brief_s = min(_BRIEF_S, self._session.settings.call_timeout_s) if self._session.is_cluster else None
        lost: set[ShardKeys] = set()
        left = list(nodes.values())
        while left:
            results = yield from together([self.stats_of(part[:STATS_STEP], brief_s) for part in left])
            for part, result in zip(left, results, strict=True):
                if isinstance(result, ServerUnavailable):
                    lost |= {k for k, _ in part}
                    part.clear()
                    if len(lost) == len(shards):
                        raise result
                else:
                    _take_step(part, returned(result), take)
            left = [part for part in left if part]
        return lost

    def audit_jobs(self, k: ShardKeys, cursor: bytes, limit: int) -> Op[AuditedJobs]:
        keys = keys_of("audit_jobs", k)
        return audited_jobs_in((yield from self._run("audit_jobs", keys, (cursor, limit))))

    def audit_entries(
        self, k: ShardKeys, stream: str, after: str, limit: int, ids: Sequence[str]
    ) -> Op[tuple[list[tuple[str, str, bytes]], list[tuple[bytes, bytes]]]]:
        """At one moment, of these jobs those that should be in a stream, as in AuditedJobs; and the stream's entries
        after this one, with their values.
        """
        keys = keys_of("audit_entries", k, call=[stream])
        wanted, came = yield from self._run("audit_entries", keys, (after, limit, *ids))
        return in_streams_of(wanted), list(zip(came[::2], came[1::2], strict=True))

    def audit_bucket(self, k: ShardKeys, cursor: bytes, limit: int) -> Op[tuple[bytes, list[str]]]:
        """The next cursor, b"0" at the end; and the ids of waiting jobs without a record."""
        following, *ids = yield from self._run("audit_bucket", keys_of("audit_bucket", k), (cursor, limit))
        return following, [id_in(id) for id in ids]

    def audit_keys(self, k: ShardKeys, last: bytes, limit: int) -> Op[tuple[bytes, list[tuple[str, str]]]]:
        """Where the next page begins, b"" at the end; and what is wrong with keys that have limits: the reason, and the
        id of a job: "free" = it waits, though its key has a free place; "ended" = it has ended, and has a place.
        """
        keys = keys_of("audit_keys", k)
        following, *flat = yield from self._run("audit_keys", keys, (last, limit))
        names = [id_in(value) for value in flat]
        return following, list(zip(names[::2], names[1::2], strict=True))
