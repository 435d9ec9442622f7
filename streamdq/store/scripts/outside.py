"""What is outside of a topic: leases, the secret of claims; and what other stores ask for: dumps, outboxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...config import TopicSettings
from ...keys import ShardKeys
from ...link.session import Op
from ..assembly import keys_of
from ..batches import REPLACED_BYTES
from ..calling import ScriptCalls, Spread
from ..replies import DumpRegistration, RelayReply, registration_in, relay_reply_in


class OutsideScripts(ScriptCalls):
    def lease(self, name: str, lease_ms: int, key: str | None = None, asked: str | None = None) -> Op[tuple[bool, int]]:
        """Takes the mover's lease, or that of another ``key``, if it is free. Returns whether ``name`` holds it now,
        and for how many ms it is still held. ``asked``: the stream to which another holder listens, who has to answer
        if its lease lasts longer than ``lease_ms``.
        """
        names = self._session.keys
        keys = keys_of("lease", names, call=[key or names.mover], given=[asked] if asked else ())
        held, left_ms, _ = yield from self._run("lease", keys, (name, lease_ms))
        return held == 1, left_ms

    def drop_lease(self, name: str, key: str) -> Op[bool]:
        """Frees the lease if ``name`` holds it; returns whether it did."""
        reply = yield from self._run("drop_lease", keys_of("drop_lease", self._session.keys, call=[key]), (name,))
        return bool(reply == 1)

    def rotate_secret(self, new: str) -> Op[tuple[str, str]]:
        """The signing secrets before and after. ``new`` '': drops the previous one. A new one is refused while there is
        a previous one.
        """
        before, after = yield from self._run(
            "rotate_secret", keys_of("rotate_secret", self._session.keys), (self._now(), new)
        )
        return before.decode(), after.decode()

    def register_dump(
        self, k: ShardKeys, dump: str, mark: str = "", written: int = 0, since: str = ""
    ) -> Op[DumpRegistration]:
        """``mark`` '': unregisters the dump."""
        keys = keys_of("register_dump", k)
        return registration_in((yield from self._run("register_dump", keys, (dump, mark, written, since))))

    def trim_history(self, k: ShardKeys) -> Op[int]:
        """How many rows were removed; if any, there may be more to remove."""
        length, age_s = self._session.settings.history_length, self._session.settings.history_age_s
        reply: int = yield from self._run(
            "trim_history", keys_of("trim_history", k), (length, age_s * 1000), repeatable=False
        )
        return reply

    def relay(
        self,
        k: ShardKeys,
        settings: TopicSettings,
        outbox: str,
        epoch: int,
        jobs: Sequence[Any],
        by_key: bool = False,
        former: bool = False,
    ) -> Op[RelayReply]:
        """``settings``: as known before the rows were read. ``jobs``: id, when, rest of the record, receipt, whether it
        replaces another, for each. ``by_key``: one of them has a key. ``former``: as for
        enqueue_unique.
        """
        keys = keys_of("relay", k)
        # Not repeatable: a delay is shorter when the call comes later. The relay reads its rows again.
        topic = (settings.named(by_key=by_key), settings.version)
        args = (self._now(), *topic, self._history, REPLACED_BYTES, outbox, epoch, "former" if former else "", *jobs)
        return relay_reply_in((yield from self._run("relay", keys, args, repeatable=False)))

    def relayed(self, k: ShardKeys, spread: Spread, jobs: Sequence[Any]) -> Op[list[int] | None]:
        """``jobs``: id and receipt, for each. For each: 0: this Redis does not know it, 1: live, 2: ended. None: the
        caller's settings are out of date.
        """
        reply: list[int] | None = yield from self._run("relayed", keys_of("relayed", k), (spread, *jobs))
        return reply
