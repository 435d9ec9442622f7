"""Workers and jobs, millisecond by millisecond, in plain Python: what really happens with given settings. It shares
nothing with the replay of `streamdq what-if`, which is to predict it.
"""

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace

from tests.spark.logs import MONDAY
from tests.spark.plain import Happened

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

    def of(self, topic: str) -> "Floor":
        return self if not self.only or topic == self.only else Floor(self.workers, self.each, report=self.report)


@dataclass
class _Worker:
    name: str
    free: int
    ends: dict[int, list[tuple[Task, int]]] = field(default_factory=lambda: defaultdict(list))


def happened(tasks: list[Task], floor: Floor) -> list[Happened]:
    """The history of these jobs on this floor."""
    later: dict[int, list[Task]] = defaultdict(list)
    for task in tasks:
        later[task.due].append(replace(task))
    workers = [_Worker(f"w{n}", floor.each) for n in range(floor.workers)]
    due: deque[Task] = deque()
    topics = sorted({task.topic for task in tasks})
    ready: dict[str, deque[Task]] = {topic: deque() for topic in topics}
    log: list[Happened] = []
    next_move: dict[str, int] = {}
    now, left = min(later), len(tasks)
    free_since = [now] * floor.workers * floor.each
    while left:
        for worker in workers:
            for task, started in worker.ends.pop(now, ()):
                worker.free += 1
                free_since.append(now)
                left -= _end(log, task, worker.name, started, now, floor.of(task.topic), later)
        due.extend(later.pop(now, ()))
        for task in list(due):
            if next_move.get(task.topic, 0) <= now:
                due.remove(task)
                next_move[task.topic] = now + floor.of(task.topic).apart
                task.moved = now
                ready[task.topic].append(task)
        while free_since and free_since[0] + CLAIM_MS <= now:
            # Topics take turns: the one that was served last is the last in the list.
            claimable = [topic for topic in topics if ready[topic] and ready[topic][0].moved + CLAIM_MS <= now]
            if not claimable:
                break
            topics.append(topics.pop(topics.index(claimable[0])))
            task = ready[claimable[0]].popleft()
            free_since.pop(0)
            _begin(task, max(workers, key=lambda worker: worker.free), now, floor.of(task.topic))
        now += 1
    return log


def _begin(task: Task, worker: _Worker, now: int, floor: Floor) -> None:
    task.attempt += 1
    worker.free -= 1
    worker.ends[now + min(task.runs[task.attempt - 1], floor.ttr)].append((task, now))


def _end(
    log: list[Happened], task: Task, worker: str, started: int, now: int, floor: Floor, later: dict[int, list[Task]]
) -> int:
    """Writes the row; returns 1 if that was the job's end."""
    step = task.attempt - 1
    now += floor.report
    cut = task.runs[step] > floor.ttr
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
