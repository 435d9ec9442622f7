"""Reads of a flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ...job.flow import FlowState
from ...link.session import Op, Session
from ..commands import one
from ..jobs import linked, lookup
from ..jobs.links import StoredParent
from ..jobs.records import nonce_of
from ..scripts.flows import Run


def members(session: Session, run: Run) -> Op[list[StoredParent]]:
    """Its jobs, in the order in which they were added, and how those have ended that have; none while it is built."""
    (record,) = yield from lookup.records(session, [(run.shard, run.name)])
    if not record or (run.life and nonce_of(record).partition(".")[0] != run.life):
        return []
    return (yield from linked.parents(session, run.shard, run.name, record))


class Stage(NamedTuple):
    """``after``: the numbers of the stages that it waits for, from 0."""

    topic: str
    jobs: int
    after: tuple[int, ...]
    on_failure: str


def stages_of(body: Mapping[str, Any], jobs: Sequence[StoredParent]) -> Iterator[Stage]:
    """Of a flow: those that the body of its own job has, and behind them those of jobs that were added at run time."""
    begin = 0
    for topic, count, after, on_failure in body["stages"]:
        yield Stage(topic, count, tuple(after), on_failure)
        begin += count
    for topic, some in groupby(jobs[begin:], lambda one: one.topic):
        yield Stage(topic, sum(1 for _ in some), (), "block")


def outcome_of(ends: Iterable[str]) -> FlowState:
    """How a flow has ended whose jobs have ended in these ways."""
    others = {*ends} - {"done"}
    return FlowState.DONE if not others else FlowState.CANCELLED if others == {"cancelled"} else FlowState.FAILED


def state(session: Session, run: Run) -> Op[str]:
    """b: it is being built; o, w: it is open, or was withdrawn, and has gates that have not ended, or a deadline; "":
    neither.
    """
    text = yield from one(session, run.shard.flows, "HGET", run.shard.flows, run.name)
    return text.split(b"|")[1].decode() if text else ""
