"""Jobs that wait: put in, looked at, moved, cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...config import TopicSettings
from ...keys import ShardKeys
from ...link.session import Op
from ..assembly import keys_of
from ..batches import MAX_BYTES, REPLACED_BYTES
from ..calling import KeysAndArgs, ScriptCalls, Spread, has_not_begun
from ..replies import AbortReply, Enqueued, FoundJob, abort_reply_in, enqueued_in, found_in


class JobScripts(ScriptCalls):
    def enqueue(self, k: ShardKeys, spread: Spread, jobs: Sequence[Any], has_keys: bool = True) -> Op[Enqueued]:
        """``spread``: as ``TopicSettings.named``. ``jobs``: id, when, rest of the record, for each. ``has_keys``: a key
        is among them.
        """
        keys, args = self._enqueue_call(k, spread, jobs, has_keys)
        return self._run("enqueue", keys, args, read=enqueued_in)

    def enqueue_each(self, calls: Sequence[tuple[ShardKeys, Spread, Sequence[Any], bool]]) -> Op[list[Enqueued]]:
        """The replies of several calls of ``enqueue``, in their order. They are sent together, which a durable call
        can't be: what confirms it would follow the last one only.
        """
        found: list[Enqueued] = []
        yield from self.check_rights((k.jobs for k, *_ in calls))
        commands = [self._commands("enqueue", [self._enqueue_call(*call)]) for call in calls]
        replies = yield from self._session.call([command for (command,) in commands])
        for call, reply in zip(calls, replies, strict=True):
            # As its node does not know the script yet.
            again = has_not_begun(reply)
            found.append((yield from self.enqueue(*call)) if again else enqueued_in(self._checked(reply)))
        return found

    def _enqueue_call(self, k: ShardKeys, spread: Spread, jobs: Sequence[Any], has_keys: bool) -> KeysAndArgs:
        return keys_of("enqueue", k, given=has_keys), (self._now(), spread, MAX_BYTES, *jobs)

    def replace(self, k: ShardKeys, spread: Spread, jobs: list[Any]) -> Op[Enqueued]:
        reply = yield from self._run(
            "replace",
            keys_of("replace", k),
            (self._now(), spread, self._history, REPLACED_BYTES, *jobs),
        )
        return enqueued_in(reply)

    def enqueue_unique(
        self, k: ShardKeys, spread: Spread, how: str, jobs: list[Any], former: bool = False
    ) -> Op[Enqueued]:
        """``how``: keep, replace or postpone the job that has an id. ``jobs``: id, when, rest of the record, rule.
        ``former``: this is a previous shard of the ids; those of which nothing is here are ``taken`` by an empty
        record.
        """
        keys = keys_of("enqueue_unique", k)
        args = (self._now(), spread, self._history, REPLACED_BYTES, how, "former" if former else "", *jobs)
        return enqueued_in((yield from self._run("enqueue_unique", keys, args)))

    def get(self, k: ShardKeys, id: str, topic: TopicSettings | None = None) -> Op[FoundJob | None]:
        """None: the ``topic``'s settings, by which the shard was chosen, are out of date."""
        reply = yield from self._run("get", *self._getting(k, id, topic.layout.text if topic else ""))
        return None if reply is None else found_in(reply)

    def get_each(self, k: ShardKeys, ids: Sequence[str]) -> Op[list[FoundJob]]:
        """Those of a shard, in one call."""
        return [
            found_in(reply)
            for reply in (yield from self._run_each("get", [self._getting(k, id, "") for id in ids], True))
        ]

    @staticmethod
    def _getting(k: ShardKeys, id: str, spread: str) -> KeysAndArgs:
        return keys_of("get", k), (id, spread)

    def cancel(self, k: ShardKeys, topic: TopicSettings, id: str) -> Op[int]:
        """1: cancelled; 0: no such job, or it is dead; -1: running; or OUTDATED."""
        reply: int = yield from self._run("cancel", *self._cancelling(k, topic, id), repeatable=False)
        return reply

    def cancel_each(self, k: ShardKeys, topic: TopicSettings, shown: Sequence[tuple[str, str]]) -> Op[list[int]]:
        """``shown``: ids and deliveries. For each like cancel; or -3: it is another delivery by now; -4: it is gone."""
        return (yield from self._run_each("cancel", [self._cancelling(k, topic, *one) for one in shown]))

    def _cancelling(self, k: ShardKeys, topic: TopicSettings, id: str, shown: str | None = None) -> KeysAndArgs:
        groups = topic.group_names
        keys = keys_of("cancel", k, groups=groups)
        return keys, (self._now(), id, self._history, topic.layout.text, ",".join(groups), *self._as(shown))

    def abort(self, k: ShardKeys, topic: TopicSettings, id: str, group: str = "") -> Op[AbortReply]:
        """``group``: '' for all."""
        return abort_reply_in((yield from self._run("abort", *self._aborting(k, topic, id, group), repeatable=False)))

    def abort_each(self, k: ShardKeys, topic: TopicSettings, jobs: Sequence[tuple[str, str]]) -> Op[list[AbortReply]]:
        """``jobs``: ids, each with the job's nonce; another job with the id is left alone."""
        calls: list[KeysAndArgs] = []
        for id, nonce in jobs:
            keys, args = self._aborting(k, topic, id, "")
            calls.append((keys, (*args, *(() if self._cover else ("",)), nonce)))
        return [abort_reply_in(reply) for reply in (yield from self._run_each("abort", calls))]

    def _aborting(self, k: ShardKeys, topic: TopicSettings, id: str, group: str) -> KeysAndArgs:
        groups = topic.group_names
        keys = keys_of("abort", k, groups=groups)
        return keys, (self._now(), id, self._history, topic.layout.text, ",".join(groups), group, *self._cover)

    def reschedule(self, k: ShardKeys, topic: TopicSettings, id: str, when: str) -> Op[int]:
        """1: rescheduled; 0: no such job, or it is dead; -1: running; or OUTDATED."""
        reply: int = yield from self._run("reschedule", *self._rescheduling(k, topic, when, id), repeatable=False)
        return reply

    def reschedule_each(
        self, k: ShardKeys, topic: TopicSettings, when: str, shown: Sequence[tuple[str, str]]
    ) -> Op[list[int]]:
        """As cancel_each."""
        return (yield from self._run_each("reschedule", [self._rescheduling(k, topic, when, *one) for one in shown]))

    def _rescheduling(
        self, k: ShardKeys, topic: TopicSettings, when: str, id: str, shown: str | None = None
    ) -> KeysAndArgs:
        keys = keys_of("reschedule", k)
        return keys, (self._now(), id, when, topic.layout.text, *self._as(shown))

    def _as(self, shown: str | None) -> tuple[str, ...]:
        """The last arguments of cancel and reschedule."""
        return self._cover if shown is None else (*(self._cover or ("",)), shown)
