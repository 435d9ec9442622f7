"""Chaos: producers, operators and worker processes go on while everything around them fails and changes at random.

    python -m tests.crash.chaos --minutes 20 [--seed N]

Workers are killed and stopped. Redis is restarted and killed (its append-only file is written at once), goes back to
where it was a second ago, hangs, refuses writes; connections are cut, scripts flushed, junk is put into streams. Groups
come and go, a topic gets other shards, topics are paused; jobs are cancelled, rescheduled and kicked. Meanwhile the
audit must balance at each sample. In the end nothing may be lost, early, started after it was cancelled or while its
topic was paused, and no key, entry, connection or memory may be left. Ends with 1 if any is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import redis

from streamdq import NewJob, Queue
from streamdq.errors import ServerError, StaleClaim, StreamdqError, TopicNotEmpty
from streamdq.job.job import Priority
from tests.crash import faults
from tests.crash.faults import log_of
from tests.crash.worker_processes import Line, WorkerProcess, WorkerProcesses
from tests.crash.workers import Options, Work
from tests.leaks import leaked_keys
from tests.servers import Server, binaries
from tests.waiting import until

TOPICS = ("orders", "mails", "shardy")
PRIORITIES: dict[str, tuple[Priority | None, ...]] = {
    "orders": (None,),
    "mails": ("high", None, "low"),
    "shardy": (None, None, "low"),
}
SAMPLE_S = 5.0
GRACE_MS = 1.0  # Redis tells whole milliseconds
WORKERS = (("default", "orders"), ("default", "orders"), ("default", "orders"), ("audit", "mails"))


Key = tuple[str, str]  # topic, id


@dataclass
class Promises:
    """What Redis has said, by (topic, id). Times are this machine's."""

    due: dict[Key, float] = field(default_factory=dict)  # ms
    accepted: dict[Key, float] = field(default_factory=dict)
    unsure: set[Key] = field(default_factory=set)  # no answer, or it was undone: it may be in or not
    cancelled: dict[Key, float] = field(default_factory=dict)
    # called, answered, due in ms
    rescheduled: dict[Key, list[tuple[float, float, float]]] = field(default_factory=lambda: defaultdict(list))
    paused: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    buried: set[str] = field(default_factory=set)  # ids: kicked, they start whatever they were rescheduled to elsewhere
    faults: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    undone: int = 0  # times

    def accept(self, key: Key, due_ms: float, undone: int) -> None:
        """``undone``: as it was when the call began. If it is more now, the answer may be one that Redis has forgotten
        before it is noted here.
        """
        if key in self.due:
            self.broken.append(f"{key} was put in twice, so nobody knows when it is due")
        self.due[key] = due_ms
        self.accepted[key] = time.time()
        if undone < self.undone:
            self.unsure.add(key)

    def cancel(self, key: Key, undone: int) -> None:
        self.cancelled[key] = time.time()
        if undone < self.undone:
            self.cancelled.pop(key, None)
            self.unsure.add(key)

    def reschedule(self, key: Key, called: float, due_ms: float, undone: int) -> None:
        self.rescheduled[key].append((called, time.time(), due_ms))
        if undone < self.undone:
            self.unsure.add(key)

    def undo(self, since: float) -> None:
        """Redis has forgotten what it said since then."""
        self.undone += 1
        for key in [key for key, at in self.accepted.copy().items() if at >= since]:
            self.unsure.add(key)
        for key in [key for key, at in self.cancelled.copy().items() if at >= since]:
            self.cancelled.pop(key, None)
            self.unsure.add(key)
        for key, changes in self.rescheduled.copy().items():
            if any(answered >= since for _, answered, _ in changes):
                self.unsure.add(key)

    def due_at(self, key: Key, at: float) -> float:
        """When the job was due, in ms, as things stood at that moment; the sooner while a call was under way."""
        due = self.due.get(key, 0.0)
        for called, answered, changed in self.rescheduled[key]:
            if answered <= at:
                due = changed
            elif called <= at:
                due = min(due, changed)
        return due


