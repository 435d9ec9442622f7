"""Workers and jobs, millisecond by millisecond, in plain Python: what really happens with given settings. It shares
nothing with the replay of `streamdq what-if`, which is to predict it.

Workers claim as real ones do: each goes round the topics of which it knows that they have jobs, and looks at the others
now and then. A topic's first attempts are in one stream, the others in another, and claims take from both.
"""

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace

from tests.spark.logs import MONDAY
from tests.spark.plain import Happened

LOOK_MS = 10  # how often a busy worker looks at topics that had no jobs
CLAIM_MS = 2  # a worker notices a job that is ready, or a slot that is free, so much later


@dataclass
class Task:
    """A job, what its attempts take, and how many of them fail."""

    topic: str
    id: str
    due: int
    runs: list[int]
    fails: int
    buried: bool = False
    attempt: int = 0
    moved: int = 0


@dataclass(frozen=True)
class Floor:
    workers: int = 2
    each: int = 3
    retry: tuple[int, ...] = (500, 2000)
    ttr: int = 10**9
    apart: int = 0  # ms between two jobs of a topic that become ready
    report: int = 0  # ms from the end of an attempt, when its place is free, until the end is recorded
    only: str = ""  # the topic that retry, ttr and apart are for; the others have those of a plain floor

    @property
    def longest(self) -> float:
        """For so long a handler may run: it is cancelled a tenth of the TTR early, but never more than 200 ms."""
        return max(self.ttr * 9 / 10, self.ttr - 200)

    def of(self, topic: str) -> "Floor":
        return self if not self.only or topic == self.only else Floor(self.workers, self.each, report=self.report)


@dataclass
class _Ready:
    """A topic's jobs that are ready: first attempts, and others."""

    first: deque[Task] = field(default_factory=deque)
    again: deque[Task] = field(default_factory=deque)

    def put(self, task: Task) -> None:
        (self.again if task.attempt else self.first).append(task)

    def claimable(self, now: int) -> list[deque[Task]]:
        return [jobs for jobs in (self.first, self.again) if jobs and jobs[0].moved + CLAIM_MS <= now]

    def claim(self, now: int) -> Task:
        streams = self.claimable(now)
        return streams[now % len(streams)].popleft()


@dataclass
class _Worker:
    name: str
    free_since: deque[int]
    topics: deque[str] = field(default_factory=deque)
    looked: int = 0
    ends: dict[int, list[tuple[Task, int]]] = field(default_factory=lambda: defaultdict(list))

    def claim(self, ready: dict[str, _Ready], now: int) -> Task | None:
        there = [topic for topic, jobs in ready.items() if jobs.claimable(now)]
        if now - self.looked >= LOOK_MS or not set(self.topics) & set(there):
            self.looked = now
            self.topics.extend(topic for topic in there if topic not in self.topics)
        while self.topics:
            topic = self.topics.popleft()  # it is asked, and knows of others if it has none
            if topic in there:
                self.topics.append(topic)
                return ready[topic].claim(now)
        return None


def happened(tasks: list[Task], floor: Floor) -> list[Happened]:
    """The history of these jobs on this floor."""
    later: dict[int, list[Task]] = defaultdict(list)
    for task in tasks:
        later[task.due].append(replace(task))
    now, left = min(later), len(tasks)
    workers = [_Worker(f"w{n}", deque([now] * floor.each)) for n in range(floor.workers)]
    due: deque[Task] = deque()
    ready = {topic: _Ready() for topic in sorted({task.topic for task in tasks})}
    log: list[Happened] = []
    next_move: dict[str, int] = {}
    while left:
        for worker in workers:
            for task, started in worker.ends.pop(now, ()):
                worker.free_since.append(now)
                left -= _end(log, task, worker.name, started, now, floor.of(task.topic), later)
        due.extend(later.pop(now, ()))
        for task in list(due):
            if next_move.get(task.topic, 0) <= now:
                due.remove(task)
                next_move[task.topic] = now + floor.of(task.topic).apart
                task.moved = now
                ready[task.topic].put(task)
        for worker in sorted(workers, key=lambda worker: worker.free_since[0] if worker.free_since else now):
            while worker.free_since and worker.free_since[0] + CLAIM_MS <= now:
                claimed = worker.claim(ready, now)
                if claimed is None:
                    break
                worker.free_since.popleft()
                _begin(claimed, worker, now, floor.of(claimed.topic))
        now += 1
    return log


def _begin(task: Task, worker: _Worker, now: int, floor: Floor) -> None:
    task.attempt += 1
    worker.ends[now + int(min(task.runs[task.attempt - 1], floor.longest))].append((task, now))


def _end(
    log: list[Happened], task: Task, worker: str, started: int, now: int, floor: Floor, later: dict[int, list[Task]]
) -> int:
    """Writes the row; returns 1 if that was the job's end."""
    step = task.attempt - 1
    now += floor.report
    cut = task.runs[step] > floor.longest
    event, reason = "done", None
    if task.attempt <= task.fails or cut:
        event = "retry" if step < len(floor.retry) and not task.buried else "dead"
        reason = ("buried" if task.buried else "exhausted") if event == "dead" else None
    error = None if event == "done" else "TimeoutError" if cut else "OSError"
    log.append(
        Happened(
            task.topic, 0, f"{now}-{len(log)}", event, task.id, "default", task.attempt, step, worker, MONDAY, task.due,
            task.moved, started, now, error, reason, 10,
        )
    )  # fmt: skip
    if event != "retry":
        return 1
    task.due = now + floor.retry[step]
    later[task.due].append(task)
    return 0


def tasks(seed: int, jobs: int, *, over_ms: int, bursts: int = 4, fails: float = 0.2) -> list[Task]:
    """Jobs of two topics, half of them in bursts, which six slots can't do at once."""
    chance = random.Random(seed)
    peaks = [MONDAY + int(over_ms * chance.random()) for _ in range(bursts)]
    made = []
    for number in range(jobs):
        due = MONDAY + int(chance.random() * over_ms)
        if number % 2:
            due = chance.choice(peaks) + int(chance.expovariate(1 / 1500))
        runs = [5 + int(chance.expovariate(1 / 40)) for _ in range(9)]
        failing = next((n for n in range(9) if chance.random() >= (fails if n else fails / 2)), 9)
        topic = ("orders", "mails")[number % 3 == 0]
        made.append(Task(topic, f"j{number}", due, runs, failing, buried=number % 61 == 0))
    return made
