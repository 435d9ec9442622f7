"""The jobs that this process has claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...config import START_WITHIN_S
from ...job.job import Decoder, Job, JobState
from ...job.ttr import LONGEST_CUT_MS, cut_before_ms
from ...keys import ShardKeys
from ...process.logs import log, what
from ...store.jobs.records import job_in
from ...store.replies import Claimed
from ...threads import ThreadOf

if TYPE_CHECKING:
    from ...store.flows.children import Child


@dataclass(slots=True, eq=False)
class ClaimedJob:
    """A job that this process has claimed, with the entry that proves the claim."""

    shard: ShardKeys
    group: str
    job: Job
    main: bytes
    entry: bytes
    due_ms: int  # of this attempt
    generation: str = "0"  # the group's generation when it was claimed
    ttr_ms: int = 0
    deadline: float = 0.0  # when its TTR passes, on this host's monotonic clock
    start_by: float = float("inf")  # the latest start, on this host's monotonic clock
    crashes: int = 0
    started_ms: int = 0
    started: float = 0.0  # the same on this host's monotonic clock
    begun: bool = False  # its handler was called
    thread: Future[Any] | None = None  # the call of its handler there
    runs_in: ThreadOf | None = None  # that thread
    was_in: Sequence[str] = ()  # the calls that its handler was in when it was cancelled, if nothing else tells
    ended: bool = False
    late: bool = False  # its TTR passed here
    aborted: bool = False  # somebody has aborted it, as far as is known here
    lost: bool = False  # Redis has refused a touch: another worker has the job, or will have it
    give_up_at: float = float("inf")  # when it ends in any case, although its handler goes on; if it is late, or lost
    touching: bool = False  # a touch of `touch_ms` is about to be sent
    touch_ms: int = 0
    report: str | None = None  # how far its handler says it is, if that is to be sent
    extended_until: float = 0.0  # the deadline of the last touch that Redis has received
    took_s: float = 0.0
    consumer: str = ""  # the consumer that claimed it, if another one ends it
    listeners: Sequence[Callable[[Any], None]] = ()  # are called with how it ended
    result: bytes | None = None  # the stored text of what it has returned; None: nothing is kept
    children: Sequence[Child] = ()  # jobs that its handler has added to its flow
    children_bytes: int = 0  # of their stored text
    receipt: bool = False  # Redis keeps a receipt of its end: callers over HTTP may lose the answer and ask again

    @property
    def cut_at(self) -> float:
        """When a worker cancels its handler, on this host's monotonic clock: just before its TTR passes."""
        return self.deadline - cut_before_ms(self.touch_ms or self.ttr_ms) / 1000


def held_in(
    shard: ShardKeys,
    group: str,
    claimed: Claimed,
    asked: float,
    decoder: Decoder | None = None,
    kind: type[Job] = Job,
) -> list[ClaimedJob]:
    """The claimed jobs. ``asked``: when the call was about to be sent, on the monotonic clock. The TTR counts from
    then, because another worker may have taken a job over by the time the reply is read. ``decoder``: reads the bodies
    that are not plain JSON. ``kind``: the class that the jobs are made of. A job that another client has written in a
    way that can't be read is left out, as it would keep back all others; it is taken over when its TTR passes.
    """
    topic, generation, topic_ttr_ms, latest = shard.topic, claimed.generation, claimed.ttr_ms, asked + START_WITHIN_S
    running, all_held = JobState.RUNNING, []
    for row in claimed.rows:
        try:
            job = job_in(topic, row.id.decode(), row.record, decoder, kind)
        except ValueError as error:
            log.error("claimed job unreadable", topic=topic, id=repr(row.id), group=group, error=what(error))
            continue
        job.state, job.attempt = running, 1
        main, entry, past = (row.claim, b"", None) if b"|" not in row.claim else row.parts()
        ttr_ms = job.ttr_ms or topic_ttr_ms
        deadline = asked + ttr_ms / 1000
        held = ClaimedJob(shard, group, job, main, entry, job.due_ms, generation, ttr_ms, deadline, latest)
        if deadline - LONGEST_CUT_MS / 1000 < latest:
            held.start_by = min(latest, held.cut_at)
        if past is not None:
            job.attempt, job.snoozed, job.step, held.crashes, due_ms = past
            if due_ms is not None:
                held.due_ms = due_ms
        all_held.append(held)
    return all_held
