"""Dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...keys import ShardKeys
from ...link.session import Op
from ..assembly import keys_of
from ..calling import KeysAndArgs, ScriptCalls, Spread


def _burial(id: str, delivery: str) -> str:
    """A dead letter as kick and purge take it, if only that delivery is meant."""
    return f"{id}\x1f{delivery}"


class DeadLetterScripts(ScriptCalls):
    def kick(self, k: ShardKeys, group: str, limit: int, ids: Sequence[str]) -> Op[int]:
        reply: int = yield from self._run("kick", *self._kicking(k, group, limit, ids), repeatable=False)
        return reply

    def kick_each(self, k: ShardKeys, group: str, jobs: Sequence[tuple[str, str]]) -> Op[list[int]]:
        """``jobs``: id and delivery. For each 1, or 0 if it is no longer that dead letter."""
        return (yield from self._run_each("kick", [self._kicking(k, group, 1, [_burial(*one)]) for one in jobs]))

    def _kicking(self, k: ShardKeys, group: str, limit: int, ids: Sequence[str]) -> KeysAndArgs:
        keys = keys_of("kick", k, group)
        return keys, (self._now(), group, self._history, limit, *ids)

    def purge(self, k: ShardKeys, group: str, limit: int, ids: Sequence[str]) -> Op[int]:
        reply: int = yield from self._run("purge", *self._purging(k, group, limit, ids), repeatable=False)
        return reply

    def purge_each(self, k: ShardKeys, group: str, jobs: Sequence[tuple[str, str]]) -> Op[list[int]]:
        """As kick_each."""
        return (yield from self._run_each("purge", [self._purging(k, group, 1, [_burial(*one)]) for one in jobs]))

    def _purging(self, k: ShardKeys, group: str, limit: int, ids: Sequence[str]) -> KeysAndArgs:
        keys = keys_of("purge", k, group)
        return keys, (self._now(), group, limit, *ids)

    def trim_dead(self, k: ShardKeys, group: str, limit: int) -> Op[int]:
        """Removes dead letters that are older than the topic keeps them. As many as the limit: there may be more."""
        keys = keys_of("trim_dead", k, group)
        reply: int = yield from self._run("trim_dead", keys, (self._now(), group, limit), repeatable=False)
        return reply

    def dead_letters(
        self, k: ShardKeys, group: str, until_ms: int, offset: int, limit: int, max_bytes: int
    ) -> Op[tuple[int, list[tuple[bytes, bytes, bytes, bytes]]]]:
        """How many dead letters were looked at, and (id, buried_ms, record, progress) of each."""
        keys = keys_of("dead_letters", k, group)
        looked, *flat = yield from self._run("dead_letters", keys, (group, until_ms, offset, limit, max_bytes))
        return looked, list(zip(*[iter(flat)] * 4, strict=True))

    def archive(self, k: ShardKeys, group: str, jobs: Sequence[Any]) -> Op[list[bool]]:
        """``jobs``: id, receipt, buried_ms, sequence, attempt, for each. Returns which of them are gone from
        Redis.
        """
        keys = keys_of("archive", k, group)
        reply = yield from self._run("archive", keys, (self._now(), group, *jobs))
        return [code == 1 for code in reply]

    def restore(
        self, k: ShardKeys, group: str, spread: Spread, jobs: Sequence[Any], former: bool = False
    ) -> Op[list[int] | None]:
        """``jobs``: id, receipt, attempt, due_ms, rest of the record, for each. For each: 1: it is ready, 0: its id is
        live, NOT_HERE: this is a previous shard of the id, and has nothing of it (only if ``former``). None: the
        caller's settings are out of date and nothing was written.
        """
        keys = keys_of("restore", k, group)
        args = (self._now(), group, self._history, spread, "former" if former else "", *jobs)
        status, *codes = yield from self._run("restore", keys, args)
        return codes if status == 1 else None
