"""Consumers that are gone are taken out of their groups; those with claims, or only just idle, stay."""

from __future__ import annotations

from streamdq import Queue
from streamdq.connection import AsyncLink
from streamdq.janitor import Janitor
from streamdq.scripts import Scripts
from streamdq.session import arun, open_session
from streamdq.topics import Topics
from tests.servers import Server


async def test_only_idle_consumers_without_claims_are_removed(redis_server: Server) -> None:
    with Queue(redis_server.url) as idle, Queue(redis_server.url) as busy:
        idle.enqueue("t", {"n": 1})
        claim = idle.take("t")
        assert claim is not None
        claim.finish()
        busy.enqueue("t", {"n": 2})
        held = busy.take("t")
        assert held is not None
        assert idle.stats("t").topics["t"].groups["default"].consumers == 2

        link, session = open_session(redis_server.url, "streamdq", None, None, AsyncLink)
        scripts = Scripts(session)
        topics = Topics(session, scripts)
        await arun(link, topics.refresh())
        janitor, shard = Janitor(link, session, scripts, topics), session.keys.shard("t", 0)
        assert await janitor.tidy(shard) == 0, "idle for less than ten minutes"
        assert await janitor.tidy(shard, idle_ms=-1) == 1
        await link.close()

        assert busy.stats("t").topics["t"].groups["default"].consumers == 1
        held.finish()
        assert busy.audit().balanced
        assert busy.audit().left == 0
