"""The registry of topics: this process's cache of it, and the updates of the shards.

A change of topology takes several calls. First the intended change is written to the registry (``resharding``,
``leaving``, ``deleting``). Any process can repeat any step. So whoever meets an unfinished change, perhaps of a process
that was killed, finishes it (``_conform``). Each write to the registry names the version that it follows.

If the number of shards changes while the topic holds jobs, they stay where they are, and the earlier number stays in
the registry (``former``) until none of them is where it was put by that number: operations/former_homes.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeVar

from ..config import DEFAULT_GROUP, MOST_FORMER, START_WITHIN_S, Layout, TopicSettings, topic_patch
from ..errors import ServerUnavailable, TopicNotEmpty, TopicServed, UnknownTopic
from ..keys import ShardKeys
from ..link.command import Command
from ..link.session import Op, Session, checked, pause
from ..process.logs import log
from . import namespace, reads
from .batches import most_jobs
from .commands import one
from .counters import GroupCounter, group_field
from .misspelt import meant_by, slip_of
from .registry import RINGS, Registry, settings_in
from .replies import Configured
from .scripts import Scripts
from .settling import Walk

_LEAVE_STEP = 150
_KEYS_STEP = 20
_LEAVE_LOOKS = 5  # how often leave_group reads or deletes each group's progress with a job
_SHARDS_AT_ONCE = 16  # each takes Redis some ms if it makes a hundred groups
_LEAVING_AT_ONCE = 100
_FORCE = "force=True (--force, ?force=true)"
_RACES = 5
_PAGES = 200  # to see whether a topic has settled, if nobody has looked yet
_NOT_EMPTY = (
    "its keys have limits, so the number of shards can change only while it is empty: drain it, or use a new topic"
)
_LOOK_S = 0.05
_TURN_S, _LONGEST_TURN_S = 0.005, 0.5
_BRIEF_S = 0.5  # how long to wait for the registry if the cache will do
_LOST_S = 5.0  # how long not to ask it again after that

T = TypeVar("T")


class Topics:
    """A cache of the registry. It may be outdated; scripts that depend on it then say so, and the caller
    ``repair``s.
    """

    def __init__(self, session: Session, scripts: Scripts) -> None:
        self._session = session
        self._scripts = scripts
        self._registry = Registry(session)
        self.known: dict[str, TopicSettings] = {}
        self._served: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._asked: set[str] = set()
        self._lost_until = 0.0

    def shards(self, topic: str) -> list[ShardKeys]:
        """The shards that may have jobs; empty for an unknown topic."""
        settings = self.known.get(topic)
        return [self._session.keys.shard(topic, i) for i in range(settings.layout.in_use)] if settings else []

    def all_shards(self, topic: str) -> list[ShardKeys]:
        """Also includes shards that the topic once used: they keep its counters and history."""
        settings = self.known.get(topic)
        return [self._session.keys.shard(topic, i) for i in range(settings.reach)] if settings else []

    def refresh(self, within_s: float = float("inf")) -> Op[dict[str, TopicSettings]]:
        """Looks at the whole registry: two commands if nothing has changed since the last look, unless the registry has
        lost topics or groups that this process serves.
        """
        found = yield from self._registry.look(within_s)
        lost = self._served.keys() - found.keys()
        self.known = found | {topic: self.known[topic] for topic in lost if topic in self.known}
        for topic, (group, own) in list(self._served.items()):
            if topic in lost:
                yield from self.repair(topic)
            elif group not in found[topic].groups:
                yield from self.ensure(topic, group, own)
        return self.known

    def ring_for_untold(self) -> Op[None]:
        """Tells all processes of what has changed in the registry without a ring: somebody changed it by hand, or Redis
        has lost it.
        """
        if untold := sorted(self._registry.untold):
            yield from namespace.ring_for(self._session, untold, RINGS)
            self._registry.untold.difference_update(untold)

    def get(self, topic: str, *, anew: bool = False, within_s: float = float("inf")) -> Op[TopicSettings]:
        """The topic's settings, from the cache unless ``anew``.

        Raises:
            UnknownTopic: it is not in the registry.
        """
        settings = self.known.get(topic)
        if settings is None or anew:
            settings = (yield from self._read(topic, within_s)) or settings  # a lost registry will be restored
        if settings is None:
            names = yield from self._registry.look(within_s)
            raise self.unknown(topic, meant_by(topic, names))
        return settings

    def check_spelling(self, topic: str) -> Op[None]:
        """For a change that would make the topic.

        Raises:
            UnknownTopic: it does not exist, and its name looks like a slip in the name of one that does.
        """
        if meant := (yield from self.meant_by_new(topic)):
            raise UnknownTopic(
                f"no topic {topic!r} in namespace {self._session.keys.namespace!r}: did you mean {meant!r}? "
                "If it is a new one, pass create=True (--create)"
            )

    def meant_by_new(self, topic: str) -> Op[str | None]:
        """If the topic does not exist, the one whose name it would have but for a slip."""
        if topic in self.known or (yield from self._read(topic)) is not None:
            return None
        return slip_of(topic, (yield from self._registry.look()))

    def latest(self, topic: str) -> Op[TopicSettings]:
        """Like ``get``, anew. If a Cluster has lost the registry's node, returns the cached settings: if they are out
        of date, the shards will refuse them.
        """
        known = self.known.get(topic)
        return (yield from self._if_there(lambda brief_s: self.get(topic, anew=True, within_s=brief_s), known))

    def registry(self) -> Op[Mapping[str, TopicSettings]]:
        """The settings of all topics, read like ``latest``."""
        return (yield from self._if_there(self.refresh, self.known or None))

    def _if_there(self, read: Callable[[float], Op[T]], known: T | None) -> Op[T]:
        if known is None or not self._session.is_cluster:
            return (yield from read(float("inf")))
        if time.monotonic() < self._lost_until:
            return known
        try:
            return (yield from read(_BRIEF_S))
        except ServerUnavailable:
            self._lost_until = time.monotonic() + _LOST_S
            return known

    def unknown(self, topic: str, meant: str | None = None) -> UnknownTopic:
        """``meant``: a topic with a name like that."""
        where = f"no topic {topic!r} in namespace {self._session.keys.namespace!r}"
        hint = "check its name." if meant is None else f"did you mean {meant!r}?"
        return UnknownTopic(f"{where}: {hint} A topic is made by its first job, a worker or configure")

    def _read(self, topic: str, within_s: float = float("inf")) -> Op[TopicSettings | None]:
        key = self._session.keys.topics
        reply = yield from one(self._session, key, "HGET", key, topic, within_s=within_s)
        if reply is None:
            return None
        self.known[topic] = settings = settings_in(reply)
        return settings

    def ensure(self, topic: str, group: str | None = None, own: Mapping[str, Any] | None = None) -> Op[TopicSettings]:
        """Creates the topic if it does not exist, and the ``group`` if given, with its ``own`` settings. A new topic
        starts with the default group; one that was configured without that group stays without it.
        """
        settings = yield from self._read(topic)
        if settings is None:
            if group is None and topic not in self.known:  # a producer makes it, and nobody serves it yet
                yield from self._warn_of_slip(topic)
            settings = yield from self._make(topic)
        if group is None:
            return settings
        wanted = {name: value for name, value in (own or {}).items() if value is not None}
        have = settings.groups.get(group)
        if have is None or any(getattr(have, name) != value for name, value in wanted.items()):
            settings = yield from self._change(topic, {}, {group: wanted})
        return settings

    def _warn_of_slip(self, topic: str) -> Op[None]:
        if (meant := slip_of(topic, (yield from self._registry.look()))) is not None:
            log.warning("a new topic without a consumer resembles another one", topic=topic, other=meant)

    def settled(self, topic: str) -> TopicSettings | None:
        """The cached settings; None if there are none, or this process is just creating or repairing the topic."""
        return None if topic in self._asked else self.known.get(topic)

    def shared(self, topic: str, ask: Callable[[str], Op[TopicSettings]]) -> Op[TopicSettings]:
        """Calls ``ensure`` or ``repair`` once for all that need it at the same time: the first caller asks, the others
        wait a moment for its answer.
        """
        until, pause_s = time.monotonic() + _LONGEST_TURN_S, _TURN_S
        waited = topic in self._asked
        while topic in self._asked and time.monotonic() < until:
            yield from pause(pause_s)
            pause_s *= 2  # if a thousand callers looked often, they would hold up the one that they wait for
        if waited and (settings := self.settled(topic)) is not None:
            return settings
        self._asked.add(topic)
        try:
            return (yield from ask(topic))
        finally:
            self._asked.discard(topic)

    def serve(self, topic: str, group: str, own: Mapping[str, Any]) -> Op[None]:
        """Like ``ensure``. From now on, if the topic or the group is lost or removed, ``refresh`` and ``repair`` in
        this process create it again: a group that is served exists.
        """
        yield from self.ensure(topic, group, own)
        self._served[topic] = (group, own)

    def repair(self, topic: str) -> Op[TopicSettings]:
        """For use after a script found our settings out of date, or Redis lost the topic. Like ``renew``, but creates a
        topic that Redis has lost (a flush) again, as this process knew it. If a Cluster has lost a node, the shards on
        others have been told what is new.
        """
        settings = yield from self._read(topic)
        try:
            settings = yield from self._conform(topic, settings)
        except ServerUnavailable:
            if not self._session.is_cluster:
                raise
            settings = self.known.get(topic)
        if settings is None:
            settings = yield from self._make(topic)
        if topic in self._served:
            settings = yield from self.ensure(topic, *self._served[topic])
        return settings

    def renew(self, topic: str) -> Op[TopicSettings | None]:
        """Reads the topic's settings anew and brings every shard up to date; None if it is not in the registry."""
        settings = yield from self._read(topic)
        return (yield from self._conform(topic, settings))

    def settings_of(self, topic: str) -> TopicSettings:
        """The cached settings; the defaults for a topic that was deleted since."""
        return self.known.get(topic) or TopicSettings()

    def mend(self, topic: str) -> Op[TopicSettings | None]:
        """Like ``repair``, for processes that only look after the topic. A topic that is neither in the registry nor
        served here was deleted: it is not created again, and the result is None.
        """
        if topic in self._served:
            return (yield from self.repair(topic))
        settings = yield from self.renew(topic)
        if settings is None:
            self.known.pop(topic, None)
        return settings

    def end_changes(self) -> Op[None]:
        """Completes changes that other processes have begun; one command if there are none."""
        yield from self.refresh()
        for topic, settings in list(self.known.items()):
            if settings.resharding is not None or settings.leaving or settings.deleting or settings.relimiting:
                yield from self._conform(topic, settings)

    def _make(self, topic: str) -> Op[TopicSettings]:
        """Creates a topic. If this process knows it, Redis has lost it: then it is created as it was."""
        known = self.known.get(topic)
        if known is None:
            most = self._session.settings.max_topics
            settings = yield from self._register(topic, {}, {DEFAULT_GROUP: {}}, expected=0, most=most)
        else:
            # It keeps its version, because shards that were not lost ignore an older one.
            changes = known.model_dump(exclude={"groups", "leaving", "resharding", "deleting"}, exclude_none=True)
            changes |= known.layout.changes()
            groups = {name: group.model_dump(exclude_none=True) for name, group in known.groups.items()}
            settings = yield from self._register(topic, changes, groups or {DEFAULT_GROUP: {}}, expected=0)
        return (yield from self._conform(topic, settings)) or (yield from self._make(topic))

    def _change(
        self,
        topic: str,
        changes: Mapping[str, Any],
        groups: Mapping[str, Mapping[str, Any]],
        removed: Sequence[str] = (),
        expected: int | None = None,
    ) -> Op[TopicSettings]:
        """Changes an existing topic, in the registry and in every shard; ``expected``: only if it has this version."""
        while True:
            registered = yield from self._register(topic, changes, groups, removed, expected=expected)
            settings = yield from self._conform(topic, registered)
            if registered is None or settings is None:  # the topic was deleted or lost meanwhile
                yield from self._make(topic)
            # A group that is leaving can come back only after it has left.
            elif not registered.leaving.keys() & groups.keys():
                return settings

    def _register(
        self,
        topic: str,
        changes: Mapping[str, Any],
        groups: Mapping[str, Mapping[str, Any]],
        removed: Sequence[str] = (),
        left: Sequence[str] = (),
        expected: int | None = None,
        most: int | None = None,
    ) -> Op[TopicSettings | None]:
        patch = topic_patch(changes, groups, removed, left)
        settings = yield from self._scripts.register_topic(topic, patch, expected, most)
        if settings is not None:
            self.known[topic] = settings
        return settings

    # -- shards

    def _conform(self, topic: str, settings: TopicSettings | None) -> Op[TopicSettings | None]:
        """Makes the shards match the registry, and completes the change recorded there; None if the topic is gone."""
        applied: TopicSettings | None = None
        while settings is not None:
            changes = _forgotten(settings, applied)
            if settings.deleting and not changes:
                if (yield from self._drop(topic, settings)):
                    self.known.pop(topic, None)
                    return None
                changes = {"deleting": None}
            if changes:
                settings = yield from self._register(topic, changes, {}, expected=settings.version)
                continue
            applied, settings = settings, (yield from self._brought_up(topic, settings))
            if applied == settings:  # the version alone may be that of another change, made since a loss
                return settings
        return (yield from self._lost(topic, applied)) if applied is not None else None

    def _brought_up(self, topic: str, settings: TopicSettings) -> Op[TopicSettings | None]:
        """Applies the settings to the shards. Returns what the registry has afterwards: the same, once all agree."""
        found = yield from self._apply(topic, settings)
        changes, unknown = (yield from self._owing(topic, settings, found)), _unknown_groups(settings, found)
        if changes:
            return (yield from self._register(topic, changes, {}, expected=settings.version))
        if settings.leaving or unknown:
            # Shards have a group that the registry does not have: the registry was lost and restored by a process that
            # did not know the group. Jobs wait for it.
            groups: dict[str, dict[str, Any]] = {name: {} for name in unknown}
            left = sorted(settings.leaving)
            return (yield from self._register(topic, {}, groups, left=left, expected=settings.version))
        # Redis may have lost the change that we carried out, with the end of its append-only file.
        return (yield from self._read(topic))

    def _lost(self, topic: str, applied: TopicSettings) -> Op[TopicSettings | None]:
        """The registry has the topic no more. If its shards are there, nobody deleted it; then it is made again."""
        return (yield from self._make(topic)) if (yield from self._has_shards(topic, applied)) else None

    def _has_shards(self, topic: str, settings: TopicSettings) -> Op[bool]:
        keys = [self._session.keys.shard(topic, number).settings for number in range(settings.reach)]
        replies = yield from self._session.call([Command(key, ("HEXISTS", key, "shards")) for key in keys])
        return any(checked(reply) for reply in replies)

    def _apply(self, topic: str, settings: TopicSettings) -> Op[list[Configured]]:
        """Configures every shard, and removes leaving groups; returns the last reply of each shard. If a Cluster has
        lost a node, the shards on others are told before that is raised, so that they go on.

        The topic is in the registry by now, and a dump registers itself first and then with all topics there. So one
        that is not read here finds the shards.
        """
        found, lost = dict[ShardKeys, Configured](), list[ServerUnavailable]()
        dumps = yield from namespace.dumps_of(self._session, topic)
        for shards in self._by_node(topic, settings.reach):
            try:
                for part in _parts(shards, _SHARDS_AT_ONCE):
                    found |= yield from self._tell(part, settings, dumps)
            except ServerUnavailable as error:
                lost.append(error)
        if dumps:  # one that was forgotten meanwhile may have been before the shards were made
            yield from self._forget(dumps - (yield from namespace.dumps_of(self._session, topic)), found)
        for unavailable in lost:
            raise unavailable
        return list(found.values())

    def _forget(self, dumps: Iterable[str], shards: Iterable[ShardKeys]) -> Op[None]:
        for shard, dump in product(shards, dumps):
            yield from self._scripts.register_dump(shard, dump)

    def _by_node(self, topic: str, count: int) -> list[list[ShardKeys]]:
        nodes: dict[str, list[ShardKeys]] = {}
        for number in range(count):
            shard = self._session.keys.shard(topic, number)
            nodes.setdefault(self._session.node_of(shard.settings), []).append(shard)
        return list(nodes.values())

    def _tell(
        self, shards: Sequence[ShardKeys], settings: TopicSettings, dumps: Iterable[str]
    ) -> Op[dict[ShardKeys, Configured]]:
        """Shards of one node, in few calls: there may be hundreds, with a hundred groups that leave each."""
        found = dict[ShardKeys, Configured]()
        waiting = list(shards)
        while waiting:
            told = dict(zip(waiting, (yield from self._scripts.configure_each(waiting, settings, dumps)), strict=True))
            yield from self._leave(
                [
                    (shard, group, most_jobs(_LEAVE_STEP, _LEAVE_LOOKS * len(one.groups)))
                    for shard, one in told.items()
                    for group in one.leaving
                ]
            )
            found |= told
            waiting = [shard for shard, one in told.items() if one.leaving]
        for shard in shards:
            while settings.relimiting and (yield from self._scripts.apply_key_limit(shard, _KEYS_STEP)):
                pass
        return found

    def _leave(self, leaving: Sequence[tuple[ShardKeys, str, int]]) -> Op[None]:
        for part in _parts(leaving, _LEAVING_AT_ONCE):
            left = part
            while left:
                more = yield from self._scripts.leave_each(left)
                left = [one for one, is_open in zip(left, more, strict=True) if is_open]

    def _owing(self, topic: str, settings: TopicSettings, found: Sequence[Configured]) -> Op[dict[str, Any]]:
        """What the registry has yet to take over from the shards; if it was lost, also that the topic has schedules, or
        keys.
        """
        changes = _owed(settings, found)
        if not changes and not settings.keyed and any(shard.keyed for shard in found):
            return {"keyed": True}
        if not changes and not settings.scheduled and (yield from self._has_schedules(topic)):
            return {"scheduled": True}
        return changes

    def _drop(self, topic: str, settings: TopicSettings) -> Op[bool]:
        """Deletes the topic. Returns False if it stays, because it holds jobs or receipts, or was changed meanwhile."""
        shards = [self._session.keys.shard(topic, number) for number in range(settings.reach)]
        for shard in shards:
            if not (yield from self._scripts.drop_shard(shard, settings)):
                return False
        gone = yield from self._scripts.unregister_topic(topic, settings.version)
        if gone:
            for shard in shards:  # again, as Redis may have lost it with the end of its append-only file
                yield from self._scripts.drop_shard(shard, settings)
            # Somebody may have made the topic again, at a version that these shards took for the deleted one's.
            yield from self._conform(topic, (yield from self._read(topic)))
        return gone

    # -- operators' changes

    def configure(self, topic: str, changes: Mapping[str, Any], groups: Sequence[str] | None) -> Op[TopicSettings]:
        """Changes settings. ``groups``: exactly these; others are removed with their open jobs. If this process is
        killed halfway, the next call or a mover completes the change.

        Raises:
            TopicNotEmpty: another number of shards was asked for, and jobs whose keys have limits are there, or jobs
                from before the last changes; or limits, while jobs are where they were before a change.
        """
        for _ in range(_RACES):
            settings = yield from self._configure(topic, (yield from self.ensure(topic)), changes, groups)
            if changes.get("shards") in (None, settings.shards) and settings.key_limited >= changes.get(
                "key_limited", False
            ):
                return settings
        raise changing(topic)

    def _configure(
        self, topic: str, before: TopicSettings, changes: Mapping[str, Any], groups: Sequence[str] | None
    ) -> Op[TopicSettings]:
        """Returns the settings afterwards: without the changes, if somebody else has changed the topic meanwhile."""
        limits = changes.get("key_limited", False) and not before.key_limited
        _check_limits(topic, before, changes)
        rest = {name: value for name, value in changes.items() if name != "shards"}
        if changes.get("shards") not in (None, before.shards):
            rest |= yield from self._reshard(topic, before, changes["shards"], limits or before.key_limited)
        added: dict[str, dict[str, Any]] = {name: {} for name in groups or ()}
        removed = [name for name in before.groups if groups is not None and name not in groups]
        # Two operators must not limit keys and change the number at the same time.
        return (yield from self._change(topic, rest, added, removed, before.version if limits else None))

    def _reshard(self, topic: str, before: TopicSettings, shards: int, limited: bool) -> Op[dict[str, Any]]:
        """Changes the number of shards of a topic that holds jobs. Returns what else is to change, if it is empty."""
        if limited:
            yield from self._check_empty(topic, _NOT_EMPTY)
        elif before.former or (yield from self._holds_ids(topic)):
            yield from self._spread_anew(topic, shards)
            return {}
        # A closed topic refuses to enqueue, so that no job goes where nobody would look for it.
        return {"resharding": shards}

    def _spread_anew(self, topic: str, shards: int) -> Op[None]:
        """Changes the number of shards of a topic that holds jobs, unless somebody else changes the topic meanwhile.
        They stay where they are.
        """
        settings = yield from self.renew(topic)  # so that it knows how they were spread, should it have been lost
        if settings is None or settings.shards == shards or settings.resharding is not None or settings.key_limited:
            return  # somebody else has changed it; it is looked at anew
        former = tuple(count for count in (*settings.former, settings.shards) if count != shards)
        if len(former) > MOST_FORMER:
            walk = Walk(self._session, self._scripts, topic, settings)
            if (yield from walk.go_on(_PAGES)):
                yield from self.settle(topic, walk)
                return
            raise TopicNotEmpty(
                f"topic {topic!r} holds jobs from when it had {listed(former)} shards: wait until those of the first "
                "have ended, or choose one of these numbers again"
            )
        changes = Layout(shards, former, settings.version).changes()
        changes["most_shards"] = max(settings.reach, shards)
        yield from self._conform(topic, (yield from self._register(topic, changes, {}, expected=settings.version)))

    def settle(self, topic: str, walk: Walk) -> Op[None]:
        """Notes that nothing is where it was put by an earlier number of shards, as the walk has found, unless that
        number has changed meanwhile.
        """
        if walk.has_keys:  # of jobs that were put in while there was one shard, and are at home where their keys are
            yield from self.expect_keys(topic)
        settings = yield from self._read(topic)
        if settings is not None and walk.is_of(settings) and settings.former:
            changes = walk.layout._replace(former=()).changes()
            yield from self._conform(topic, (yield from self._register(topic, changes, {}, expected=settings.version)))

    def delete(self, topic: str, force: bool) -> Op[None]:
        """Deletes the topic, its counters and its history; ``force``: with its jobs. Whoever enqueues to it or serves
        it afterwards makes it again.

        Raises:
            UnknownTopic
            TopicNotEmpty: it holds jobs, schedules or receipts, or is served, and ``force`` is not given.
        """
        yield from self.get(topic, anew=True)
        refusal = f"let every group finish them first, or delete them with {_FORCE}"
        for _ in range(_RACES):
            if not force:
                yield from self._check_empty(topic, refusal)
                yield from self._check_settled(topic)
                yield from self._check_unscheduled(topic)
                yield from self._check_unserved(topic)
            registered = yield from self._register(topic, {"deleting": "force" if force else "empty"}, {})
            if (yield from self._conform(topic, registered)) is None:
                return
        raise changing(topic)

    def _holds_ids(self, topic: str) -> Op[bool]:
        """Whether it has jobs, or ids that stay taken."""
        keys = [key for shard in self.shards(topic) for key in (shard.jobs, shard.taken)]
        replies = yield from self._session.call([Command(key, ("EXISTS", key)) for key in keys])
        return any(checked(reply) for reply in replies)

    def _check_empty(self, topic: str, refusal: str) -> Op[None]:
        for shard in self.shards(topic):
            if (yield from one(self._session, shard.jobs, "HLEN", shard.jobs)):
                raise TopicNotEmpty(f"topic {topic!r} still holds jobs: {refusal}")

    def _check_settled(self, topic: str) -> Op[None]:
        """A database that has yet to read what became of its jobs would take them for lost, and put them back."""
        keys = [key for k in self.all_shards(topic) for key in (k.archive, k.outbox)]
        commands = [Command(key, ("HLEN", key)) for key in keys]
        if any(checked(reply) for reply in (yield from self._session.call(commands))):
            raise TopicNotEmpty(
                f"topic {topic!r} holds receipts that the database of an outbox or an archive has yet to read: let "
                f"`streamdq outbox relay` or `streamdq archive store` run, or delete it with {_FORCE}, and jobs that "
                "have ended may run again"
            )

    def _check_unscheduled(self, topic: str) -> Op[None]:
        if (yield from self._has_schedules(topic)):
            raise TopicNotEmpty(f"topic {topic!r} has schedules: remove them first, or delete them with {_FORCE}")

    def _check_unserved(self, topic: str) -> Op[None]:
        places = [(k.ready, group) for k in self.shards(topic) for group in self.settings_of(topic).group_names]
        alive = yield from reads.alive_beside(self._session, places, self._session.consumer)
        served = sorted({group for (_, group), is_served in zip(places, alive, strict=True) if is_served})
        if served:
            raise TopicServed(
                f"topic {topic!r} has consumers in {'groups' if served[1:] else 'group'} {', '.join(served)}, which "
                f"would make it again: stop them first, or delete it all the same with {_FORCE}"
            )

    def _has_schedules(self, topic: str) -> Op[bool]:
        key = self._session.keys.shard(topic, 0).schedules
        return bool((yield from one(self._session, key, "EXISTS", key)))

    def expect_schedules(self, topic: str) -> Op[TopicSettings]:
        """Creates the topic if it does not exist, and has movers look for schedules in it."""
        settings = self.settled(topic)
        if settings is None or not settings.scheduled:
            yield from self.ensure(topic)
            settings = yield from self._change(topic, {"scheduled": True}, {})
        return settings

    def expect_keys(self, topic: str) -> Op[TopicSettings]:
        """Has all processes look for jobs of the topic, which exists, in the shards of their keys as well. First marks
        the shards: with a registry that is lost before it has the mark, or later, whoever finds it there makes it good.
        """
        settings = self.settled(topic)
        for _ in range(_RACES):
            if settings is not None and settings.leads_to_keys:
                return settings
            settings = (yield from self.renew(topic)) or (yield from self.ensure(topic))
            if not settings.leads_to_keys:
                settings = yield from self._conform(topic, settings.model_copy(update={"keyed": True}))
        raise changing(topic)

    def pause(self, topic: str, paused: bool) -> Op[None]:
        yield from self.get(topic)
        yield from self.ensure(topic)  # should Redis have lost it since
        yield from self._change(topic, {"paused": paused}, {})
        if paused:
            yield from self.until_nothing_starts(topic)

    def until_nothing_starts(self, topic: str) -> Op[None]:
        """A worker may hold jobs that it claimed before: it starts them within START_WITHIN_S, or not at all."""
        until = time.monotonic() + START_WITHIN_S
        fields = [group_field(GroupCounter.RUNNING, group) for group in self.settings_of(topic).group_names]
        commands = [Command(shard.counts, ("HMGET", shard.counts, *fields)) for shard in self.shards(topic) if fields]
        while (left_s := until - time.monotonic()) > 0 and commands:
            replies = yield from self._session.call(commands)
            if not any(int(count or 0) > 0 for reply in replies for count in checked(reply)):
                return
            yield from pause(min(left_s, _LOOK_S))


