"""A job's way from its due time through a worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...config import MAX_CLAIM
from ...errors import GroupMissing
from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, checked
from ..assembly import keys_of
from ..calling import ScriptCalls
from ..replies import Claimed, Moved, Refused, claimed_in, moved_in, refused_in

_OTHER_ENDS = ("retry", "snoozed", "dead", "released")  # as in receipts; a receipt of a finished claim names no end


class AttemptScripts(ScriptCalls):
    def move(
        self, k: ShardKeys, groups: Sequence[str], limit: int, permitted: bool = False, prioritized: bool = False
    ) -> Op[Moved]:
        """``permitted``: ``permit`` has granted the limit; in a topic with a rate, nothing moves without that.
        ``prioritized``: the topic has priorities.
        """
        name = "move_ranked" if prioritized else "move"
        reply = yield from self._run(
            name,
            keys_of(name, k, groups=groups),
            (self._now(), limit, ",".join(groups), int(permitted)),
        )
        return moved_in(reply)

    def permit(self, first: ShardKeys, wanted: int) -> Op[tuple[int, int, int]]:
        """How many jobs of a topic with a rate may become ready, now_ms, and when more may. ``first``: its shard 0."""
        granted, now_ms, free_ms = yield from self._run("permit", keys_of("permit", first), (self._now(), wanted))
        return granted, now_ms, free_ms

    def claim(
        self,
        k: ShardKeys,
        group: str,
        consumer: str,
        count: int,
        ttr_ms: int,
        read: Sequence[bytes | str] = (),
        at_once: int = MAX_CLAIM,
        prioritized: bool = False,
    ) -> Op[Claimed]:
        """At most ``count`` jobs, of which the caller starts the first ``at_once`` at once. ``read``: the Entries of a
        blocking read; those beyond ``count`` are handed back. ``prioritized``: the topic has priorities.
        """
        name = "claim_ranked" if prioritized else "claim"
        args = (self._now(), group, consumer, count, ttr_ms, self._history, at_once, *read)
        reply = yield from self._run(name, keys_of(name, k, group), args)
        claimed = claimed_in(reply)
        if claimed is None:
            raise GroupMissing(f"topic {k.topic!r} has no group {group!r}")
        return claimed

    def _outcome(
        self,
        name: str,
        k: ShardKeys,
        group: str,
        generation: str,
        consumer: str,
        claims: Iterable[Any],
        receipts: bool,
        limits: Sequence[Any] = (),
    ) -> Op[Refused]:
        """``consumer``: who claimed them. ``receipts``: each claim leaves a receipt. ``limits``: more arguments."""
        keys = keys_of(name, k, group, given=receipts)
        args = (self._now(), group, self._history, generation, consumer, *limits, *claims)
        reply = yield from self._run(name, keys, args)
        return refused_in(reply)

    def finish(
        self, k: ShardKeys, group: str, generation: str, consumer: str, claims: list[Any], receipts: bool = False
    ) -> Op[Refused]:
        """``claims``: main, entry, id, history row, for each in turn; then, if there are results, that of each, and the
        text ``results``.
        """
        return self._outcome("finish", k, group, generation, consumer, claims, receipts)

    def ended(self, k: ShardKeys, group: str, main: bytes, entry: bytes) -> Op[str | None]:
        """How this claim was recently ended: done, retry, snoozed, dead or released; None if it has no receipt."""
        claim = b"%b|%b|%b" % (group.encode(), main, entry)
        known = {"done": claim} | {how: b"%b|%b" % (claim, how.encode()) for how in _OTHER_ENDS}
        replies = yield from self._session.call(
            [Command(k.receipts, ("ZSCORE", k.receipts, v)) for v in known.values()]
        )
        return next((how for how, reply in zip(known, replies, strict=True) if checked(reply) is not None), None)

    def retry(
        self, k: ShardKeys, group: str, generation: str, consumer: str, claims: list[Any], receipts: bool = False
    ) -> Op[Refused]:
        """``claims``: main, entry, id, history row, delay_ms, steps to advance (-1: snoozed), error, failure, for
        each.
        """
        return self._outcome("retry", k, group, generation, consumer, claims, receipts, self._failures)

    def bury(
        self, k: ShardKeys, group: str, generation: str, consumer: str, claims: list[Any], receipts: bool = False
    ) -> Op[Refused]:
        """``claims``: main, entry, id, history row, reason, error, failure, for each."""
        return self._outcome("bury", k, group, generation, consumer, claims, receipts, self._failures)

    def release(
        self, k: ShardKeys, group: str, generation: str, consumer: str, claims: list[Any], receipts: bool = False
    ) -> Op[Refused]:
        """``claims``: main, entry, id, history row, for each in turn."""
        return self._outcome("release", k, group, generation, consumer, claims, receipts)

    def report(self, k: ShardKeys, group: str, generation: str, consumer: str, claims: list[Any]) -> Op[Refused]:
        """``claims``: main, entry, id, report, for each."""
        args = (self._now(), group, generation, consumer, *claims)
        return refused_in((yield from self._run("report", keys_of("report", k), args)))

    def touch(
        self, k: ShardKeys, group: str, generation: str, consumer: str, ttr_ms: int, claims: list[Any]
    ) -> Op[Refused]:
        """``claims``: main, entry, id, ttr_ms, for each."""
        reply = yield from self._run(
            "touch",
            keys_of("touch", k, group),
            (self._now(), group, ttr_ms, generation, consumer, *claims),
        )
        return refused_in(reply)
