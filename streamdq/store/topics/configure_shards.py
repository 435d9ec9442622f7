"""Tells the shards of a topic its settings, and finds out what they know that the registry does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, TypeVar

from ...config import Layout, TopicSettings
from ...errors import ServerUnavailable
from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, Session, checked
from .. import namespace
from ..batches import most_jobs
from ..replies import Configured
from ..scripts import Scripts

_LEAVE_STEP = 150
_KEYS_STEP = 20
_LEAVE_LOOKS = 5  # how often leave_group reads or deletes each group's progress with a job
_SHARDS_AT_ONCE = 16  # each takes Redis some ms if it makes a hundred groups
_LEAVING_AT_ONCE = 100

T = TypeVar("T")


class ShardSettings:
    """Brings settings to the shards of topics."""

    def __init__(self, session: Session, scripts: Scripts) -> None:
        self._session = session
        self._scripts = scripts

    def are_there(self, topic: str, settings: TopicSettings) -> Op[bool]:
        """Whether any of them is there."""
        keys = [self._session.keys.shard(topic, number).settings for number in range(settings.reach)]
        replies = yield from self._session.call([Command(key, ("HEXISTS", key, "shards")) for key in keys])
        return any(checked(reply) for reply in replies)

    def apply(self, topic: str, settings: TopicSettings) -> Op[list[Configured]]:
        """Configures every shard, and removes leaving groups; returns the last reply of each shard. If a Cluster has
        lost a node, the shards on others are updated before that is raised, so that they go on.

        The topic is in the registry by now, and a dump registers itself first and then with all topics there. So a dump
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
            nodes.setdefault(self._session.last_node_of(shard.settings), []).append(shard)
        return list(nodes.values())

    def _tell(
        self, shards: Sequence[ShardKeys], settings: TopicSettings, dumps: Iterable[str]
    ) -> Op[dict[ShardKeys, Configured]]:
        """Shards of one node, in few calls: there may be hundreds, with a hundred groups that leave each."""
        found = dict[ShardKeys, Configured]()
        waiting = list(shards)
        while waiting:
            replies = dict(
                zip(waiting, (yield from self._scripts.configure_each(waiting, settings, dumps)), strict=True)
            )
            yield from self._leave(
                [
                    (shard, group, most_jobs(_LEAVE_STEP, _LEAVE_LOOKS * len(one.groups)))
                    for shard, one in replies.items()
                    for group in one.leaving
                ]
            )
            found |= replies
            waiting = [shard for shard, one in replies.items() if one.leaving]
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


def _parts(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (items[i : i + most] for i in range(0, len(items), most))


def unknown_groups(settings: TopicSettings, shards: Sequence[Configured]) -> set[str]:
    return {group for shard in shards for group in shard.groups} - settings.groups.keys()


def forgotten(settings: TopicSettings, applied: TopicSettings | None) -> dict[str, Any]:
    """What a registry that was lost and made again does not know of: shards that these settings may have made."""
    return {} if applied is None or applied.reach <= settings.reach else {"most_shards": applied.reach}


def owed(settings: TopicSettings, shards: Sequence[Configured]) -> dict[str, Any]:
    """What the registry has yet to take over from the shards, which have ``settings``; {}: nothing."""
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
    # A shard has lost its settings, but not its earlier jobs.
    return Layout(settings.shards, (latest.shards, *settings.former), settings.version).changes()