def changing(topic: str) -> ServerUnavailable:
    return ServerUnavailable(f"topic {topic!r}: its settings were changed during the call; try again")


def _parts(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (items[i : i + most] for i in range(0, len(items), most))


def _unknown_groups(settings: TopicSettings, shards: Sequence[Configured]) -> set[str]:
    return {group for shard in shards for group in shard.groups} - settings.groups.keys()


def _forgotten(settings: TopicSettings, applied: TopicSettings | None) -> dict[str, Any]:
    """What a registry that was lost and made again does not know of: shards that these settings may have made."""
    return {} if applied is None or applied.reach <= settings.reach else {"most_shards": applied.reach}


def _owed(settings: TopicSettings, shards: Sequence[Configured]) -> dict[str, Any]:
    """What the registry has yet to take over from the shards, which were told of ``settings``; {}: nothing."""
    newest, others = max(shards, key=lambda shard: shard.version), [shard.layout for shard in shards if not shard.done]
    if newest.version > settings.version:
        # These settings are out of date; or the registry is, which was lost, or put back from an old copy.
        return {"version": newest.version} | (newest.layout if newest.layout.shards else settings.layout).changes()
    if settings.resharding is not None:
        if others:
            return {"resharding": None}
        most = max(settings.reach, settings.resharding)
        return {"resharding": None, "shards": settings.resharding, "most_shards": most}
    if others and (unknown := _unknown(settings, others)):
        return unknown
    return {"relimiting": None} if settings.relimiting else {}


def _unknown(settings: TopicSettings, layouts: Sequence[Layout]) -> dict[str, Any]:
    """What a registry that was lost does not know, as one made it again who did not know how many shards there are."""
    latest = max(layouts, key=lambda layout: (layout.since, layout.shards))
    if latest.former or (latest.shards > settings.shards and not settings.former):
        return latest.changes()
    if latest.shards in (0, settings.shards, *settings.former):
        return {}
    # A shard has lost what it was told, but not the jobs of before.
    return Layout(settings.shards, (latest.shards, *settings.former), settings.version).changes()


def _check_limits(topic: str, settings: TopicSettings, changes: Mapping[str, Any]) -> None:
    if settings.former and changes.get("key_limited"):
        raise TopicNotEmpty(
            f"topic {topic!r} holds jobs from when it had {listed(settings.former)} shards: its keys can have limits "
            "only when it has settled"
        )


def listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
