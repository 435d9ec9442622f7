"""What is kept of jobs, and goes when it is erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ...config import TopicSettings
from ...keys import ShardKeys
from ...link.session import Op
from ..assembly import keys_of
from ..calling import KeysAndArgs, ScriptCalls


class ErasureScripts(ScriptCalls):
    def erase_job(
        self,
        k: ShardKeys,
        topic: TopicSettings,
        shown: Sequence[tuple[str, str]],
        entries: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> Op[list[int]]:
        """``shown``: ids and deliveries. ``entries``: those that ready streams have of an id, "GROUP|ENTRY", or
        "|ENTRY" in the shared one. For each: 1: erased; 0: a leaving group has it; -1: running; -3: it is another
        delivery by now; -4: it is gone; or OUTDATED.
        """
        return (yield from self._run_each("erase_job", [self._erasing(k, topic, *one, entries) for one in shown]))

    def _erasing(
        self, k: ShardKeys, topic: TopicSettings, id: str, shown: str, entries: Mapping[str, Sequence[str]]
    ) -> KeysAndArgs:
        groups = topic.group_names
        keys = keys_of("erase_job", k, groups=groups)
        return keys, (self._now(), id, topic.layout.text, ",".join(groups), shown, *entries.get(id, ()))

    def erase_rows(self, k: ShardKeys, entries: Sequence[str]) -> Op[tuple[int, int]]:
        """How many rows of the history were removed, and how many failures with them."""
        rows, failures = yield from self._run("erase_rows", keys_of("erase_rows", k), entries)
        return rows, failures

    def forget_ended(self, k: ShardKeys, ids: Sequence[str], *, only_count: bool) -> Op[tuple[int, int]]:
        """How many results, and how many taken ids there were of jobs that are gone."""
        args = ("" if only_count else "1", *ids)
        results, taken = yield from self._run("forget_ended", keys_of("forget_ended", k), args)
        return results, taken

    def forget_key(self, k: ShardKeys, key: str, *, only_count: bool) -> Op[int]:
        """How much was kept of the key."""
        reply: int = yield from self._run("forget_key", keys_of("forget_key", k), ("" if only_count else "1", key))
        return reply
