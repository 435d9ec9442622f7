"""What metrics cost: a worker with metrics compared with one without, and a scrape of many topics."""

from __future__ import annotations

import tempfile
from contextlib import closing

from prometheus_client import CollectorRegistry, generate_latest

from streamdq import Queue
from streamdq.exporter.exporter import RedisCollector

from .drain import Drained, drained
from .figures import Figure
from .harness import NAMESPACE, Bench, hours, in_turn, median, new_jobs, set_env, spread, timed
from .server import RedisServer

_ROUNDS = 5
_TOPICS = 200
_SCRAPES = 5


def metrics(bench: Bench) -> list[Figure]:
    """Draining with metrics off, with metrics in memory, and with metrics in files as for several processes."""
    count = bench.jobs(100_000)
    runs: dict[str, list[Drained]] = {"on": [], "files": [], "off": []}
    with bench.server() as server, tempfile.TemporaryDirectory(prefix="streamdq-bench-") as folder:

        def run(name: str, **environment: str) -> float:
            with set_env(environment):
                return drained(server, 1, runs[name], new_jobs(count))

        on, files, off = in_turn(
            bench.rounds(_ROUNDS),
            lambda: run("on"),
            lambda: run("files", PROMETHEUS_MULTIPROC_DIR=folder, STREAMDQ_PROCESS_NUMBER="0"),
            lambda: run("off", STREAMDQ_METRICS="0"),
        )
    raw = {
        "jobs": count, "on": spread(on), "files": spread(files), "off": spread(off),
        "cpu_us_per_job_of_the_worker": {name: [run.workers_us for run in those] for name, those in runs.items()},
    }  # fmt: skip
    return [
        Figure("metrics", "drain, metrics on", median(on), "/s", median(off), "metrics off",
               ratio_at_least=0.9, raw=raw),
        Figure("metrics", "drain, metrics on, in files", median(files), "/s", median(off), "metrics off",
               ratio_at_least=0.9),
    ]  # fmt: skip


def scrape(bench: Bench) -> list[Figure]:
    """The exporter's answer for 200 topics with a million waiting jobs."""
    each = bench.jobs(1_000_000 // _TOPICS)
    with bench.server() as server, Queue(server.url, NAMESPACE) as queue:
        empty = _calls_of_a_scrape(server)
        for number in range(_TOPICS):
            queue.enqueue_many(f"topic.{number}", new_jobs(each, hours))
        with closing(RedisCollector(server.url, NAMESPACE)) as collector:
            registry = CollectorRegistry()
            registry.register(collector)
            took = [timed(lambda: generate_latest(registry)) for _ in range(_SCRAPES)]
        calls = (_calls_of_a_scrape(server) - empty) / _TOPICS
    raw = {"topics": _TOPICS, "jobs": each * _TOPICS, "s": spread(took)}
    return [
        Figure("scrape", f"{_TOPICS} topics, {each * _TOPICS} jobs", max(took) * 1000, "ms", at_most=1000, raw=raw),
        Figure("scrape", "commands for each topic", calls, "", at_most=20),
    ]


def _calls_of_a_scrape(server: RedisServer) -> float:
    with closing(RedisCollector(server.url, NAMESPACE)) as collector:
        list(collector.collect())
        server.client.config_resetstat()
        list(collector.collect())
    stats = server.client.info("commandstats")
    return float(sum(row["calls"] for name, row in stats.items() if name != "cmdstat_info"))