class Chaos:
    """One run."""

    def __init__(self, seed: int, minutes: float, directory: Path) -> None:
        self.dice = random.Random(seed)
        self.until = time.monotonic() + minutes * 60
        self.said = Promises()
        binary = binaries()[-1]
        options = {"appendfsync": "always", "auto-aof-rewrite-percentage": "0"}
        self.server = self.place = Server(binary, appendonly=True, options=options)
        self.processes = WorkerProcesses(self.server, directory)
        self.workers: list[tuple[WorkerProcess, str]] = []
        self.stopping = threading.Event()
        self.rss: list[int] = []
        self.redis_away = threading.Lock()  # only one fault at a time touches the server
        say(f"chaos for {minutes} min, seed {seed}, {binary.name}, {self.server.directory}")

    # -- who works

    def start_worker(self, group: str) -> None:
        options = Options(topics=TOPICS, group=group, concurrency=20, ttr="2s", retry="100ms 200ms 400ms")
        self.workers.append((self.processes.start(options, grace_s=1), group))

    def queue(self) -> Queue:
        return Queue(self.server.url)

    def produce(self, number: int) -> None:
        """Puts jobs in, one by one and many at once, until it is told to stop."""
        dice, count = random.Random(self.dice.random()), 0
        with self.queue() as queue:
            while not self.stopping.is_set():
                topic = dice.choice(TOPICS[:2])
                jobs = []
                for _ in range(dice.choice((1, 1, 1, 30))):
                    count += 1
                    jobs.append(self.job(dice, topic, f"{number}-{count}"))
                self.put(queue, topic, jobs)
                self.stopping.wait(dice.random() * 0.2)

    def job(self, dice: random.Random, topic: str, id: str) -> NewJob:
        kind = dice.random()
        work = Work(ms=dice.choice((0, 0, 1, 5, 20, 200)), fail=1 if kind < 0.1 else 0, bury=kind > 0.98)
        if work.bury:
            self.said.buried.add(id)
        delay = dice.choice((0, 0, dice.random() * 5))
        return NewJob(body=asdict(work), id=id, delay=delay, priority=dice.choice(PRIORITIES[topic]))

    def put(self, queue: Queue, topic: str, jobs: list[NewJob]) -> None:
        keys, undone = [(topic, str(job.id)) for job in jobs], self.said.undone
        try:
            if len(jobs) == 1:
                made = queue.enqueue(topic, jobs[0].body, id=jobs[0].id, delay=jobs[0].delay, priority=jobs[0].priority)
                self.said.accept(keys[0], made.due_ms, undone)
            else:
                before_ms = time.time() * 1000
                queue.enqueue_many(topic, jobs)
                for key, job in zip(keys, jobs, strict=True):
                    due_ms = before_ms + float(job.delay or 0) * 1000  # type: ignore[arg-type]
                    self.said.accept(key, due_ms, undone)
        except ServerError:
            self.said.unsure.update(keys)

    def operate(self) -> None:
        """Cancels and reschedules what was put in a moment ago, by a queue that learnt of no change."""
        dice = random.Random(self.dice.random())
        with self.queue() as queue:
            while not self.stopping.wait(0.02):
                recent = list(self.said.due)[-200:]
                if not recent:
                    continue
                key, undone = dice.choice(recent), self.said.undone
                try:
                    if dice.random() < 0.6:
                        if queue.cancel(*key):
                            self.said.cancel(key, undone)
                    else:
                        delay_s = dice.random() * 2
                        before = time.time()
                        if queue.reschedule(*key, delay=delay_s):
                            self.said.reschedule(key, before, (before + delay_s) * 1000, undone)
                except ServerError:
                    self.said.unsure.add(key)

    def reshard(self) -> None:
        """Bursts of jobs, and another number of shards between them, while producers count on the old one."""
        dice, count = random.Random(self.dice.random()), 0
        stale = [self.queue() for _ in range(3)]
        with self.queue() as queue:
            while not self.stopping.is_set():
                # A number of its own, whatever fails: of a job that is put in twice nobody knows when it is due.
                count += 1
                racing = threading.Thread(target=self.burst, args=(stale[count % 3], dice.random(), count))
                racing.start()
                try:
                    with contextlib.suppress(TopicNotEmpty):  # jobs from before its last changes are there
                        changed = queue.configure("shardy", shards=dice.choice((1, 2, 4, 8)))
                        self.said.faults["shards changed under jobs" if changed.former else "shards changed"] += 1
                    racing.join()
                    empty_by = time.monotonic() + (20 if count % 3 == 0 else 0.3)
                    while queue.stats("shardy").topics["shardy"].jobs and time.monotonic() < empty_by:
                        if self.stopping.wait(0.2):
                            break
                        queue.kick("shardy")
                        queue.kick("shardy", group="audit")
                except ServerError:
                    self.stopping.wait(0.2)
                racing.join()
        for each in stale:
            each.close()

    def burst(self, queue: Queue, seed: float, number: int) -> None:
        dice = random.Random(seed)
        time.sleep(dice.random() * 0.02)
        jobs = [NewJob(body=asdict(Work()), id=f"burst-{number}-{n}", delay=dice.random() / 2) for n in range(20)]
        self.put(queue, "shardy", jobs)

    # -- what goes wrong

    def fault(self) -> None:
        chances: list[tuple[int, Callable[[], None]]] = [
            (6, self.kill_worker), (6, self.stop_worker), (3, self.end_worker), (2, self.restart_redis),
            (2, self.kill_redis), (3, self.cut_connections), (3, self.change_groups), (3, self.pause), (3, self.kick),
            (2, self.stop_redis), (2, self.cut_power), (6, self.harm_redis),
        ]  # fmt: skip
        chosen = self.dice.choices([each for _, each in chances], [weight for weight, _ in chances])[0]
        try:
            chosen()
        except (StreamdqError, redis.RedisError) as error:
            self.said.faults[f"{chosen.__name__} met {type(error).__name__}"] += 1
        else:
            self.said.faults[chosen.__name__.replace("_", " ")] += 1

    def harm_redis(self) -> None:
        """One of the faults that have a row in the table, too."""
        harm = self.dice.choice([
            faults.memory_full, faults.read_only, faults.no_replicas, faults.busy_script, faults.writes_paused,
            faults.scripts_flushed, faults.junk,
        ])  # fmt: skip
        with self.redis_away:
            harm(self)
        self.said.faults[harm.__name__.replace("_", " ")] += 1

    def victim(self) -> int:
        return self.dice.randrange(1, len(self.workers))  # the first lives on: its memory is watched

    def kill_worker(self) -> None:
        worker, group = self.workers.pop(self.victim())
        worker.kill()
        self.start_worker(group)

    def end_worker(self) -> None:
        worker, group = self.workers.pop(self.victim())
        worker.signal(signal.SIGTERM)
        worker.wait()
        self.start_worker(group)

    def stop_worker(self) -> None:
        worker, _ = self.dice.choice(self.workers)
        worker.signal(signal.SIGSTOP)
        time.sleep(self.dice.choice((0.3, 1.0, 3.0, 5.0)))
        worker.signal(signal.SIGCONT)

    def restart_redis(self) -> None:
        with self.redis_away:
            self.server.stop()
            time.sleep(self.dice.random())
            self.server.start()

    def kill_redis(self) -> None:
        with self.redis_away:
            self.server.kill()
            time.sleep(self.dice.random())
            self.server.start()

    def cut_connections(self) -> None:
        with self.server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)

    def stop_redis(self) -> None:
        with self.redis_away:
            os.kill(self.server.pid, signal.SIGSTOP)
            time.sleep(self.dice.choice((0.3, 3.0, 7.0)))
            os.kill(self.server.pid, signal.SIGCONT)

    def cut_power(self) -> None:
        """Redis goes back by up to a second, as if it had not been told to write at once."""
        with self.redis_away:
            log, since = log_of(self.server), time.time()
            size = log.stat().st_size
            time.sleep(self.dice.random())
            self.server.kill()
            self.said.undo(since - 0.1)
            with log.open("r+b") as file:
                file.truncate(size)
            self.server.start()

    def change_groups(self) -> None:
        """A group comes, takes some jobs, ends some, and goes."""
        topic = self.dice.choice(TOPICS[:2])
        with self.queue() as queue:
            try:
                queue.configure(topic, groups=["default", "audit", "extra"])
                claims = [queue.take(topic, "extra", timeout=0) for _ in range(10)]
                for claim in claims[:5]:
                    if claim:
                        claim.finish()
            finally:
                self.remove_extra(topic)
            for claim in claims[5:]:
                if claim:
                    with contextlib.suppress(StaleClaim):
                        claim.finish()
                        self.said.broken.append(f"a claim of a removed group ended {topic} {claim.job.id}")

    def remove_extra(self, topic: str) -> None:
        with self.queue() as queue:
            while True:
                try:
                    queue.configure(topic, groups=["default", "audit"])
                except ServerError:
                    time.sleep(0.1)
                else:
                    return

    def pause(self) -> None:
        topic = self.dice.choice(TOPICS[:2])
        with self.queue() as queue:
            try:
                queue.pause(topic)
                begun = time.time()
                time.sleep(self.dice.random())
                self.said.paused[topic].append((begun, time.time()))
            finally:
                while True:
                    try:
                        queue.resume(topic)
                    except ServerError:
                        time.sleep(0.1)
                    else:
                        break

    def kick(self) -> None:
        with self.queue() as queue:
            for topic in TOPICS[:2]:
                queue.kick(topic, group=self.dice.choice(("default", "audit")))

    # -- what must hold

    def sample(self) -> None:
        with self.redis_away, self.server.client(decode_responses=True) as client:
            until(client.ping, "Redis answers")
            audit = self.processes.queue.audit()
            clients = int(client.info("clients")["connected_clients"])
        if not audit.balanced:
            off = [balance for balance in audit.balances if balance.imbalance]
            self.said.broken.append(f"audit: {off} {audit.orphans[:5]}")
        status = Path(f"/proc/{self.workers[0][0].pid}/status").read_text()
        self.rss.append(int(status.partition("VmRSS:")[2].split()[0]))
        say(
            f"{time.strftime('%H:%M:%S')} in {len(self.said.due)} live {audit.left} connections {clients} "
            f"rss {self.rss[-1] // 1024} MB broken {len(self.said.broken)}",
        )  # fmt: skip

    def run(self) -> int:
        for topic in TOPICS:
            self.processes.queue.configure(topic, groups=["default", "audit"], max_deliveries=1000, ttr="2s")
        for group, _ in WORKERS:
            self.start_worker(group)
        for worker, _ in self.workers:
            self.processes.serving(worker)
        at_work = [threading.Thread(target=self.produce, args=(n,)) for n in range(2)]
        at_work += [threading.Thread(target=self.operate), threading.Thread(target=self.reshard)]
        sampler = threading.Thread(target=self.sampling)
        for thread in (*at_work, sampler):
            thread.start()
        while time.monotonic() < self.until:
            time.sleep(self.dice.random() * 3)
            self.fault()
        self.stopping.set()
        for thread in (*at_work, sampler):
            thread.join()
        self.quiesce()
        return self.verdict()

    def sampling(self) -> None:
        while not self.stopping.wait(SAMPLE_S):
            try:
                self.sample()
            except (StreamdqError, redis.RedisError, TimeoutError) as error:
                self.said.faults[f"sample met {type(error).__name__}"] += 1

    def quiesce(self) -> None:
        """Nothing goes wrong any more: what is left is done, dead letters are purged, workers end."""
        for topic in TOPICS[:2]:
            self.remove_extra(topic)
        with contextlib.suppress(TimeoutError):
            until(lambda: not self.processes.live(), "no job is left", 120)
        self.sample()
        self.dead = {
            (topic, group, job.id)
            for topic in TOPICS
            for group in ("default", "audit")
            for job in self.processes.queue.dead(topic, group, limit=100_000)
        }
        for topic in TOPICS:
            for group in ("default", "audit"):
                self.processes.queue.purge(topic, group=group, all=True)
        for worker, _ in self.workers:
            worker.signal(signal.SIGTERM)
        for worker, _ in self.workers:
            worker.wait()

    def verdict(self) -> int:
        broken = self.said.broken
        self.check_jobs()
        with self.server.client(decode_responses=True) as client:
            for key in client.scan_iter(count=1000):
                size = {"hash": client.hlen, "zset": client.zcard, "stream": client.xlen}.get(client.type(key))
                kind = key.rpartition("}:")[2].split(":")[0]
                if size and kind in ("jobs", "bucket", "ready", "progress", "dead") and (left := size(key)):
                    broken.append(f"{key} holds {left}")
            until(lambda: client.info("clients")["connected_clients"] <= 3, "all connections are closed")
        with self.server.client() as client:
            broken += [f"key without an owner: {key}" for key in leaked_keys(client)]
        first, last = self.rss[len(self.rss) // 4], self.rss[-1]
        if last > first * 1.25 + 10_000:
            broken.append(f"the worker that lived grew from {first} to {last} KB")
        starts = sum(self.processes.journal.count("start").values())
        say(json.dumps({
            "enqueued": len(self.said.due), "unsure": len(self.said.unsure), "cancelled": len(self.said.cancelled),
            "rescheduled": sum(map(len, self.said.rescheduled.values())), "starts": starts,
            "faults": dict(self.said.faults), "broken": len(broken),
        }, indent=2))  # fmt: skip
        for line in broken[:40]:
            say(f"BROKEN {line}")
        return 1 if broken else 0

    def check_jobs(self) -> None:
        """The journal tells what the handlers did, Redis what it had said."""
        group_of = {worker.pid: json.loads(worker.text)["group"] for worker in self.processes.workers}
        ended: dict[str, set[Key]] = {"default": set(), "audit": set()}
        for line in self.processes.journal.lines():
            if line.what == "end":
                ended[group_of[line.pid]].add((line.topic, line.id))
            elif line.what == "start":
                self.check_start(line)
        for group, done in ended.items():
            for key in self.said.due.keys() - self.said.unsure - self.said.cancelled.keys() - done:
                if (key[0], group, key[1]) not in self.dead:
                    self.said.broken.append(f"lost for {group}: {key}")

    def check_start(self, line: Line) -> None:
        key, said = (line.topic, line.id), self.said
        kicked = line.attempt > 1 and line.id in said.buried
        if key not in said.unsure and not kicked and line.at * 1000 < (due := said.due_at(key, line.at)) - GRACE_MS:
            said.broken.append(f"early by {due - line.at * 1000:.0f} ms: {line}")
        if line.at > said.cancelled.get(key, float("inf")):
            said.broken.append(f"started {line.at - said.cancelled[key]:.3f} s after it was cancelled: {line}")
        for begun, over in said.paused[line.topic]:
            if begun < line.at < over:
                said.broken.append(f"started {line.at - begun:.3f} s after its topic was paused: {line}")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamdq-chaos-") as directory:
        chaos = Chaos(options.seed, options.minutes, Path(directory))
        try:
            return chaos.run()
        finally:
            chaos.processes.close()
            chaos.server.close()


if __name__ == "__main__":
    sys.exit(main())
