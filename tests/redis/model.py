"""What one topic must look like: a plain Python model of the life of its jobs, group by group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

TTR_MS = 20_000


@dataclass(eq=False)
class Standing:
    """Where one group is with one job. A new one is made with each change: it is also the delivery's identity.

    ``kind``: fresh (not begun: delayed or ready as the job's first delivery is), waiting, ready, running, dead, done.
    """

    kind: str
    due_ms: int = 0
    attempt: int = 0
    deadline_ms: int = 0
    shared: bool = False  # running: claimed from the stream that all groups read


@dataclass(eq=False)
class ModelJob:
    """One job. ``alone``: the only group it is for, when its first attempt ended there being no other group."""

    id: str
    due_ms: int
    order: tuple[int, int]
    ttr_ms: int | None = None
    expire_ms: int | None = None
    moved: int = 0  # its place among the first deliveries in the ready stream; 0: still in the bucket
    alone: str | None = None
    groups: dict[str, Standing] = field(default_factory=dict)


@dataclass(eq=False)
class ModelClaim:
    """What a consumer got. It holds as long as ``standing`` is the job's."""

    group: str
    consumer: str
    job: ModelJob
    standing: Standing
    row: Any


class Model:
    """The topic. Times are the injected clock's."""

    def __init__(self, now_ms: int, groups: list[str]) -> None:
        self.now_ms = now_ms
        self.groups = list(groups)
        self.paused = False
        self.jobs: dict[str, ModelJob] = {}
        self.tallies: dict[str, Counter[str]] = {group: Counter() for group in groups}
        self._numbers = count(1)
        self._places = count(1)

    # -- what is where

    def state(self, job: ModelJob, group: str) -> str:
        """delayed, ready, running, dead or done."""
        standing = job.groups[group]
        if standing.kind == "fresh":
            return "ready" if job.moved else "delayed"
        return "delayed" if standing.kind == "waiting" else standing.kind

    def ready(self, group: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if group in job.groups and self.state(job, group) == "ready"]

    def held(self, claim: ModelClaim) -> bool:
        """Whether the claim still counts."""
        return self.jobs.get(claim.job.id) is claim.job and claim.job.groups.get(claim.group) is claim.standing

    def balance(self, group: str) -> dict[str, int]:
        """The group's account."""
        now = Counter(self.state(job, group) for job in self.jobs.values() if group in job.groups)
        tally = self.tallies[group]
        return {
            "done": tally["done"], "dead": tally["dead"], "cancelled": tally["cancelled"], "expired": tally["expired"],
            "delayed": now["delayed"], "ready": now["ready"], "running": now["running"],
        }  # fmt: skip

    def due_now(self) -> bool:
        """Whether something that is due is still in the bucket."""
        return any(due_ms <= self.now_ms for due_ms, _, _, _ in self._bucket())

    def _bucket(self) -> list[tuple[int, tuple[int, int], ModelJob, str | None]]:
        waiting: list[tuple[int, tuple[int, int], ModelJob, str | None]] = []
        for job in self.jobs.values():
            if not job.moved and any(standing.kind == "fresh" for standing in job.groups.values()):
                waiting.append((job.due_ms, job.order, job, None))
            waiting += [(s.due_ms, job.order, job, g) for g, s in job.groups.items() if s.kind == "waiting"]
        return waiting

    # -- transitions

    def enqueue(self, id: str, due_ms: int, ttr_ms: int | None, expire_ms: int | None, straight: bool) -> None:
        job = self.jobs[id] = ModelJob(id, due_ms, (0, next(self._numbers)), ttr_ms, expire_ms)
        job.groups = {group: Standing("fresh") for group in self.groups}
        if straight:
            job.moved = next(self._places)

    def move(self) -> None:
        if self.paused:
            return
        for due_ms, _, job, group in sorted(self._bucket(), key=lambda item: item[:2]):
            if due_ms > self.now_ms:
                continue
            if group is None:
                job.moved = next(self._places)
            else:
                job.groups[group] = Standing("ready", due_ms, job.groups[group].attempt)

    def claim(self, job: ModelJob, group: str) -> str:
        """What becomes of one ready job that a consumer reads: running, expired, or back to waiting."""
        standing = job.groups[group]
        due_ms = job.due_ms if standing.kind == "fresh" else standing.due_ms
        if self.paused or due_ms > self.now_ms:
            self._again(job, group, standing, standing.attempt)
            return "waiting"
        if job.expire_ms is not None and self.now_ms > due_ms + job.expire_ms:
            self.tallies[group]["expired"] += 1
            self._through(job, group)
            return "expired"
        job.groups[group] = Standing(
            "running", due_ms, standing.attempt + 1, self.now_ms + (job.ttr_ms or TTR_MS), standing.kind == "fresh"
        )
        return "running"

    def _again(self, job: ModelJob, group: str, standing: Standing, attempt: int) -> None:
        """Handed back: ready, or waiting while the topic is paused; due when it was."""
        if standing.kind == "fresh" or standing.shared:
            self._detach(job, group)
        due_ms = job.due_ms if standing.kind == "fresh" else standing.due_ms
        kind = "waiting" if self.paused or due_ms > self.now_ms else "ready"
        job.groups[group] = Standing(kind, due_ms, attempt)

    def _detach(self, job: ModelJob, group: str) -> None:
        if self.groups == [group]:
            job.alone = group

    def _through(self, job: ModelJob, group: str) -> None:
        job.groups[group] = Standing("done")
        if all(standing.kind == "done" for standing in job.groups.values()):
            del self.jobs[job.id]

    def finish(self, job: ModelJob, group: str) -> None:
        self.tallies[group]["done"] += 1
        self._through(job, group)

    def retry(self, job: ModelJob, group: str, delay_ms: int, *, counts: bool) -> None:
        standing = job.groups[group]
        if standing.shared:
            self._detach(job, group)
        job.order = (1, next(self._numbers))
        job.groups[group] = Standing("waiting", self.now_ms + delay_ms, standing.attempt - (not counts))

    def bury(self, job: ModelJob, group: str) -> None:
        standing = job.groups[group]
        if standing.shared:
            self._detach(job, group)
        self.tallies[group]["dead"] += 1
        job.groups[group] = Standing("dead", attempt=standing.attempt)

    def release(self, job: ModelJob, group: str) -> None:
        standing = job.groups[group]
        self._again(job, group, standing, standing.attempt - 1)

    def touch(self, job: ModelJob, group: str, ttr_ms: int) -> None:
        job.groups[group].deadline_ms = self.now_ms + ttr_ms

    def reclaim(self, group: str) -> int:
        """How many claims were taken over."""
        late = [
            job for job in self.jobs.values()
            if (s := job.groups.get(group)) and s.kind == "running" and s.deadline_ms <= self.now_ms
        ]  # fmt: skip
        for job in late:
            self._again(job, group, job.groups[group], job.groups[group].attempt)
        return len(late)

    def hand_over(self, job: ModelJob, group: str) -> None:
        """Read and never claimed: its consumer is gone, or had no room."""
        self._again(job, group, job.groups[group], job.groups[group].attempt)

    def cancel(self, id: str) -> int:
        """1 cancelled, 0 nothing to cancel, -1 running."""
        job = self.jobs.get(id)
        open_groups = self._open(job) if job else None
        if job is None or not open_groups:
            return 0 if open_groups is not None or job is None else -1
        for group in open_groups:
            self.tallies[group]["cancelled"] += 1
        del self.jobs[id]  # with what is dead of it elsewhere
        return 1

    def _open(self, job: ModelJob) -> list[str] | None:
        """The groups that wait for the job; None when an attempt is running."""
        kinds = {group: standing.kind for group, standing in job.groups.items()}
        if "running" in kinds.values():
            return None
        return [group for group, kind in kinds.items() if kind in ("fresh", "waiting", "ready")]

    def replaceable(self, id: str) -> bool:
        job = self.jobs[id]
        return bool(self._open(job)) and not any(standing.kind == "dead" for standing in job.groups.values())

    def reschedule(self, id: str, due_ms: int) -> int:
        job = self.jobs.get(id)
        if job is None:
            return 0
        open_groups = self._open(job)
        if open_groups is None:
            return -1
        if not open_groups:
            return 0
        job.due_ms, job.order = due_ms, (1, next(self._numbers))
        if all(standing.kind == "fresh" for standing in job.groups.values()):
            job.moved = 0
            job.groups = {group: Standing("fresh") for group in job.groups}
        else:
            for group in open_groups:
                job.groups[group] = Standing("waiting", due_ms, job.groups[group].attempt)
        return 1

    def dead(self, group: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if group in job.groups and job.groups[group].kind == "dead"]

    def kick(self, job: ModelJob, group: str) -> None:
        self.tallies[group]["dead"] -= 1
        job.order = (1, next(self._numbers))
        job.groups[group] = Standing("waiting" if self.paused else "ready", self.now_ms, job.groups[group].attempt)

    def purge(self, job: ModelJob, group: str) -> None:
        self._through(job, group)

    def add_group(self, group: str) -> None:
        self.groups.append(group)
        self.tallies[group] = Counter()
        for job in self.jobs.values():
            if job.alone is None:
                job.groups[group] = Standing("fresh")

    def remove_group(self, group: str) -> None:
        self.groups.remove(group)
        del self.tallies[group]
        for job in list(self.jobs.values()):
            job.groups.pop(group, None)
            if all(standing.kind == "done" for standing in job.groups.values()):
                del self.jobs[job.id]
