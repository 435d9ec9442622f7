"""What priorities cost a topic that has them. Without them, the same scripts run as before (`drain`, `move`)."""

from __future__ import annotations

from dataclasses import replace

from streamdq import NewJob, Queue
from streamdq.job.job import Priority
from streamdq.link.connection import Link
from streamdq.link.opening import open_session
from streamdq.link.session import run
from streamdq.store.scripts import Scripts

from .drain import Drained, drained
from .figures import Figure
from .harness import BATCH, GROUP, NAMESPACE, SHARD, TOPIC, Bench, in_turn, median, new_jobs, spread
from .server import RedisServer

_ROUNDS = 3
_CLASSES: tuple[Priority | None, ...] = ("high", None, "low")


def priorities(bench: Bench) -> list[Figure]:
    """Draining jobs of three priorities and of none, with their moves; and what a ready one adds to Redis's memory."""
    count, few = bench.jobs(50_000), bench.jobs(20_000)
    runs: dict[bool, list[Drained]] = {False: [], True: []}
    commands: dict[bool, list[float]] = {False: [], True: []}

    def drain(ranked: bool) -> float:
        per_s = drained(server, 1, runs[ranked], _jobs(count, ranked))
        commands[ranked].append(_commands(server) / count)
        return per_s

    with bench.server() as server:
        plain, with_them = in_turn(bench.rounds(_ROUNDS), lambda: drain(False), lambda: drain(True))
        bytes_plain, bytes_ranked = _bytes(server, few, False), _bytes(server, few, True)
    raw = {"jobs": count, "plain": spread(plain), "with": spread(with_them)}
    us = {ranked: min(one.redis_us for one in those) for ranked, those in runs.items()}
    of_redis = {ranked: median(those) for ranked, those in commands.items()}
    return [
        Figure("priorities", "drain, three priorities", median(with_them), "/s", median(plain), "none", raw=raw),
        Figure("priorities", "CPU of Redis for a job", us[True], "µs", us[False], "none"),
        Figure("priorities", "commands for a job, those inside scripts", of_redis[True], "", of_redis[False], "none"),
        Figure("priorities", "memory of a ready job", bytes_ranked, "B", bytes_plain, "none"),
    ]


def _jobs(count: int, ranked: bool) -> list[NewJob]:
    jobs = new_jobs(count)
    return [replace(job, priority=_CLASSES[i % 3]) for i, job in enumerate(jobs)] if ranked else jobs


def _commands(server: RedisServer) -> float:
    """Commands since the server was emptied, those that scripts send among them, without the calls of scripts."""
    stats = server.info("commandstats")
    others = ("cmdstat_info", "cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall", "cmdstat_config", "cmdstat_slowlog")
    return float(sum(row["calls"] for name, row in stats.items() if not name.startswith(others)))


def _bytes(server: RedisServer, count: int, ranked: bool) -> float:
    server.empty()
    with Queue(server.url, NAMESPACE) as queue:
        queue.enqueue_many(TOPIC, _jobs(2, ranked))  # the topic, its mark and its keys
        before = server.memory_bytes()
        queue.enqueue_many(TOPIC, _jobs(count, ranked))
    link, session = open_session(server.url, NAMESPACE, None, None, Link)
    while run(link, Scripts(session).move(SHARD, (GROUP,), BATCH, prioritized=ranked)).moved > 0:
        pass
    link.close()
    ready = server.count(SHARD.counts, f"ready:{GROUP}")
    if ready != count + 2:
        raise RuntimeError(f"{ready} jobs are ready, not {count + 2}")
    return (server.memory_bytes() - before) / count
