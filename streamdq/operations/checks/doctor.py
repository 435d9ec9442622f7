"""The doctor: checks whether this Redis is safe for jobs, and says what to change."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...errors import ServerUnavailable
from ...job.durability import MEMORY
from ...keys import ShardKeys
from ...link.session import Op
from ...store import namespace
from ...store.durability import Durable
from ...store.entries import ms_of
from ...store.history import history_reads
from ...store.redis_store import RedisStore
from ...store.topics.changes import listed
from ...store.topics.resharding import Walk
from ..keys.busiest import busiest
from ..topics.stats import OVERDUE_MS, Stats, stats
from ..topics.workers import workers
from .audit import audit
from .redis_server import Finding, memory_of, persistence_of, role_of, version_of, without_aof

_NEVER_MS = 10**15
_BEHIND_S = 2 * 86_400
_MANY_WAIT = 10_000
_ALL_RIGHTS = "`streamdq doctor --acl` prints the rights that it needs"


def doctor(store: RedisStore) -> Op[list[Finding]]:
    """Checks version, persistence, memory policy, levels of durability, clock, mover, orphans, consumers,
    hung handlers and dumps.
    """
    info = yield from namespace.redis_info(store.session)
    persistence = persistence_of(info)
    if persistence.verdict != "ok" and info.get("aof_enabled") != "1" and info.get("rdb_last_bgsave_status") != "err":
        persistence = yield from without_aof(store, info)
    findings = [version_of(info), persistence, memory_of(info), *role_of(info)]
    findings += yield from _rights(store)
    if any(found.verdict == "problem" and found.advice == _ALL_RIGHTS for found in findings):
        return findings  # the rest calls scripts
    findings += yield from _durability(store)
    skew_s, mover = yield from namespace.skew_and_mover(store.session)
    alive = yield from namespace.alive(store.session)
    figures = yield from stats(store)
    findings += [_clock(skew_s), _mover(figures, mover, len(alive)), *_unserved(figures)]
    audited = yield from audit(store)
    if audited.balanced:
        findings.append(Finding("ok", f"counters balance, no orphans; live jobs: {audited.left:,}"))
    else:
        findings.append(
            Finding("problem", f"counters don't balance, {len(audited.orphans):,} orphans", "run `streamdq audit`")
        )
    findings += yield from _hung(store)
    findings += yield from _resharding(store)
    return findings + (yield from _keys(store)) + (yield from _dumps(store))


def _unserved(stats: Stats) -> list[Finding]:
    """Groups with jobs that are ready, and nobody to take them."""
    return [
        Finding(
            "problem",
            f"{figures.ready:,} ready in topic {topic}, and group {group} has no consumer",
            "start a worker of this group with a handler for the topic, or `streamdq callback` if its jobs have URLs; "
            f"or remove the group: `streamdq topic configure {topic} --group NAME` with each group to keep; or "
            f"`streamdq topic delete {topic}`",
        )
        for topic, found in stats.topics.items()
        for group, figures in found.groups.items()
        if figures.ready and not figures.consumers and not found.paused
    ]


def _rights(store: RedisStore) -> Op[list[Finding]]:
    """Whether this user may run scripts, and wait for jobs, which on a Cluster needs rights of its own."""
    session = store.session
    topics = yield from store.topics.refresh()
    keys = [session.keys.mover, *(shard.ready for topic in topics for shard in store.topics.all_shards(topic))]
    missing = yield from _missing_rights(store, keys)
    if missing:
        return [Finding("problem", f"this Redis user may not run: {' '.join(missing)}", _ALL_RIGHTS)]
    if not session.is_cluster:
        return []
    if lacking := (yield from namespace.lacks_looks(session, keys)):
        return [Finding("problem", f"this Redis user may not wait for jobs: {'; '.join(lacking)}", _ALL_RIGHTS)]
    return [Finding("ok", "this Redis user may wait for jobs")]


def _missing_rights(store: RedisStore, keys: Sequence[str]) -> Op[list[str]]:
    """The commands that this user may not run on some server of these keys. One that does not answer is left out."""
    found = set[str]()
    for key in {store.session.last_node_of(key): key for key in keys}.values():
        with suppress(ServerUnavailable):
            found.update((yield from store.scripts.rights(key)))
    return sorted(found)


def _resharding(store: RedisStore) -> Op[list[Finding]]:
    """How much is where it was put before the number of shards changed."""
    found = []
    for topic, settings in (yield from store.topics.refresh()).items():
        if settings.former:
            left = yield from Walk(store.session, store.scripts, topic, settings).left()
            about, before = "" if left.exact else "about ", listed(settings.former)
            what = f"topic {topic} is still resharding: {about}{left.jobs:,} jobs and {left.taken:,} taken ids"
            found.append(Finding("ok", f"{what} are where they were put among {before} shards, not {settings.shards}"))
    return found


def _hung(store: RedisStore) -> Op[list[Finding]]:
    """Workers with threads that go on beyond their TTR, which keep their slots."""
    found = yield from workers(store, (yield from store.topics.refresh()))
    return [
        Finding(
            "problem" if one.hung >= one.slots else "advice",
            f"{one.hung:,} of the {one.slots:,} slots of worker {one.name} are taken by handlers that hang",
            "its log says where they hang: give that call a timeout below the TTR, and restart the worker",
        )
        for one in found.found
        if one.hung
    ]


def _keys(store: RedisStore) -> Op[list[Finding]]:
    """For which key most jobs of each topic wait, if that are many."""
    found = []
    for topic, settings in (yield from store.topics.refresh()).items():
        for group in settings.group_names if settings.key_limited else ():
            most = yield from busiest(store, store.topics.shards(topic), "waiting", group, 1)
            if most and most[0].waiting > _MANY_WAIT:
                found.append(
                    Finding(
                        "advice",
                        f"{most[0].waiting:,} jobs of topic {topic} wait for key {most[0].key!r} in group {group}",
                        f"see `streamdq topic keys {topic}`; a higher key_concurrency lets more of them run at once",
                    )
                )
    return found


def _durability(store: RedisStore) -> Op[list[Finding]]:
    """Whether the levels that this process and the topics ask for can be had where the jobs are."""
    found: dict[str, Finding] = {}
    for (level, _), (key, who) in (yield from _levels(store)).items():
        if level in found and found[level].verdict == "problem":
            continue
        lack = yield from Durable(store.session, level).lack(key)
        found[level] = Finding("ok", f"durable={level!r} can be had")
        if lack:
            found[level] = Finding("problem", f"{who} asks for durable={level!r}, which can't be had", lack)
    return list(found.values())


def _levels(store: RedisStore) -> Op[dict[tuple[str, str], tuple[str, str]]]:
    """The levels that are asked for, each with a server of the jobs: a key there, and who asks for it first."""
    session, own = store.session, store.session.settings.durable
    asked = [(own, session.keys.mover, "this process")]
    for topic, settings in (yield from store.topics.refresh()).items():
        asked += [(settings.durable or own, shard.jobs, f"topic {topic}") for shard in store.topics.all_shards(topic)]
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for level, key, who in asked:
        if level != MEMORY and not session.is_fake:
            server = (session.node_of(key) or key) if session.is_cluster else ""
            found.setdefault((level, server), (key, who))
    return found


def _mover(stats: Stats, name: str | None, processes: int) -> Finding:
    if name is not None:
        return Finding("ok", f"active mover: {name}; processes that would take its place: {max(0, processes - 1):,}")
    waits = any(topic.overdue_ms > OVERDUE_MS and not topic.paused for topic in stats.topics.values())
    return Finding(
        "problem" if waits else "advice",
        "no mover is active" + (", and jobs are due" if waits else ""),
        "start a worker: due jobs stay in the bucket until then",
    )


def _dumps(store: RedisStore) -> Op[list[Finding]]:
    """How many rows Redis keeps for registered dumps; it keeps them until the dumps have them."""
    lacking: dict[str, int] = {}
    oldest: dict[str, int] = {}
    shards = [shard for topic in (yield from store.topics.refresh()) for shard in store.topics.all_shards(topic)]
    for shard in (yield from _dumped(store, shards)):
        dumps, since, written = yield from history_reads.undumped(store.session, shard)
        for dump in dumps:
            lacking[dump.id] = lacking.get(dump.id, 0) + max(0, written - dump.written)
            if written > dump.written:
                last = since if since and dump.mark == "0-0" else dump.mark
                oldest[dump.id] = min(oldest.get(dump.id, _NEVER_MS), ms_of(last))
    now_s = (yield from namespace.redis_time_us(store.session)) // 1_000_000
    limit = store.session.settings.history_length * max(1, len(shards))
    return [
        _dump(id, rows, now_s - oldest.get(id, _NEVER_MS) // 1000, limit) for id, rows in lacking.items()
    ]  # fmt: skip


def _dumped(store: RedisStore, shards: Sequence[ShardKeys]) -> Op[list[ShardKeys]]:
    """The shards that keep history for a dump, and those that do not answer."""
    found: list[ShardKeys] = []
    lost = yield from store.scripts.stats_reached(
        [(shard, ()) for shard in shards], lambda k, stats: found.append(k) if stats.dumps else None
    )
    return [*found, *lost]


def _dump(id: str, lacking: int, behind_s: int, limit: int) -> Finding:
    if lacking > limit or behind_s > _BEHIND_S:
        return Finding(
            "advice",
            f"Redis keeps {lacking:,} rows of history that dump {id} does not have",
            f"they take memory: run `streamdq dump`, or `streamdq forget-dump {id}` if it is no longer needed",
        )
    return Finding("ok", f"dump {id} has all history rows" + (f" except {lacking:,}" if lacking else ""))


def _clock(skew_s: float) -> Finding:
    if abs(skew_s) > 0.5:
        return Finding(
            "advice",
            f"this host's clock is {skew_s:+.1f} s off Redis's",
            "delays are not affected; due times that this host computes for `at` are off",
        )
    return Finding("ok", f"clocks agree within {abs(skew_s) * 1000:.0f} ms")
