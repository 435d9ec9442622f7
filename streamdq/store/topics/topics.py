"""The topics that this process knows: their settings and shards, and how the shards come to match the registry.

A change of topology takes several calls. First the intended change is written to the registry (``resharding``,
``leaving``, ``deleting``). Any process can repeat any step. So a process that finds an unfinished change, perhaps of a
killed process, finishes it (``reconcile``). Each write to the registry names the version that it follows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...config import DEFAULT_GROUP, TopicSettings, topic_patch
from ...errors import ServerUnavailable, UnknownTopic
from ...keys import ShardKeys
from ...link.session import Op, Session, pause
from .. import namespace
from ..commands import one
from ..replies import Configured
from ..scripts import Scripts
from ..topic_settings import settings_in
from .configure_shards import ShardSettings, forgotten, owed, unknown_groups
from .misspelt import meant_by, warn_of_slips
from .registry import WAKEUPS, Registry
from .shard_state import has_schedules

_TURN_S, _LONGEST_TURN_S = 0.005, 0.5
_BRIEF_S = 0.5  # how long to wait for the registry if the cache will do
_LOST_S = 5.0  # how long not to ask it again after that

T = TypeVar("T")


class Topics:
    """A cache of the registry. It may be outdated; scripts that depend on it then say so, and the caller
    ``repair``s.
    """

    def __init__(self, session: Session, scripts: Scripts) -> None:
        self.session = session
        self.scripts = scripts
        self._registry = Registry(session)
        self._shard_settings = ShardSettings(session, scripts)
        self.known: dict[str, TopicSettings] = {}
        self._served: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._asked: set[str] = set()
        self._lost_until = 0.0

    def shards(self, topic: str) -> list[ShardKeys]:
        """The shards that may have jobs; empty for an unknown topic."""
        settings = self.known.get(topic)
        return [self.session.keys.shard(topic, i) for i in range(settings.layout.in_use)] if settings else []

    def all_shards(self, topic: str) -> list[ShardKeys]:
        """Also includes shards that the topic once used: they keep its counters and history."""
        settings = self.known.get(topic)
        return [self.session.keys.shard(topic, i) for i in range(settings.reach)] if settings else []

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
                yield from self.ensure_group(topic, group, own)
        return self.known

    def notify_missed(self) -> Op[None]:
        """Tells all processes of what has changed in the registry without a wakeup: somebody changed it by hand, or
        Redis has lost it.
        """
        if unannounced := sorted(self._registry.unannounced):
            yield from namespace.wake_all(self.session, unannounced, WAKEUPS)
            self._registry.unannounced.difference_update(unannounced)

    def get(self, topic: str, *, anew: bool = False, within_s: float = float("inf")) -> Op[TopicSettings]:
        """The topic's settings, from the cache unless ``anew``.

        Raises:
            UnknownTopic: it is not in the registry.
        """
        settings = self.known.get(topic)
        if settings is None or anew:
            settings = (yield from self.read(topic, within_s)) or settings  # a lost registry will be restored
        if settings is None:
            raise self.unknown(topic, meant_by(topic, (yield from self.names(within_s))))
        return settings

    def names(self, within_s: float = float("inf")) -> Op[set[str]]:
        """Of all topics, as they are in the registry now."""
        return set((yield from self._registry.look(within_s)))

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
        if known is None or not self.session.is_cluster:
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
        where = f"no topic {topic!r} in namespace {self.session.keys.namespace!r}"
        hint = "check its name." if meant is None else f"did you mean {meant!r}?"
        return UnknownTopic(f"{where}: {hint} A topic is made by its first job, a worker or configure")

    def read(self, topic: str, within_s: float = float("inf")) -> Op[TopicSettings | None]:
        """Reads the topic's settings from the registry; None if it has none."""
        key = self.session.keys.topics
        reply = yield from one(self.session, key, "HGET", key, topic, within_s=within_s)
        if reply is None:
            return None
        self.known[topic] = settings = settings_in(reply)
        return settings

    def ensure(self, topic: str) -> Op[TopicSettings]:
        """Creates the topic if it does not exist, with the default group; one that was configured without that group
        stays without it.
        """
        settings = yield from self.read(topic)
        if settings is not None:
            return settings
        if topic not in self.known:  # a producer makes it, and nobody serves it yet
            yield from warn_of_slips(self, frozenset([topic]))
        return (yield from self._make(topic))

    def ensure_group(self, topic: str, group: str, own: Mapping[str, Any]) -> Op[TopicSettings]:
        """As ``ensure``, and the ``group`` with its ``own`` settings."""
        wanted = {name: value for name, value in own.items() if value is not None}
        settings = (yield from self.read(topic)) or (yield from self._make(topic, {group: wanted}))
        have = settings.groups.get(group)
        if have is None or any(getattr(have, name) != value for name, value in wanted.items()):
            settings = yield from self.change(topic, {}, {group: wanted})
        return settings

    def cached(self, topic: str) -> TopicSettings | None:
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
        if waited and (settings := self.cached(topic)) is not None:
            return settings
        self._asked.add(topic)
        try:
            return (yield from ask(topic))
        finally:
            self._asked.discard(topic)

    def serve(self, topic: str, group: str, own: Mapping[str, Any]) -> Op[None]:
        """Creates the topic and the group unless they exist. From now on, if one of them is lost or removed,
        ``refresh`` and ``repair`` in this process create it again: a group that is served exists.
        """
        yield from self.ensure_group(topic, group, own)
        self._served[topic] = (group, own)

    def repair(self, topic: str) -> Op[TopicSettings]:
        """For use after a script found our settings out of date, or Redis lost the topic. Like ``renew``, but creates a
        topic that Redis has lost (a flush) again, as this process knew it. If a Cluster has lost a node, the shards on
        others have been updated.
        """
        settings = yield from self.read(topic)
        try:
            settings = yield from self.reconcile(topic, settings)
        except ServerUnavailable:
            if not self.session.is_cluster:
                raise
            settings = self.known.get(topic)
        if settings is None:
            settings = yield from self._make(topic)
        if topic in self._served:
            settings = yield from self.ensure_group(topic, *self._served[topic])
        return settings

    def renew(self, topic: str) -> Op[TopicSettings | None]:
        """Reads the topic's settings anew and brings every shard up to date; None if it is not in the registry."""
        settings = yield from self.read(topic)
        return (yield from self.reconcile(topic, settings))

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
                yield from self.reconcile(topic, settings)

    def _make(self, topic: str, own: Mapping[str, Mapping[str, Any]] | None = None) -> Op[TopicSettings]:
        """Creates a topic, and in the same step groups with their ``own`` settings: nobody sees a worker's group
        without them. If this process knows the topic, Redis has lost it: then it is created as it was.
        """
        known = self.known.get(topic)
        if known is None:
            most = self.session.settings.max_topics
            settings = yield from self.register(topic, {}, {DEFAULT_GROUP: {}} | dict(own or {}), expected=0, most=most)
        else:
            # It keeps its version, because shards that were not lost ignore an older one.
            changes = known.model_dump(exclude={"groups", "leaving", "resharding", "deleting"}, exclude_none=True)
            changes |= known.layout.changes()
            groups = {name: group.model_dump(exclude_none=True) for name, group in known.groups.items()}
            settings = yield from self.register(topic, changes, groups or {DEFAULT_GROUP: {}}, expected=0)
        return (yield from self.reconcile(topic, settings)) or (yield from self._make(topic))

    def change(
        self,
        topic: str,
        changes: Mapping[str, Any],
        groups: Mapping[str, Mapping[str, Any]],
        removed: Sequence[str] = (),
        expected: int | None = None,
    ) -> Op[TopicSettings]:
        """Changes an existing topic, in the registry and in every shard; ``expected``: only if it has this version."""
        while True:
            registered = yield from self.register(topic, changes, groups, removed, expected=expected)
            settings = yield from self.reconcile(topic, registered)
            if registered is None or settings is None:  # the topic was deleted or lost meanwhile
                yield from self._make(topic)
            # A group that is leaving can come back only after it has left.
            elif not registered.leaving.keys() & groups.keys():
                return settings

    def register(
        self,
        topic: str,
        changes: Mapping[str, Any],
        groups: Mapping[str, Mapping[str, Any]],
        removed: Sequence[str] = (),
        left: Sequence[str] = (),
        expected: int | None = None,
        most: int | None = None,
    ) -> Op[TopicSettings | None]:
        """Writes changes into the registry alone; ``reconcile`` carries them out. Returns what it has afterwards, or
        None if it does not have the topic.
        """
        patch = topic_patch(changes, groups, removed, left)
        settings = yield from self.scripts.register_topic(topic, patch, expected, most)
        if settings is not None:
            self.known[topic] = settings
        return settings

    def reconcile(self, topic: str, settings: TopicSettings | None) -> Op[TopicSettings | None]:
        """Makes the shards match the registry, and completes the change recorded there; None if the topic is gone."""
        applied: TopicSettings | None = None
        while settings is not None:
            changes = forgotten(settings, applied)
            if settings.deleting and not changes:
                if (yield from self._drop(topic, settings)):
                    self.known.pop(topic, None)
                    return None
                changes = {"deleting": None}
            if changes:
                settings = yield from self.register(topic, changes, {}, expected=settings.version)
                continue
            applied, settings = settings, (yield from self._apply(topic, settings))
            if applied == settings:  # the version alone may be that of another change, made since a loss
                return settings
        return (yield from self._lost(topic, applied)) if applied is not None else None

    def _apply(self, topic: str, settings: TopicSettings) -> Op[TopicSettings | None]:
        """Applies the settings to the shards. Returns what the registry has afterwards: the same, once all agree."""
        found = yield from self._shard_settings.apply(topic, settings)
        changes, unknown = (yield from self._owing(topic, settings, found)), unknown_groups(settings, found)
        if changes:
            return (yield from self.register(topic, changes, {}, expected=settings.version))
        if settings.leaving or unknown:
            # Shards have a group that the registry does not have: the registry was lost and restored by a process that
            # did not know the group. Jobs wait for it.
            groups: dict[str, dict[str, Any]] = {name: {} for name in unknown}
            left = sorted(settings.leaving)
            return (yield from self.register(topic, {}, groups, left=left, expected=settings.version))
        # Redis may have lost the change that we carried out, with the end of its append-only file.
        return (yield from self.read(topic))

    def _lost(self, topic: str, applied: TopicSettings) -> Op[TopicSettings | None]:
        """The registry has the topic no more. If its shards are there, nobody deleted it; then it is made again."""
        return (yield from self._make(topic)) if (yield from self._shard_settings.are_there(topic, applied)) else None

    def _owing(self, topic: str, settings: TopicSettings, found: Sequence[Configured]) -> Op[dict[str, Any]]:
        """What the registry has yet to take over from the shards; if it was lost, also that the topic has schedules, or
        keys.
        """
        changes = owed(settings, found)
        if not changes and (marks := _marks(settings, found)):
            return marks
        if (
            not changes
            and not settings.scheduled
            and (yield from has_schedules(self.session, self.session.keys.shard(topic, 0)))
        ):
            return {"scheduled": True}
        return changes

    def _drop(self, topic: str, settings: TopicSettings) -> Op[bool]:
        """Deletes the topic. Returns False if it stays, because it holds jobs or receipts, or was changed meanwhile."""
        shards = [self.session.keys.shard(topic, number) for number in range(settings.reach)]
        for shard in shards:
            if not (yield from self.scripts.drop_shard(shard, settings)):
                return False
        gone = yield from self.scripts.unregister_topic(topic, settings.version)
        if gone:
            for shard in shards:  # again, as Redis may have lost it with the end of its append-only file
                yield from self.scripts.drop_shard(shard, settings)
            # Somebody may have made the topic again, at a version that these shards took for the deleted one's.
            yield from self.reconcile(topic, (yield from self.read(topic)))
        return gone


def _marks(settings: TopicSettings, found: Sequence[Configured]) -> dict[str, Any]:
    """What shards have that the registry does not know of, as it was lost."""
    there = {
        name for name in ("sharded_by_key", "linked", "prioritized") if any(getattr(shard, name) for shard in found)
    }
    return {name: True for name in there if not getattr(settings, name)}


def changing(topic: str) -> ServerUnavailable:
    return ServerUnavailable(f"topic {topic!r}: its settings were changed during the call; try again")
