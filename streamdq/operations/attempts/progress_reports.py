"""How far a running handler says it is. What reads it: store/jobs/progress.py."""

from __future__ import annotations

from ...errors import InvalidInput, JobAborted, StaleClaim
from ...link.session import Op
from ...store.redis_store import RedisStore
from .claimed import ClaimedJob

MAX_TEXT_CHARS = 200


def report_of(fraction: float | None, text: str) -> str:
    """What is stored, without the time.

    Raises:
        InvalidInput: the fraction is not from 0 to 1, or the text is none.
    """
    if fraction is not None and not (isinstance(fraction, int | float) and 0 <= fraction <= 1):
        raise InvalidInput(f"progress: {fraction!r:.80} is not a fraction from 0 to 1")
    if not isinstance(text, str):
        raise InvalidInput(f"progress: {text!r:.80} is not text")
    shown = "".join(c if c.isprintable() else " " for c in text[:MAX_TEXT_CHARS])
    return f"{'' if fraction is None else format(fraction, '.4g')} {shown}"


def report(store: RedisStore, held: ClaimedJob, fraction: float | None, text: str) -> Op[None]:
    """Of a claim without a worker."""
    claim = [held.main, held.entry, held.job.id, report_of(fraction, text)]
    consumer = held.consumer or store.session.consumer
    refused = yield from store.scripts.report(held.shard, held.group, held.generation, consumer, claim)
    if refused.aborted and not held.ended:
        held.aborted = True
        raise JobAborted(f"job {held.job.id!r} of {held.job.topic!r} was aborted: stop, and end the claim")
    if held.ended or refused.stale:
        raise StaleClaim(f"job {held.job.id!r}: its progress can't be noted: its TTR passed, or it has ended")
