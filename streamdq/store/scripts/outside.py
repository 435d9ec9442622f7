"""What is outside of a topic: the mover's lease, the secret of claims; what other stores ask for: dumps, outboxes."""

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
    def lease(self, name: str, lease_ms: int, place: float) -> Op[tuple[bool, int, int]]:
        """Takes the mover's lease if it is free. Returns whether ``name`` holds it now, in how many ms to look again if
        not, and how many processes there are. ``place``: from 0 to 1, where among the others' turns a new standby
        begins.
        """
        keys = keys_of("lease", self._session.keys)
        held, wait_ms, processes = yield from self._run("lease", keys, (name, lease_ms, place))
        return held == 1, wait_ms, processes

    def drop_lease(self, name: str) -> Op[bool]:
        """Frees the mover's lease if ``name`` holds it; returns whether it did."""
        reply = yield from self._run("drop_lease", keys_of("drop_lease", self._session.keys), (name,))
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
