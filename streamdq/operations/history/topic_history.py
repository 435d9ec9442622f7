"""The history of a topic, and the dumps that it is kept for."""

from __future__ import annotations

from collections.abc import Mapping

from ...config import MAX_BATCH
from ...link.session import Op
from ...store import namespace
from ...store.history import history_reads
from ...store.history.rows import HistoryPage, row_in
from ...store.redis_store import RedisStore
from ..known import topic_names


def history(store: RedisStore, topic: str, after: Mapping[int, str] | None = None) -> Op[HistoryPage]:
    """The topic's history, oldest rows first, at most 500 per shard. For the next page, pass this page's ``after``."""
    yield from topic_names(store, topic)
    page = HistoryPage(after=dict(after or {}))
    for number, shard in enumerate(store.topics.all_shards(topic)):
        after_entry = page.after.get(number, "")
        entries = yield from history_reads.rows_after(store.session, shard, after_entry, MAX_BATCH)
        page.rows += [row_in(topic, number, entry.decode(), fields[1].decode()) for entry, fields in entries]
        if entries:
            page.after[number] = entries[-1][0].decode()
    return page


def forget_dump(store: RedisStore, dump: str) -> Op[bool]:
    """Unregisters the dump with this id: Redis no longer keeps history for it. False: no such dump."""
    found = yield from namespace.remove_dump(store.session, dump)  # first: rows from now on are not kept for it
    for topic in (yield from store.topics.refresh()):
        for shard in store.topics.all_shards(topic):
            held = yield from store.scripts.register_dump(shard, dump)
            found = found or held.known
    return found
