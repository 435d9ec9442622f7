"""Checks that a topic and a group exist."""

from __future__ import annotations

from ..config import TopicSettings
from ..errors import UnknownGroup
from ..job.job import check_group, check_topic
from ..link.session import Op
from ..store.redis_store import RedisStore


def known_group(store: RedisStore, topic: str, group: str, *, anew: bool = False) -> Op[TopicSettings]:
    """The topic's settings, read from the registry if ``anew`` or if the cached ones don't have the group.

    Raises:
        UnknownTopic, UnknownGroup
    """
    read = store.topics.latest if anew else store.topics.get
    settings = yield from read(check_topic(topic))
    if check_group(group) not in settings.groups:
        settings = yield from store.topics.get(topic, anew=True)
    if group not in settings.groups:
        raise UnknownGroup(
            f"topic {topic!r} has no group {group!r}, only {', '.join(settings.group_names)}; a worker of that "
            f"group or configure({topic!r}, groups=[...]) creates it"
        )
    return settings


def topic_names(store: RedisStore, topic: str | None) -> Op[list[str]]:
    """The topic's name, or the names of all topics. Reads their settings anew.

    Raises:
        UnknownTopic
    """
    if topic is None:
        return sorted((yield from store.topics.registry()))
    yield from store.topics.latest(check_topic(topic))
    return [topic]
