"""``python -m benchmarks.outbox --from postgresql://…``: how fast a relay empties an outbox, and how soon after its
commit a row's job is in Redis. It creates the outbox in that database, by default an SQLite file of its own, and
removes its rows again; it starts a Redis of its own. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import Engine, create_engine, text

from streamdq import Queue, outbox
from streamdq.embedded.binary import find_server
from streamdq.outbox import rows

from .harness import body, percentile
from .server import RedisServer

TOPIC, NAMESPACE = "bench.outbox", "bench"
_RATE, _P50_MS = 5_000, 20.0
_WITHIN_S = 60.0


def fill(engine: Engine, count: int) -> None:
    """Commits rows by the thousand."""
    for start in range(0, count, 1000):
        with engine.begin() as db:
            for number in range(start, min(start + 1000, count)):
                outbox.enqueue(db, TOPIC, body(number), delay="1h", namespace=NAMESPACE)


def rate(engine: Engine, queue: Queue, command: list[str], count: int) -> float:
    """Rows a second, from the first that is in Redis to the last, by a relay in a process of its own."""
    fill(engine, count)
    with subprocess.Popen(command) as process:
        try:
            began, first = 0.0, 0
            until = time.monotonic() + _WITHIN_S
            while time.monotonic() < until:
                enqueued = _enqueued(queue)
                now = time.monotonic()
                if not began and enqueued:
                    began, first = now, enqueued
                if enqueued == count:
                    return (count - first) / (now - began)
                time.sleep(0.005)
        finally:
            process.terminate()
    raise TimeoutError(f"{_enqueued(queue)} of {count} rows were relayed")


def _enqueued(queue: Queue) -> int:
    topic = queue.stats().topics.get(TOPIC)
    return topic.enqueued if topic else 0


def latencies_ms(engine: Engine, queue: Queue, command: list[str], count: int) -> list[float]:
    """From the return of each commit until Redis has the job; one every 20 ms."""
    found: list[float] = []
    with subprocess.Popen(command) as process:
        try:
            for number in range(count + 1):  # the first waits for the relay to start
                with engine.begin() as db:
                    outbox.enqueue(db, TOPIC, body(number), delay="1h", id=f"late-{number}", namespace=NAMESPACE)
                committed = time.perf_counter()
                while queue.get(TOPIC, f"late-{number}") is None:
                    pass
                found.append((time.perf_counter() - committed) * 1000)
                time.sleep(0.02)
        finally:
            process.terminate()
    return found[1:]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outbox")
    parser.add_argument(
        "--from", dest="source", help="postgresql://…, mysql://… or sqlite:///FILE; by default an SQLite file"
    )
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--commits", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RedisServer(find_server()) as server:
        source = given.source or f"sqlite:///{Path(folder) / 'outbox.db'}"
        print(f"outbox at {rows.create(source)}")
        engine = create_engine(
            source.replace("postgresql://", "postgresql+psycopg://").replace("mysql://", "mysql+pymysql://")
        )
        command = [sys.executable, "-m", "streamdq", "--url", server.url, "--namespace", NAMESPACE, "outbox", "relay"]
        os.environ["STREAMDQ_OUTBOX"] = source
        with Queue(server.url, NAMESPACE) as queue:
            queue.configure(TOPIC, create=True)
            late = latencies_ms(engine, queue, [*command, "--log-level", "warning"], given.commits)
            queue.delete_topic(TOPIC, force=True)
            fast = rate(engine, queue, [*command, "--log-level", "warning"], given.rows)
        with engine.begin() as db:
            db.execute(text("DELETE FROM streamdq_outbox WHERE namespace = :namespace"), {"namespace": NAMESPACE})
        engine.dispose()
    p50 = percentile(late, 50)
    print(f"rate     {fast:10,.0f} rows/s   (target ≥ {_RATE:,})")
    slow = f"{percentile(late, 99):.1f} p99, {max(late):.1f} longest"
    print(f"latency  {p50:10.1f} ms p50, {slow}   (target p50 ≤ {_P50_MS:g})")
    return int(fast < _RATE or p50 > _P50_MS)


if __name__ == "__main__":
    raise SystemExit(main())
