"""The previous shards of ids: a topic's number of shards changed while it held jobs. A previous shard owns an id until
it holds neither a job nor a reservation for it. After that it never gets the id again, because it refuses callers that
know only the earlier number. So two calls are safe: first to the previous shard, then to the current one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ...config import MAX_BATCH, TopicSettings
from ...job.uniqueness import NO_RULE
from ...keys import ShardKeys, candidate_shards
from ...link.session import Op
from ...store.batches import REPLACED_BYTES, most_jobs, parts
from ...store.jobs.records import Encoded
from ...store.replies import Enqueued
from ...store.scripts import Scripts

T = TypeVar("T")
Home = Callable[[int], ShardKeys]
"""The keys of the topic's shard of this number."""


@dataclass(slots=True)
class PreviousShardReply:
    """What became of jobs that were to be enqueued, by their indexes, in the shards that their ids belonged to
    before.
    """

    left: list[int]  # nothing of these ids is there
    outdated: list[int] = field(default_factory=list)  # our settings of the topic are
    taken: dict[int, bytes] = field(default_factory=dict)  # as of EnqueueReply
    now_ms: int = 0

    def note(self, asked: Sequence[int], reply: Enqueued) -> None:
        self.now_ms = reply.now_ms
        taken = {asked[n]: record for n, record in reply.taken.items()}
        done = {i for i in asked[: reply.looked] if taken.get(i) != b""} if reply.current else {*asked}
        self.left = [i for i in self.left if i not in done]
        self.taken |= {i: record for i, record in taken.items() if record}
        if not reply.current:
            self.outdated += asked


def put_there(
    scripts: Scripts, home: Home, settings: TopicSettings, jobs: Sequence[Encoded], asked: Sequence[int], how: str
) -> Op[PreviousShardReply]:
    """Enqueues those of the jobs ``asked`` for of whose ids there is anything in a previous shard. ``how``: as the
    script enqueue_unique takes it, for all of them.
    """
    candidates = {i: candidate_shards(jobs[i].id, settings.shards, settings.former, jobs[i].key) for i in asked}
    kept = PreviousShardReply(list(asked))
    for turn in range(len(settings.former)):
        for (number, former), indexes in in_turn(turn, kept.left, candidates).items():
            if former:
                yield from _put_in(scripts, home(number), settings, jobs, indexes, how, kept)
    return kept


def in_turn(turn: int, left: Sequence[T], candidates: Mapping[T, Sequence[int]]) -> dict[tuple[int, bool], list[T]]:
    """For those of which nothing was found before this turn: the shard to ask next, with whether it is a previous one;
    previous ones come first, the oldest before the others.
    """
    asked: dict[tuple[int, bool], list[T]] = {}
    for one in left:
        if turn < len(candidates[one]):
            asked.setdefault((candidates[one][turn], turn < len(candidates[one]) - 1), []).append(one)
    return asked


def _put_in(
    scripts: Scripts,
    shard: ShardKeys,
    settings: TopicSettings,
    jobs: Sequence[Encoded],
    indexes: Sequence[int],
    how: str,
    kept: PreviousShardReply,
) -> Op[None]:
    for part in parts(indexes, lambda i: len(jobs[i].rest), most_jobs(MAX_BATCH, len(settings.groups)), REPLACED_BYTES):
        looked = 0
        while looked < len(part):
            some = part[looked:]
            args = [value for i in some for value in (*jobs[i][:3], _rule(jobs[i], how))]
            spread = settings.named(by_key=any(jobs[i].key is not None for i in some))
            reply = yield from scripts.enqueue_unique(shard, spread, how, args, former=True)
            kept.note(some, reply)
            if not reply.current:
                break
            looked += reply.looked


def _rule(job: Encoded, how: str) -> str:
    return job.rule or (NO_RULE if how == "postpone" else "")
