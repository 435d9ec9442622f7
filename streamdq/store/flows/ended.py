"""Rows of the history about flows that have ended, for the analytics: how each has ended, and its critical path.

The script that notices the end of a flow writes a row, ``unblocked``, about the flow's own job. The mover follows these
rows and adds one, ``flow``, for each. In the same step the shard notes up to which entry the mover has looked. So there
is one for each end, wherever a mover is killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...config import MAX_BATCH
from ...errors import BodyDamaged, BodyUnreadable
from ...job.flow import FLOWS, FlowState, FlowStep
from ...job.job import Job
from ...keys import ShardKeys
from ...link.session import Op, Session, Work
from ..commands import one
from ..history import history_reads
from ..history.rows import SEPARATOR, Event, HistoryRow, known_row_in
from ..jobs import linked, lookup
from ..jobs.links import StoredParent
from ..jobs.records import job_in
from .reading import outcome_of, stages_of
from .times import Members, times_of

AT_ONCE = MAX_BATCH  # entries of the history
MOST_JOBS, MOST_TOPICS = 2_000, 20
"""Of a flow with more jobs, no path is looked for, as that would keep the mover from its work; one that was cancelled
counts as failed. Of a path with more topics, the rest of them are added up.
"""
OTHERS = "{others}"
"""Instead of a topic's name; no topic is called so."""


class Ends(NamedTuple):
    """``seen``: up to which entry the mover had looked. ``rows``: of flows that have ended since, each with its own
    entry. ``last``: of the entries that were read. ``is_full``: there may be more.
    """

    seen: str
    rows: list[HistoryRow]
    last: str
    is_full: bool

    def each(self) -> Iterator[tuple[HistoryRow, str]]:
        """Each of them, and up to which entry the mover has looked with it."""
        for end in self.rows:
            yield end, self.last if end is self.rows[-1] else end.entry


def ends(session: Session, shard: ShardKeys) -> Op[Ends]:
    """Of which flows no row was added yet."""
    seen = ((yield from one(session, shard.settings, "HGET", shard.settings, "flows_recorded")) or b"").decode()
    entries = yield from history_reads.rows_after(session, shard, seen, AT_ONCE)
    found: list[HistoryRow] = []
    for entry, fields in entries:
        row = known_row_in(shard.topic, shard.shard, entry.decode(), fields[1])
        if row and row.event is Event.UNBLOCKED:
            if found and (found[-1].id, found[-1].created_ms) == (row.id, row.created_ms):
                found.pop()  # of another group
            found.append(row)
    return Ends(seen, found, entries[-1][0].decode() if entries else seen, len(entries) == AT_ONCE)


def row_of(end: HistoryRow, account: str) -> str:
    """The row that is added. ``account``: how the flow has ended, and why it took so long; "" = that is not known."""
    fields = (
        Event.FLOW, end.id, end.group, 0, 0, "", end.created_ms or "", "", "", "", "", account, end.body_bytes, "",
        end.finished_ms,
    )  # fmt: skip
    return SEPARATOR.join(map(str, fields))


def account_of(session: Session, shard: ShardKeys, end: HistoryRow, *, with_path: bool) -> Op[str]:
    """How the flow has ended, its number of jobs, and ``TOPIC=waited_ms,ran_ms`` for each topic of its critical path,
    with spaces between them; as much of it as is known.
    """
    (record,) = yield from lookup.records(session, [(shard, end.id)])
    own = _own_job(session, end, record)
    if record is None or own is None:
        return ""
    waited = yield from linked.dependencies(session, shard, end.id, record, 0)
    if waited is None:
        return ""
    if waited.total > MOST_JOBS:
        return f"{FlowState.FAILED if waited.failed else FlowState.DONE} {waited.total}"
    jobs = yield from linked.parents(session, shard, end.id, record)
    hows = [one.outcome or "" for one in jobs]
    account = f"{outcome_of(hows)} {waited.total}"
    if not with_path or not all(hows):
        return account
    return " ".join([account, *(yield from _path(session, own, jobs, hows, end))])


def _own_job(session: Session, end: HistoryRow, record: bytes | None) -> Job | None:
    """The flow's own job; None: it is gone, or another flow has its id."""
    own = job_in(FLOWS, end.id, record, session.bodies) if record else None
    return own if own and own.created_ms == end.created_ms else None


def _path(
    session: Session, own: Job, jobs: Sequence[StoredParent], hows: Sequence[str], end: HistoryRow
) -> Op[Iterable[str]]:
    """Each topic of the critical path; none, if the body that has the flow's stages can't be read."""
    if own.is_elsewhere:
        yield Work(own.fetch)
    try:
        body = own.body
    except (BodyUnreadable, BodyDamaged):  # this process has no key for it, perhaps
        return ()
    members = Members(jobs, hows, [*stages_of(body, jobs)], body)
    times = yield from times_of(session, members, own.created_ms, end.finished_ms)
    return by_topic(times.path)


def by_topic(path: Sequence[FlowStep]) -> list[str]:
    """What its jobs waited and ran, by their topics, in the order of the path; of many, those that took longest."""
    sums: dict[str, tuple[int, int]] = {}
    for step in path:
        waited, ran = sums.get(step.topic, (0, 0))
        sums[step.topic] = waited + (step.waited_ms or 0), ran + (step.ran_ms or 0)
    kept = sorted(sums, key=lambda topic: sum(sums[topic]), reverse=True)[:MOST_TOPICS]
    others = [sums[topic] for topic in sums if topic not in kept]
    shown = {topic: took for topic, took in sums.items() if topic in kept}
    if others:
        shown[OTHERS] = sum(waited for waited, _ in others), sum(ran for _, ran in others)
    return [f"{topic}={waited},{ran}" for topic, (waited, ran) in shown.items()]
