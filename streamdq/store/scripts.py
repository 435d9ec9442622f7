"""One typed method per Lua script. The scripts' headers are the contract; this module only packs and unpacks.

Methods are operations (see link/session.py): use them with ``yield from``, or pass them to ``run`` or ``arun``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from redis.exceptions import ResponseError

from ..config import MAX_CLAIM, TopicSettings
from ..errors import AuthenticationFailed, GroupMissing, ServerUnavailable, TooManyTopics
from ..keys import ShardKeys, absent_beside
from ..link.command import Behind, Command
from ..link.error_replies import Meaning, meaning_of
from ..link.session import Op, Pause, Session, checked, returned, together
from .assembly import load_script
from .batches import MAX_BYTES, REPLACED_BYTES
from .members import id_in
from .registry import settings_in
from .replies import (
    AuditedJobs,
    Claimed,
    Configured,
    DumpRegistration,
    Enqueued,
    Fired,
    FoundInOrder,
    FoundJob,
    FoundPage,
    ListedIds,
    Moved,
    Reclaimed,
    Refused,
    RelayReply,
    ShardStats,
    TakenOver,
    Written,
    audited_jobs_in,
    claimed_in,
    configured_in,
    enqueued_in,
    fired_in,
    found_in,
    found_in_order_in,
    found_page_in,
    in_streams_of,
    moved_in,
    refused_in,
    registration_in,
    relay_reply_in,
    stats_in,
)  # fmt: skip
from .rights import TRIALS, refusal
from .wanted import Wanted

_ASKING_S, _ASKING_LOOKS = 0.005, 200
_OTHER_ENDS = ("retry", "snoozed", "dead", "released")  # as in receipts; a receipt of a finished claim names no end
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


def _stats_keys(k: ShardKeys, groups: Sequence[str]) -> tuple[str, ...]:
    return (k.counts, k.bucket, k.jobs, k.settings, *map(k.dead_of, groups))


def _claim_keys(k: ShardKeys, group: str) -> tuple[str, ...]:
    return (
        k.ready, k.ready_of(group), k.jobs, k.progress, k.counts, k.settings, k.wake, k.history, k.bucket, k.taken,
        k.taken_until, *k.of_keys,
    )  # fmt: skip


Spread = str | int
"""How a topic's jobs are spread, as the caller knows it (Layout.text); or just the number of its shards."""

_ScriptCall = tuple[Sequence[str], Sequence[Any]]
"""The keys and the arguments of a call."""


def _is_missing(reply: Any) -> bool:
    return isinstance(reply, ResponseError) and meaning_of(reply) is Meaning.SCRIPT_MISSING


def _letter(id: str, delivery: str) -> str:
    """A dead letter as kick and purge take it, if only that delivery is meant."""
    return f"{id}\x1f{delivery}"


def _each_call(name: str, calls: Sequence[_ScriptCall], *, load: bool = False) -> list[Command]:
    """``load``: the first call brings the script's source with it."""
    script = load_script(name)
    commands = []
    for i, (keys, args) in enumerate(calls):
        named = script.keys(keys)
        how = ("EVAL", script.source) if load and i == 0 else ("EVALSHA", script.sha)
        commands.append(Command(keys[0], (*how, len(named), *named, *args)))
    return commands


class Call(Protocol):
    """How scripts are called: as ``Session.call`` does it, or durably."""

    def __call__(self, commands: Sequence[Command], *, repeatable: bool = True) -> Op[list[Any]]: ...


