"""What a topic is in Redis, and changes of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...config import TopicSettings
from ...errors import TooManyTopics
from ...keys import ShardKeys
from ...link.command import Behind
from ...link.session import Op
from ..assembly import keys_of
from ..calling import KeysAndArgs, ScriptCalls, Spread
from ..jobs.members import id_in
from ..replies import Configured, ListedIds, configured_in
from ..topic_settings import settings_in


class TopicScripts(ScriptCalls):
    def register_topic(
        self, topic: str, patch: tuple[str, str, str, str], expected: int | None = None, most: int | None = None
    ) -> Op[TopicSettings | None]:
        """The settings afterwards; None if there is no such topic. ``patch``: see config.topic_patch. ``expected``:
        change nothing if the topic has another version by now; 0: create the topic if it is missing. ``most``: refuse a
        new topic if there are this many.

        Raises:
            TooManyTopics
        """
        version = "" if expected is None else expected
        reply = yield from self._run(
            "register_topic",
            keys_of("register_topic", self._session.keys),
            (topic, *patch, version, "" if most is None else most),
        )
        if reply == 0:
            raise TooManyTopics(
                f"topic {topic!r} would be one too many: there are {most} already; delete those that are no longer "
                "wanted (`streamdq topic delete`), or raise STREAMDQ_MAX_TOPICS"
            )
        return settings_in(reply) if reply is not None else None

    def unregister_topic(self, topic: str, version: int) -> Op[bool]:
        """Returns False if the topic has another version by now; it stays."""
        reply = yield from self._run(
            "unregister_topic", keys_of("unregister_topic", self._session.keys), (topic, version)
        )
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
    def _configuring(k: ShardKeys, settings: TopicSettings, dumps: Iterable[str]) -> KeysAndArgs:
        groups, leaving = settings.group_names, sorted(settings.leaving)
        stored_text = "0" if settings.resharding is not None else settings.layout.stored_text
        keys = keys_of("configure_shard", k, groups=groups, leaving=leaving)
        names = (",".join(groups), ",".join(leaving), ",".join(sorted(dumps)))
        return keys, (settings.version, stored_text, *names, *settings.shard_fields())

    def leave_group(self, k: ShardKeys, group: str, limit: int) -> Op[bool]:
        """Returns True if there is more to do, False if the group is gone from the shard."""
        reply = yield from self._run("leave_group", *self._leaving(k, group, limit))
        return bool(reply == 1)

    def leave_each(self, leaving: Sequence[tuple[ShardKeys, str, int]]) -> Op[list[bool]]:
        """As leave_group, of shards of one node, in one call."""
        replies = yield from self._run_each("leave_group", [self._leaving(*one) for one in leaving], True)
        return [reply == 1 for reply in replies]

    def _leaving(self, k: ShardKeys, group: str, limit: int) -> KeysAndArgs:
        keys = keys_of("leave_group", k)
        return keys, (self._now(), group, limit)

    def apply_key_limit(self, k: ShardKeys, limit: int) -> Op[bool]:
        """Returns True if there is more to do, False if the limit of keys is applied to all jobs that wait."""
        keys = keys_of("apply_key_limit", k)
        reply = yield from self._run("apply_key_limit", keys, (self._now(), limit))
        return bool(reply == 1)

    def pause_key(self, k: ShardKeys, settings: TopicSettings, key: str, paused: bool) -> Op[int]:
        """1: done; 0: it goes on, call again to admit the rest of its jobs; -1: the topic has no limit of keys; or
        OUTDATED.
        """
        keys = keys_of("pause_key", k)
        reply: int = yield from self._run("pause_key", keys, (self._now(), settings.layout.text, key, int(paused)))
        return reply

    def list_ids(self, k: ShardKeys, spread: Spread, kind: str, cursor: bytes, limit: int) -> Op[ListedIds | None]:
        """``kind``: jobs or taken. None: the caller's settings are out of date. The server that has read the page tells
        in the same call which one it is: while a slot migrates, it may be another one than that of the page before.
        """
        keys, args = keys_of("list_ids", k), (self._now(), spread, kind, cursor, limit)
        yield from self.check_rights(keys[:1])
        about = Behind(k.jobs, ("INFO", "server"))
        reply, server = yield from self._replies("list_ids", [(keys, args)], self._session.call, True, [about])
        if self._checked(reply) is None:
            return None
        following, puts, *flat = reply
        names = [id_in(value) for value in flat]
        return ListedIds(following, puts, list(zip(names[::2], names[1::2], strict=True)), server)

    def drop_shard(self, k: ShardKeys, settings: TopicSettings) -> Op[bool]:
        """Returns False if the shard holds jobs, schedules or receipts and ``settings.deleting`` does not force it."""
        keys = keys_of("drop_shard", k, groups=(*settings.groups, *settings.leaving))
        force = int(settings.deleting == "force")
        reply = yield from self._run("drop_shard", keys, (settings.version, force))
        return bool(reply == 1)
