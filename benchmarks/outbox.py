"""``python -m benchmarks.outbox --from postgresql://…``: how fast a relay empties an outbox, and how soon after its
commit a row's job is in Redis. It creates the outbox in that database, by default an SQLite file of its own, and
removes its rows again; it starts a Redis of its own. Exit code 1 when a target is missed.

``--later 1000000``: then the same with a horizon of a day, and once more with so many rows that are due later.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Engine, String, cast, create_engine, func, insert, select, text

from streamdq import Queue, outbox
from streamdq.embedded.binary import find_server
from streamdq.outbox import rows
from streamdq.outbox.tables import ROWS

from .harness import body, percentile
from .server import RedisServer

TOPIC, NAMESPACE = "bench.outbox", "bench"
_RATE, _P50_MS = 5_000, 20.0
_WITHIN_S = 60.0
_DAY_MS = 86_400_000


def fill(engine: Engine, count: int) -> None:
    """Commits rows by the thousand."""
    for start in range(0, count, 1000):
        with engine.begin() as db:
            for number in range(start, min(start + 1000, count)):
                outbox.enqueue(db, TOPIC, body(number), delay="1h", namespace=NAMESPACE)


def fill_later(engine: Engine, count: int) -> float:
    """Adds rows that are due in 30 to 330 days, by copying those that are there; returns how long that took."""
    began = time.monotonic()
    with engine.begin() as db:
        for number in range(min(1000, count)):
            outbox.enqueue(db, TOPIC, body(number), delay="30d", namespace=NAMESPACE)
    names = [column.name for column in ROWS.c if column.name != "number"]
    there, waiting = min(1000, count), (ROWS.c.namespace == NAMESPACE, ROWS.c.state == "waiting")
    while there < count:
        new = ROWS.c.number + there
        copied: dict[str, Any] = {
            "id": "later-" + cast(new, String(20)),
            "delay_ms": 30 * _DAY_MS + (new * 7_919_003) % (300 * _DAY_MS),
        }
        some = select(*(copied.get(name, ROWS.c[name]) for name in names)).where(*waiting)
        size = min(there, count - there, 200_000)
        with engine.begin() as db:
            db.execute(insert(ROWS).from_select(names, some.limit(size)))
        there += size
    with engine.begin() as db:
        if db.dialect.name != "mysql":
            db.execute(text("ANALYZE"))
        assert db.execute(select(func.count()).where(*waiting)).scalar() == count
    return time.monotonic() - began


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


_SIZES = {
    "postgresql": "SELECT pg_total_relation_size('streamdq_outbox')",
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    "mysql": "SELECT data_length + index_length FROM information_schema.tables WHERE table_name = 'streamdq_outbox'",
}


def size_bytes(engine: Engine) -> int:
    """The table on disk, with its indexes."""
    with engine.begin() as db:
        if db.dialect.name == "mysql":
            db.execute(text("ANALYZE TABLE streamdq_outbox"))
        return int(db.execute(text(_SIZES[db.dialect.name])).scalar_one())


class Measured(NamedTuple):
    late_ms: list[float]
    rate: float
    memory: int  # of Redis, with nothing relayed

    def print(self, name: str, beside: Measured | None = None) -> None:
        """``beside``: what it is compared with."""
        p50, p99 = percentile(self.late_ms, 50), percentile(self.late_ms, 99)
        print(f"{name}\n  rate     {self.rate:10,.0f} rows/s   (target ≥ {_RATE:,})")
        longest = f"{p99:.1f} p99, {max(self.late_ms):.1f} longest"
        print(f"  latency  {p50:10.1f} ms p50, {longest}   (target p50 ≤ {_P50_MS:g})")
        if beside is not None:
            before = beside.late_ms
            ratios = self.rate / beside.rate, p50 / percentile(before, 50), p99 / percentile(before, 99)
            print("  beside   {:10.2f} of the rate, {:.2f} of the p50, {:.2f} of the p99".format(*ratios))
            print(f"  memory   {self.memory - beside.memory:10,} bytes more in Redis")

    @property
    def is_missed(self) -> bool:
        return self.rate < _RATE or percentile(self.late_ms, 50) > _P50_MS


def measured(
    engine: Engine, queue: Queue, server: RedisServer, command: list[str], given: argparse.Namespace
) -> Measured:
    queue.configure(TOPIC, create=True)
    memory = server.client.info("memory")["used_memory"]
    late = latencies_ms(engine, queue, command, given.commits)
    queue.delete_topic(TOPIC, force=True)
    queue.configure(TOPIC, create=True)
    fast = rate(engine, queue, command, given.rows)
    queue.delete_topic(TOPIC, force=True)
    return Measured(late, fast, memory)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outbox")
    parser.add_argument(
        "--from", dest="source", help="postgresql://…, mysql://… or sqlite:///FILE; by default an SQLite file"
    )
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--later", type=int, default=0, help="how many rows are due beyond the horizon")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RedisServer(find_server()) as server:
        source = given.source or f"sqlite:///{Path(folder) / 'outbox.db'}"
        print(f"outbox at {rows.create(source)}")
        engine = create_engine(
            source.replace("postgresql://", "postgresql+psycopg://").replace("mysql://", "mysql+pymysql://")
        )
        command = [sys.executable, "-m", "streamdq", "--url", server.url, "--namespace", NAMESPACE, "outbox", "relay"]
        command += ["--log-level", "warning"]
        os.environ["STREAMDQ_OUTBOX"] = source
        with Queue(server.url, NAMESPACE) as queue:
            found = [measured(engine, queue, server, command, given)]
            found[0].print("without a horizon")
            if given.later:
                rows.create(source, "1d")
                found.append(measured(engine, queue, server, command, given))
                found[1].print("with a horizon", found[0])
                before = size_bytes(engine)
                took_s = fill_later(engine, given.later)
                print(
                    f"{(size_bytes(engine) - before) / given.later:,.0f} bytes on disk for each row that is due later"
                )
                found.append(measured(engine, queue, server, command, given))
                found[2].print(f"and {given.later:,} rows due later, put in within {took_s:.0f} s", found[0])
        with engine.begin() as db:
            db.execute(text("DELETE FROM streamdq_outbox WHERE namespace = :namespace"), {"namespace": NAMESPACE})
        engine.dispose()
    return int(any(each.is_missed for each in found))


if __name__ == "__main__":
    raise SystemExit(main())