class Scripts:
    """The state transitions of one namespace. ``durably``: calls them with that, and those that may change nothing are
    told to write all the same (see durability.py).
    """

    def __init__(self, session: Session, durably: Call | None = None) -> None:
        self._session = session
        self._call: Call = durably or session.call
        self._cover = ("cover",) if durably else ()
        self.is_durable = durably is not None
        self._history = session.settings.history_length
        self.keeps_history = self._history > 0
        failures = session.settings.failures_length if self.keeps_history else 0
        self.keeps_failures = failures > 0
        self._failures = (failures, session.settings.history_age_s * 1000)

    def _run(
        self,
        name: str,
        keys: Sequence[str],
        args: Iterable[Any],
        repeatable: bool = True,
        within_s: float | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> Op[Any]:
        """``within_s``: of a call that is not durable, the deadline. ``read``: makes the value of the reply."""
        call: Call = self._call if within_s is None else partial(self._session.call, within_s=within_s)
        script = load_script(name)
        if script.writes and self._session.node_of(keys[0]) not in self._session.permitted:
            yield from self.check_rights(keys[:1])
        named = script.keys(keys)
        rest = (len(named), *named, *args)
        # A durable call sends the source: if Redis did not know the script, the call would wait for the confirmation of
        # nothing, and once more after it was sent.
        first = ("EVAL", script.source) if self._cover else ("EVALSHA", script.sha)
        replies = yield from call([Command(keys[0], (*first, *rest))], repeatable=repeatable)
        if _is_missing(replies[0]):
            replies = yield from call([Command(keys[0], ("EVAL", script.source, *rest))], repeatable=repeatable)
        reply = self._checked(replies[0])
        return reply if read is None else read(reply)

    def _run_each(self, name: str, calls: Sequence[_ScriptCall], repeatable: bool = False) -> Op[list[Any]]:
        """The replies of several calls of a script on one shard, in their order. They are sent together."""
        yield from self.check_rights((keys[0] for keys, _ in calls))
        replies = yield from self._call(_each_call(name, calls, load=bool(self._cover)), repeatable=repeatable)
        missing = [i for i, reply in enumerate(replies) if _is_missing(reply)]
        if missing:
            again = _each_call(name, [calls[i] for i in missing], load=True)
            for i, reply in zip(missing, (yield from self._call(again, repeatable=repeatable)), strict=True):
                replies[i] = reply
        return [self._checked(reply) for reply in replies]

    def rights(self, key: str) -> Op[list[str]]:
        """The commands that this user may not run on the server of this key."""
        script, absent = load_script("rights"), absent_beside(key)
        # Its source, as no server knows it yet: it is called once.
        command = Command(key, ("EVAL", script.source, 1, absent, *TRIALS.values()))
        (reply,) = yield from self._session.call([command])
        return [name.decode() for name in checked(reply)]

    def check_rights(self, keys: Iterable[str]) -> Op[None]:
        """Checks that this user may run all scripts on the servers of these keys, as far as that is not known yet.

        Raises:
            AuthenticationFailed: the user may not run a command of a script.
        """
        session = self._session
        for key in keys:
            for _ in range(_ASKING_LOOKS):  # the first burst of a process asks once
                if session.node_of(key) not in session.asking:
                    break
                yield Pause(_ASKING_S)  # not for ever: who asks may be a thread that a forked child doesn't have
            node = session.node_of(key)
            if node in session.permitted:
                continue
            session.asking.add(node)
            try:
                yield from self._ask_rights(key)
            finally:
                session.asking.discard(node)

    def _ask_rights(self, key: str) -> Op[None]:
        session = self._session
        if not session.is_fake and (missing := (yield from self.rights(key))):
            raise AuthenticationFailed(refusal(missing))
        # The call may have learned which node of a Cluster it is. One that is suspected is asked each time.
        if (node := session.node_of(key)) or not session.is_cluster:
            session.permitted.add(node)

    def _checked(self, reply: Any) -> Any:
        """As ``checked``. If this user lacked a right within a script, somebody has taken it from a running process: no
        script is called before the rights are checked again.
        """
        if isinstance(reply, ResponseError) and meaning_of(reply) is Meaning.RIGHTS:
            self._session.permitted.clear()
        return checked(reply)

    def _now(self) -> str:
        return self._session.clock.argument()

    def enqueue(self, k: ShardKeys, spread: Spread, jobs: Sequence[Any], keyed: bool = True) -> Op[Enqueued]:
        """``spread``: as ``TopicSettings.named``. ``jobs``: id, when, rest of the record, for each. ``keyed``: a key
        is among them.
        """
        keys, args = self._enqueue_call(k, spread, jobs, keyed)
        return self._run("enqueue", keys, args, read=enqueued_in)

    def enqueue_each(self, calls: Sequence[tuple[ShardKeys, Spread, Sequence[Any], bool]]) -> Op[list[Enqueued]]:
        """The replies of several calls of ``enqueue``, in their order. They are sent together, which a durable call
        can't be: what confirms it would follow the last one only.
        """
        found: list[Enqueued] = []
        yield from self.check_rights((k.jobs for k, *_ in calls))
        replies = yield from self._session.call(_each_call("enqueue", [self._enqueue_call(*call) for call in calls]))
        for call, reply in zip(calls, replies, strict=True):
            # With the script's source, if its node did not know it.
            found.append((yield from self.enqueue(*call)) if _is_missing(reply) else enqueued_in(self._checked(reply)))
        return found

    def _enqueue_call(self, k: ShardKeys, spread: Spread, jobs: Sequence[Any], keyed: bool) -> _ScriptCall:
        keys: tuple[str, ...] = (k.jobs, k.bucket, k.ready, k.counts, k.settings, k.wake)
        if keyed:
            keys = (*keys, k.progress, *k.of_keys)
        return keys, (self._now(), spread, MAX_BYTES, *jobs)

    def replace(self, k: ShardKeys, spread: Spread, jobs: list[Any]) -> Op[Enqueued]:
        reply = yield from self._run(
            "replace",
            (
                k.jobs,
                k.bucket,
                k.ready,
                k.progress,
                k.counts,
                k.settings,
                k.history,
                k.wake,
                *k.of_keys,
                k.taken,
                k.taken_until,
            ),
            (self._now(), spread, self._history, REPLACED_BYTES, *jobs),
        )
        return enqueued_in(reply)

    def enqueue_unique(
        self, k: ShardKeys, spread: Spread, how: str, jobs: list[Any], former: bool = False
    ) -> Op[Enqueued]:
        """``how``: keep, replace or postpone the job that has an id. ``jobs``: id, when, rest of the record, rule.
        ``former``: this was the ids' home before; those of which nothing is here are ``taken`` by an empty record.
        """
        keys = (
            k.jobs, k.bucket, k.ready, k.progress, k.counts, k.settings, k.history, k.wake, *k.of_keys,
            k.taken, k.taken_until,
        )  # fmt: skip
        args = (self._now(), spread, self._history, REPLACED_BYTES, how, "former" if former else "", *jobs)
        return enqueued_in((yield from self._run("enqueue_unique", keys, args)))

    def move(self, k: ShardKeys, groups: Sequence[str], limit: int, permitted: bool = False) -> Op[Moved]:
        """``permitted``: ``permit`` has granted the limit; in a topic with a rate, nothing moves without that."""
        reply = yield from self._run(
            "move",
            (k.bucket, k.ready, k.counts, k.settings, *map(k.ready_of, groups)),
            (self._now(), limit, ",".join(groups), int(permitted)),
        )
        return moved_in(reply)

    def permit(self, first: ShardKeys, wanted: int) -> Op[tuple[int, int, int]]:
        """How many jobs of a topic with a rate may become ready, now_ms, and when more may. ``first``: its shard 0."""
        granted, now_ms, free_ms = yield from self._run("permit", (first.settings,), (self._now(), wanted))
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
    ) -> Op[Claimed]:
        """At most ``count`` jobs, of which the caller starts the first ``at_once`` at once. ``read``: the Entries of a
        blocking read; those beyond ``count`` are handed back.
        """
        args = (self._now(), group, consumer, count, ttr_ms, self._history, at_once, *read)
        reply = yield from self._run("claim", _claim_keys(k, group), args)
        claimed = claimed_in(reply)
        if claimed is None:
            raise GroupMissing(f"topic {k.topic!r} has no group {group!r}")
        return claimed

    def _outcome(
        self,
        name: str,
        keys: Sequence[str],
        k: ShardKeys,
        group: str,
        generation: str,
        consumer: str,
        claims: Iterable[Any],
        receipts: bool,
        limits: Sequence[Any] = (),
    ) -> Op[Refused]:
        """``consumer``: who claimed them. ``receipts``: each claim leaves a receipt. ``limits``: more arguments."""
        all_keys = (*keys, k.receipts) if receipts else keys
        args = (self._now(), group, self._history, generation, consumer, *limits, *claims)
        reply = yield from self._run(name, all_keys, args)
        return refused_in(reply)

    def finish(
        self, k: ShardKeys, group: str, generation: str, consumer: str, claims: list[Any], receipts: bool = False
    ) -> Op[Refused]:
        """``claims``: main, entry, id, history row, for each in turn."""
        keys = (
            k.ready, k.ready_of(group), k.jobs, k.progress, k.counts, k.settings, k.history, k.taken, k.taken_until,
            k.wake, k.bucket, *k.of_keys,
        )  # fmt: skip
        return self._outcome("finish", keys, k, group, generation, consumer, claims, receipts)

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
        keys = (
            k.ready,
            k.ready_of(group),
            k.bucket,
            k.progress,
            k.counts,
            k.settings,
            k.history,
            k.wake,
            *k.of_keys,
            k.failures,
        )
        return self._outcome("retry", keys, k, group, generation, consumer, claims, receipts, self._failures)

    def bury(
        self, k: ShardKeys, group: str, generation: str, consumer: str, claims: list[Any], receipts: bool = False
    ) -> Op[Refused]:
        """``claims``: main, entry, id, history row, reason, error, failure, for each."""
        keys = (
            k.ready,
            k.ready_of(group),
            k.dead_of(group),
            k.progress,
            k.counts,
            k.settings,
            k.history,
            k.wake,
            k.bucket,
            *k.of_keys,
            k.failures,
        )
        return self._outcome("bury", keys, k, group, generation, consumer, claims, receipts, self._failures)

    def release(
        self, k: ShardKeys, group: str, generation: str, consumer: str, claims: list[Any], receipts: bool = False
    ) -> Op[Refused]:
        """``claims``: main, entry, id, history row, for each in turn."""
        keys = (
            k.ready, k.ready_of(group), k.bucket, k.progress, k.counts, k.settings, k.history, k.jobs, k.wake,
        )  # fmt: skip
        return self._outcome("release", keys, k, group, generation, consumer, claims, receipts)

    def touch(
        self, k: ShardKeys, group: str, generation: str, consumer: str, ttr_ms: int, claims: list[Any]
    ) -> Op[Refused]:
        """``claims``: main, entry, id, ttr_ms, for each."""
        reply = yield from self._run(
            "touch",
            (k.ready, k.ready_of(group), k.progress, k.settings),
            (self._now(), group, ttr_ms, generation, consumer, *claims),
        )
        return refused_in(reply)

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
            (
                k.ready, k.ready_of(group), k.jobs, k.bucket, k.progress, k.counts, k.settings, k.history, k.wake,
                *k.of_keys,
            ),
            (self._now(), group, self._history, topic.ttr_of(group), limit, *cursors, watch_ms, missing),
        )  # fmt: skip
        return Reclaimed(*reply)

    def take_over(
        self, k: ShardKeys, group: str, topic: TopicSettings, consumer: str, silent_ms: int, limit: int, within_s: float
    ) -> Op[TakenOver]:
        reply = yield from self._run(
            "take_over",
            (
                k.ready, k.ready_of(group), k.jobs, k.bucket, k.progress, k.counts, k.settings, k.history, k.wake,
                *k.of_keys,
            ),
            (self._now(), group, self._history, topic.ttr_of(group), consumer, silent_ms, limit,
             topic.max_deliveries),
            within_s=within_s,
        )  # fmt: skip
        return TakenOver(*reply)

    def sign(self, consumer: str, within_s: float) -> Op[int]:
        """Redis's time, in ms."""
        reply: int = yield from self._run("sign", (self._session.keys.signs,), (self._now(), consumer), True, within_s)
        return reply

    def read_signs(self, consumers: Sequence[str], within_s: float) -> Op[tuple[int, list[int | None]]]:
        """Redis's time, and when each consumer gave its last sign of life, in ms."""
        keys, args = (self._session.keys.signs,), (self._now(), *consumers)
        now_ms, *signs = yield from self._run("read_signs", keys, args, True, within_s)
        return now_ms, [int(sign) if sign else None for sign in signs]

    def cancel(self, k: ShardKeys, topic: TopicSettings, id: str) -> Op[int]:
        """1: cancelled; 0: no such job, or it is dead; -1: running; or OUTDATED."""
        reply: int = yield from self._run("cancel", *self._cancelling(k, topic, id), repeatable=False)
        return reply

    def cancel_each(self, k: ShardKeys, topic: TopicSettings, shown: Sequence[tuple[str, str]]) -> Op[list[int]]:
        """``shown``: ids and deliveries. For each like cancel; or -3: it is another delivery by now; -4: it is gone."""
        return (yield from self._run_each("cancel", [self._cancelling(k, topic, *one) for one in shown]))

    def _cancelling(self, k: ShardKeys, topic: TopicSettings, id: str, shown: str | None = None) -> _ScriptCall:
        groups = topic.group_names
        keys = (
            k.jobs, k.bucket, k.ready, k.progress, k.counts, k.settings, k.history, k.taken, k.taken_until,
            k.wake, *k.of_keys,
            *map(k.dead_of, groups),
        )  # fmt: skip
        return keys, (self._now(), id, self._history, topic.layout.text, ",".join(groups), *self._as(shown))

    def _as(self, shown: str | None) -> tuple[str, ...]:
        """The last arguments of cancel and reschedule."""
        return self._cover if shown is None else (*(self._cover or ("",)), shown)

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
    ) -> _ScriptCall:
        keys = (k.jobs, k.bucket, k.ready, k.progress, k.counts, k.settings, k.wake, *k.of_keys)
        return keys, (self._now(), id, when, topic.layout.text, *self._as(shown))

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
    def _getting(k: ShardKeys, id: str, spread: str) -> _ScriptCall:
        return (k.jobs, k.bucket, k.progress, k.settings, k.lanes, k.keyed), (id, spread)

    def find_jobs(self, k: ShardKeys, cursor: bytes, limit: int, wanted: Wanted) -> Op[FoundPage]:
        keys = (k.jobs, k.bucket, k.progress, k.settings, k.lanes, k.keyed)
        return found_page_in((yield from self._run("find_jobs", keys, (cursor, limit, *wanted.args()))))

    def find_in_order(
        self, k: ShardKeys, index: str, after: tuple[Any, bytes], until: Any, limit: int, wanted: Wanted
    ) -> Op[FoundInOrder]:
        """``index``: the bucket, or a group's dead letters. ``after``: the first time in ms, and the member at which
        the previous page ended, or b"".
        """
        keys = (index, k.jobs, k.bucket, k.progress, k.settings, k.lanes, k.keyed)
        return found_in_order_in((yield from self._run("find_in_order", keys, (*after, until, limit, *wanted.args()))))

    def audit_jobs(self, k: ShardKeys, cursor: bytes, limit: int) -> Op[AuditedJobs]:
        keys = (k.jobs, k.bucket, k.progress, k.settings, k.lanes, k.keyed)
        return audited_jobs_in((yield from self._run("audit_jobs", keys, (cursor, limit))))

    def audit_entries(
        self, k: ShardKeys, stream: str, after: str, limit: int, ids: Sequence[str]
    ) -> Op[tuple[list[tuple[str, str, bytes]], list[tuple[bytes, bytes]]]]:
        """At one moment, of these jobs those that should be in a stream, as in AuditedJobs; and the stream's entries
        after this one, with their values.
        """
        keys = (k.jobs, k.bucket, k.progress, k.settings, k.lanes, k.keyed, stream)
        wanted, came = yield from self._run("audit_entries", keys, (after, limit, *ids))
        return in_streams_of(wanted), list(zip(came[::2], came[1::2], strict=True))

    def audit_bucket(self, k: ShardKeys, cursor: bytes, limit: int) -> Op[tuple[bytes, list[str]]]:
        """The next cursor, b"0" at the end; and the ids of waiting jobs without a record."""
        following, *ids = yield from self._run("audit_bucket", (k.bucket, k.jobs, k.settings), (cursor, limit))
        return following, [id_in(id) for id in ids]

    def audit_keys(self, k: ShardKeys, last: bytes, limit: int) -> Op[tuple[bytes, list[tuple[str, str]]]]:
        """Where the next page begins, b"" at the end; and what is wrong with keys that have limits: the reason, and the
        id of a job: "free" = it waits, though its key has a free place; "ended" = it has ended, and has a place.
        """
        keys = (k.settings, k.lanes, k.fronts, k.crowds, k.keyed, k.progress)
        following, *flat = yield from self._run("audit_keys", keys, (last, limit))
        names = [id_in(value) for value in flat]
        return following, list(zip(names[::2], names[1::2], strict=True))

    def stats(self, k: ShardKeys, groups: Sequence[str]) -> Op[ShardStats]:
        return stats_in((yield from self._run("stats", _stats_keys(k, groups), (self._now(),))), groups)

    def stats_of(
        self, shards: Sequence[tuple[ShardKeys, Sequence[str]]], timeout_s: float | None = None
    ) -> Op[list[ShardStats]]:
        """The stats of several shards with their groups, in one call. ``timeout_s``: the call is sent only once, and
        takes no longer.
        """
        commands = []
        for k, groups in shards:
            keys = _stats_keys(k, groups)
            args = ("EVALSHA", load_script("stats").sha, len(keys), *keys, self._now())
            commands.append(Command(keys[0], args))
        replies = yield from self._session.call(commands, timeout_s=timeout_s)
        found = []
        for (k, groups), reply in zip(shards, replies, strict=True):
            if isinstance(reply, ResponseError):  # this server has not loaded the script yet
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
            nodes.setdefault(self._session.node_of(shard[0].jobs), []).append(shard)
        # Other nodes' shards must not wait long for a lost node.
        brief_s = min(_BRIEF_S, self._session.settings.call_timeout_s) if self._session.is_cluster else None
        lost: set[ShardKeys] = set()
        left = list(nodes.values())
        while left:
            outcomes = yield from together([self.stats_of(part[:STATS_STEP], brief_s) for part in left])
            for part, outcome in zip(left, outcomes, strict=True):
                if isinstance(error := outcome[1], ServerUnavailable):
                    lost |= {k for k, _ in part}
                    part.clear()
                    if len(lost) == len(shards):
                        raise error
                else:
                    _take_step(part, returned(outcome), take)
            left = [part for part in left if part]
        return lost

    def kick(self, k: ShardKeys, group: str, limit: int, ids: Sequence[str]) -> Op[int]:
        reply: int = yield from self._run("kick", *self._kicking(k, group, limit, ids), repeatable=False)
        return reply

    def kick_each(self, k: ShardKeys, group: str, letters: Sequence[tuple[str, str]]) -> Op[list[int]]:
        """``letters``: id and delivery. For each 1, or 0 if it is no longer that letter."""
        return (yield from self._run_each("kick", [self._kicking(k, group, 1, [_letter(*one)]) for one in letters]))

    def _kicking(self, k: ShardKeys, group: str, limit: int, ids: Sequence[str]) -> _ScriptCall:
        keys = (
            k.ready_of(group), k.dead_of(group), k.bucket, k.jobs, k.progress, k.counts, k.settings, k.history, k.wake,
            *k.of_keys,
        )  # fmt: skip
        return keys, (self._now(), group, self._history, limit, *ids)

    def register_dump(
        self, k: ShardKeys, dump: str, mark: str = "", written: int = 0, since: str = ""
    ) -> Op[DumpRegistration]:
        """``mark`` '': unregisters the dump."""
        keys = (k.history, k.counts, k.settings)
        return registration_in((yield from self._run("register_dump", keys, (dump, mark, written, since))))

    def trim_history(self, k: ShardKeys) -> Op[int]:
        """How many rows were removed; if any, there may be more to remove."""
        length, age_s = self._session.settings.history_length, self._session.settings.history_age_s
        reply: int = yield from self._run(
            "trim_history", (k.history, k.counts, k.settings), (length, age_s * 1000), repeatable=False
        )
        return reply

    def purge(self, k: ShardKeys, group: str, limit: int, ids: Sequence[str]) -> Op[int]:
        reply: int = yield from self._run("purge", *self._purging(k, group, limit, ids), repeatable=False)
        return reply

    def purge_each(self, k: ShardKeys, group: str, letters: Sequence[tuple[str, str]]) -> Op[list[int]]:
        """As kick_each."""
        return (yield from self._run_each("purge", [self._purging(k, group, 1, [_letter(*one)]) for one in letters]))

    def _purging(self, k: ShardKeys, group: str, limit: int, ids: Sequence[str]) -> _ScriptCall:
        keys = (k.dead_of(group), k.ready, k.jobs, k.progress, k.counts, k.settings, k.taken, k.taken_until)
        return keys, (self._now(), group, limit, *ids)

    def dead_letters(
        self, k: ShardKeys, group: str, until_ms: int, offset: int, limit: int, max_bytes: int
    ) -> Op[tuple[int, list[tuple[bytes, bytes, bytes, bytes]]]]:
        """How many letters were looked at, and (id, buried_ms, record, progress) of each."""
        keys = (k.dead_of(group), k.jobs, k.progress, k.settings)
        looked, *flat = yield from self._run("dead_letters", keys, (group, until_ms, offset, limit, max_bytes))
        return looked, list(zip(*[iter(flat)] * 4, strict=True))

    def archive(self, k: ShardKeys, group: str, letters: Sequence[Any]) -> Op[list[bool]]:
        """``letters``: id, receipt, buried_ms, sequence, attempt, for each. Returns which of them are gone from
        Redis.
        """
        keys = (
            k.dead_of(group), k.ready, k.jobs, k.progress, k.counts, k.settings, k.archive, k.taken, k.taken_until,
        )  # fmt: skip
        reply = yield from self._run("archive", keys, (self._now(), group, *letters))
        return [code == 1 for code in reply]

    def restore(
        self, k: ShardKeys, group: str, spread: Spread, jobs: Sequence[Any], former: bool = False
    ) -> Op[list[int] | None]:
        """``jobs``: id, receipt, attempt, due_ms, rest of the record, for each. For each: 1: it is ready, 0: its id is
        live, NOT_HERE: this was the id's home before, and there is nothing of it (only if ``former``). None: the
        caller's settings are out of date and nothing was written.
        """
        keys = (
            k.ready_of(group), k.bucket, k.jobs, k.progress, k.counts, k.settings, k.history, k.archive, k.wake,
            *k.of_keys, k.taken,
        )  # fmt: skip
        args = (self._now(), group, self._history, spread, "former" if former else "", *jobs)
        status, *codes = yield from self._run("restore", keys, args)
        return codes if status == 1 else None

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
        keys = (
            k.jobs, k.bucket, k.ready, k.progress, k.counts, k.settings, k.history, k.wake, *k.of_keys, k.outbox,
            k.taken, k.taken_until,
        )  # fmt: skip
        # Not repeatable: a delay is shorter when the call comes later. The relay reads its rows again.
        topic = (settings.named(by_key=by_key), settings.version)
        args = (self._now(), *topic, self._history, REPLACED_BYTES, outbox, epoch, "former" if former else "", *jobs)
        return relay_reply_in((yield from self._run("relay", keys, args, repeatable=False)))

    def relayed(self, k: ShardKeys, spread: Spread, jobs: Sequence[Any]) -> Op[list[int] | None]:
        """``jobs``: id and receipt, for each. For each: 0: this Redis does not know it, 1: live, 2: ended. None: the
        caller's settings are out of date.
        """
        reply: list[int] | None = yield from self._run("relayed", (k.jobs, k.outbox, k.settings), (spread, *jobs))
        return reply

    def lease(self, name: str, lease_ms: int, key: str | None = None, asked: str | None = None) -> Op[tuple[bool, int]]:
        """Takes the mover's lease, or that of another ``key``, if it is free. Returns whether ``name`` holds it now,
        and for how many ms it is still held. ``asked``: the stream to which another holder listens, who has to answer
        if its lease lasts longer than ``lease_ms``.
        """
        keys = (key or self._session.keys.mover, *((asked,) if asked else ()))
        held, left_ms, _ = yield from self._run("lease", keys, (name, lease_ms))
        return held == 1, left_ms

    def drop_lease(self, name: str, key: str) -> Op[bool]:
        """Frees the lease if ``name`` holds it; returns whether it did."""
        reply = yield from self._run("drop_lease", (key,), (name,))
        return bool(reply == 1)

    def rotate_secret(self, new: str) -> Op[tuple[str, str]]:
        """The signing secrets before and after. ``new`` '': drops the previous one. A new one is refused while there is
        a previous one.
        """
        before, after = yield from self._run("rotate_secret", (self._session.keys.secret,), (self._now(), new))
        return before.decode(), after.decode()

    def register_topic(
        self, topic: str, patch: tuple[str, str, str, str], expected: int | None = None, most: int | None = None
    ) -> Op[TopicSettings | None]:
        """The settings afterwards; None if there is no such topic. ``patch``: see config.topic_patch. ``expected``:
        change nothing if the topic has another version by now; 0: create the topic if it is missing. ``most``: refuse a
        new topic if there are this many.

        Raises:
            TooManyTopics
        """
        names = self._session.keys
        version = "" if expected is None else expected
        reply = yield from self._run(
            "register_topic", (names.topics, names.wake), (topic, *patch, version, "" if most is None else most)
        )
        if reply == 0:
            raise TooManyTopics(
                f"topic {topic!r} would be one too many: there are {most} already; delete those that are no longer "
                "wanted (`streamdq topic delete`), or raise STREAMDQ_MAX_TOPICS"
            )
        return settings_in(reply) if reply is not None else None

    def unregister_topic(self, topic: str, version: int) -> Op[bool]:
        """Returns False if the topic has another version by now; it stays."""
        names = self._session.keys
        reply = yield from self._run("unregister_topic", (names.topics, names.wake), (topic, version))
        return bool(reply == 1)

    def configure_shard(self, k: ShardKeys, settings: TopicSettings, dumps: Iterable[str] = ()) -> Op[Configured]:
        """``dumps``: those for which the shard keeps its rows, should it be new."""
        return configured_in((yield from self._run("configure_shard", *self._configuring(k, settings, dumps))))

    def configure_each(
        self, shards: Sequence[ShardKeys], settings: TopicSettings, dumps: Iterable[str]
    ) -> Op[list[Configured]]:
        """Those of one node, in one call."""
        calls = [self._configuring(k, settings, dumps) for k in shards]
        return [configured_in(reply) for reply in (yield from self._run_each("configure_shard", calls, True))]

    @staticmethod
    def _configuring(k: ShardKeys, settings: TopicSettings, dumps: Iterable[str]) -> _ScriptCall:
        groups, leaving = settings.group_names, sorted(settings.leaving)
        told = "0" if settings.resharding is not None else settings.layout.told
        keys = [k.settings, k.jobs, k.bucket, k.ready, k.counts, k.wake, k.taken, *map(k.ready_of, groups)]
        for group in leaving:
            keys += [k.ready_of(group), k.dead_of(group)]
        names = (",".join(groups), ",".join(leaving), ",".join(sorted(dumps)))
        return keys, (settings.version, told, *names, *settings.shard_fields())

    def leave_group(self, k: ShardKeys, group: str, limit: int) -> Op[bool]:
        """Returns True if there is more to do, False if the group is gone from the shard."""
        reply = yield from self._run("leave_group", *self._leaving(k, group, limit))
        return bool(reply == 1)

    def leave_each(self, leaving: Sequence[tuple[ShardKeys, str, int]]) -> Op[list[bool]]:
        """As leave_group, of shards of one node, in one call."""
        replies = yield from self._run_each("leave_group", [self._leaving(*one) for one in leaving], True)
        return [reply == 1 for reply in replies]

    def _leaving(self, k: ShardKeys, group: str, limit: int) -> _ScriptCall:
        keys = (k.settings, k.jobs, k.bucket, k.ready, k.progress, k.counts, k.taken, k.taken_until, *k.of_keys)
        return keys, (self._now(), group, limit)

    def open_lanes(self, k: ShardKeys, limit: int) -> Op[bool]:
        """Returns True if there is more to do, False if the limit of keys is applied to all jobs that wait."""
        keys = (k.bucket, k.counts, k.settings, k.wake, k.lanes, k.fronts, k.crowds)
        reply = yield from self._run("open_lanes", keys, (self._now(), limit))
        return bool(reply == 1)

    def pause_key(self, k: ShardKeys, settings: TopicSettings, key: str, paused: bool) -> Op[int]:
        """1: done; 0: it goes on, call again to give the rest of its places; -1: the topic has no limit of keys; or
        OUTDATED.
        """
        keys = (k.bucket, k.counts, k.settings, k.wake, *k.of_keys)
        reply: int = yield from self._run("pause_key", keys, (self._now(), settings.layout.text, key, int(paused)))
        return reply

    def list_ids(self, k: ShardKeys, spread: Spread, kind: str, cursor: bytes, limit: int) -> Op[ListedIds | None]:
        """``kind``: jobs or taken. None: the caller's settings are out of date. The server that has read the page tells
        in the same call which one it is: while a slot migrates, it may be another one than that of the page before.
        """
        keys = (k.jobs, k.taken, k.taken_until, k.settings)
        rest = (len(keys), *keys, self._now(), spread, kind, cursor, limit)
        yield from self.check_rights(keys[:1])
        script, about = load_script("list_ids"), Behind(k.jobs, ("INFO", "server"))
        reply, server = yield from self._session.call([Command(k.jobs, ("EVALSHA", script.sha, *rest)), about])
        if _is_missing(reply):
            reply, server = yield from self._session.call([Command(k.jobs, ("EVAL", script.source, *rest)), about])
        if self._checked(reply) is None:
            return None
        following, puts, *flat = reply
        names = [id_in(value) for value in flat]
        return ListedIds(following, puts, list(zip(names[::2], names[1::2], strict=True)), server)

    def drop_shard(self, k: ShardKeys, settings: TopicSettings) -> Op[bool]:
        """Returns False if the shard holds jobs, schedules or receipts and ``settings.deleting`` does not force it."""
        keys = [k.settings, k.jobs, k.counts, k.archive, k.outbox, k.schedules]
        keys += [k.bucket, k.ready, k.progress, k.history, k.failures, k.wake, k.ticks, k.taken, k.taken_until]
        keys += k.of_keys
        for group in (*settings.groups, *settings.leaving):
            keys += [k.ready_of(group), k.dead_of(group)]
        force = int(settings.deleting == "force")
        reply = yield from self._run("drop_shard", keys, (settings.version, force))
        return bool(reply == 1)

    def schedule(
        self, first: ShardKeys, spread: Spread, id: str, version: int, look_ms: int | None, missed: int, record: bytes
    ) -> Op[Written]:
        """Writes a schedule in place of this version of it, 0 if there is none. ``first``: the topic's shard 0."""
        reply = yield from self._run(
            "schedule",
            (first.schedules, first.ticks, first.counts, first.settings, first.wake),
            (self._now(), spread, id, version, "" if look_ms is None else look_ms, missed, record),
        )
        return Written(reply)

    def unschedule(self, first: ShardKeys, id: str) -> Op[bool | None]:
        """Whether there was such a schedule; None: the job of its next occurrence has to be taken back before."""
        keys = (first.schedules, first.ticks, first.counts, first.settings)
        reply = yield from self._run("unschedule", keys, (self._now(), id))
        return None if reply < 0 else bool(reply)

    def retract(self, first: ShardKeys, id: str) -> Op[str]:
        """Takes back the occurrence of a schedule that is enqueued and not due yet; returns its job's id, "" if there
        is none.
        """
        keys = (
            first.schedules, first.ticks, first.jobs, first.bucket, first.ready, first.progress, first.counts,
            first.settings, first.history, first.taken, first.taken_until,
            first.wake, *first.of_keys,
        )  # fmt: skip
        reply: bytes = yield from self._run("retract", keys, (self._now(), id, self._history))
        return reply.decode()

    def fire(
        self, first: ShardKeys, spread: Spread, limit: int, *, late_ms: int, again_ms: int, ahead_ms: int
    ) -> Op[Fired]:
        """Enqueues the jobs of at most ``limit`` occurrences that are due within ``ahead_ms``, none later than
        ``late_ms`` unless its plan says so. ``again_ms``: after how long to look again at what waits.
        """
        keys = (
            first.schedules, first.ticks, first.jobs, first.bucket, first.progress, first.counts, first.settings,
            first.wake,
        )  # fmt: skip
        args = (self._now(), spread, limit, late_ms, again_ms, ahead_ms)
        return fired_in((yield from self._run("fire", keys, args)))

    def remove_consumer(self, k: ShardKeys, group: str, consumer: str | bytes, limit: int) -> Op[bool]:
        """Returns False if more than ``limit`` entries were pending; call it again."""
        keys = (k.ready, k.ready_of(group), k.jobs, k.bucket, k.progress, k.counts, k.settings, k.wake, *k.of_keys)
        reply = yield from self._run("remove_consumer", keys, (self._now(), group, consumer, limit))
        return bool(reply == 1)
