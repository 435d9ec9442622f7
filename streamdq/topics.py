"""The registry of topics: what a process knows of each, and how a shard is brought up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .config import DEFAULT_GROUP, TopicSettings, topic_patch
from .errors import TopicNotEmpty, UnknownTopic
from .keys import ShardKeys
from .scripts import Scripts
from .session import Op, Session

_LEAVE_STEP = 250


class Topics:
    """A cache of the registry. It may be out of date: scripts that depend on it say so, then ``repair``."""

    def __init__(self, session: Session, scripts: Scripts) -> None:
        self._session = session
        self._scripts = scripts
        self.known: dict[str, TopicSettings] = {}
        self._served: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def shards(self, topic: str) -> list[ShardKeys]:
        return [self._session.keys.shard(topic, i) for i in range(self.known[topic].shards)]

    def refresh(self) -> Op[dict[str, TopicSettings]]:
        """Reads the whole registry: one command, unless it has lost what this process serves."""
        reply = yield from self._session.one(self._session.keys.topics, "HGETALL", self._session.keys.topics)
        found = {name.decode(): TopicSettings.decode(text) for name, text in zip(reply[::2], reply[1::2], strict=True)}
        lost = self._served.keys() - found.keys()
        self.known = found | {topic: self.known[topic] for topic in lost}
        for topic, (group, own) in list(self._served.items()):
            if topic in lost:
                yield from self.repair(topic)
            elif group not in self.known[topic].groups:
                yield from self.ensure(topic, group, own)
        return self.known

    def get(self, topic: str) -> Op[TopicSettings]:
        """The topic's settings, read once.

        Raises:
            UnknownTopic: it is not in the registry.
        """
        if topic in self.known:
            return self.known[topic]
        settings = yield from self._read(topic)
        if settings is None:
            raise UnknownTopic(f"no topic {topic!r} in namespace {self._session.keys.namespace!r}: enqueue a job to it")
        return settings

    def _read(self, topic: str) -> Op[TopicSettings | None]:
        reply = yield from self._session.one(self._session.keys.topics, "HGET", self._session.keys.topics, topic)
        if reply is None:
            return None
        self.known[topic] = TopicSettings.decode(reply)
        return self.known[topic]

    def ensure(self, topic: str, group: str | None = None, own: Mapping[str, Any] | None = None) -> Op[TopicSettings]:
        """The topic exists afterwards and has the group if one is given, with the group's ``own`` settings. A new
        topic begins with the default group; one that was configured without it stays so.
        """
        settings = yield from self._read(topic)
        if settings is None and topic in self.known:
            settings = yield from self._make_again(topic)
        elif settings is None:
            settings = yield from self._change(topic, {}, {DEFAULT_GROUP: {}}, only_new=True)
        if group is None:
            return settings
        wanted = {name: value for name, value in (own or {}).items() if value is not None}
        have = settings.groups.get(group)
        if have is None or any(getattr(have, name) != value for name, value in wanted.items()):
            settings = yield from self._change(topic, {}, {group: wanted})
        return settings

    def serve(self, topic: str, group: str, own: Mapping[str, Any]) -> Op[None]:
        """As ``ensure``; and from now on, whoever loses the topic or the group, ``refresh`` and ``repair`` here make
        them again: where a group is served, it exists.
        """
        yield from self.ensure(topic, group, own)
        self._served[topic] = (group, own)

    def _change(
        self,
        topic: str,
        changes: Mapping[str, Any],
        groups: Mapping[str, Mapping[str, Any]],
        removed: Sequence[str] = (),
        only_new: bool = False,
    ) -> Op[TopicSettings]:
        settings = yield from self._scripts.register(topic, *topic_patch(changes, groups, removed), only_new=only_new)
        self.known[topic] = settings
        yield from self._apply(topic, settings)
        return settings

    def _apply(self, topic: str, settings: TopicSettings) -> Op[None]:
        for shard in self.shards(topic):
            if not (yield from self._scripts.configure(shard, settings)):
                raise TopicNotEmpty(
                    f"topic {topic!r} holds jobs: the number of shards can change only while it is empty; "
                    "drain it, or use a new topic"
                )

    def repair(self, topic: str) -> Op[TopicSettings]:
        """After a script found our settings out of date, or Redis lost the topic: reads them anew, and brings every
        shard up to date. A topic that Redis lost (a flush) is made again as this process knew it.
        """
        settings = yield from self._read(topic)
        if settings is None:
            settings = yield from self._make_again(topic)
        else:
            yield from self._apply(topic, settings)
        if topic in self._served:
            settings = yield from self.ensure(topic, *self._served[topic])
        return settings

    def _make_again(self, topic: str) -> Op[TopicSettings]:
        known = self.known.get(topic, TopicSettings())
        # With its version: shards that were not lost ignore an older one.
        changes = known.model_dump(exclude={"groups"}, exclude_none=True)
        groups = {name: group.model_dump(exclude_none=True) for name, group in known.groups.items()}
        return (yield from self._change(topic, changes, groups or {DEFAULT_GROUP: {}}))

    def configure(self, topic: str, changes: Mapping[str, Any], groups: Sequence[str] | None) -> Op[TopicSettings]:
        """Changes settings; ``groups`` given: exactly these, others are removed with what they had open.

        Raises:
            TopicNotEmpty: another number of shards was asked for while the topic holds jobs.
        """
        before = yield from self.ensure(topic)
        removed = [name for name in before.groups if groups is not None and name not in groups]
        resharded = changes.get("shards", before.shards) != before.shards
        if resharded:
            yield from self._check_empty(topic)
        try:
            settings = yield from self._change(topic, changes, {name: {} for name in groups or ()}, removed)
        except TopicNotEmpty:
            # A job came in between: the registry goes back to what the shards have.
            yield from self._change(topic, {"shards": before.shards}, {})
            raise
        for group in removed:
            for shard in self.shards(topic):
                cursor = b"0"
                while True:
                    cursor = yield from self._scripts.leave_group(shard, group, cursor, _LEAVE_STEP)
                    if cursor == b"0":
                        break
        return settings

    def _check_empty(self, topic: str) -> Op[None]:
        for shard in self.shards(topic):
            if (yield from self._session.one(shard.jobs, "HLEN", shard.jobs)):
                raise TopicNotEmpty(
                    f"topic {topic!r} holds jobs: the number of shards can change only while it is empty; "
                    "drain it, or use a new topic"
                )

    def pause(self, topic: str, paused: bool) -> Op[None]:
        yield from self.get(topic)
        yield from self.ensure(topic)  # should Redis have lost it since
        yield from self._change(topic, {"paused": paused}, {})
