"""Reads of a flow."""

from __future__ import annotations

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


def state(session: Session, run: Run) -> Op[str]:
    """b: it is being built; o, w: it is open, or was withdrawn, and has gates that have not ended, or a deadline; "":
    neither.
    """
    text = yield from one(session, run.shard.flows, "HGET", run.shard.flows, run.name)
    return text.split(b"|")[1].decode() if text else ""
