"""Judges a run by what the handlers did, whatever Redis says: which jobs were lost, early, or ran again; and how long
it took until none was held up any more. Times are this machine's, in seconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.crash.worker_processes import Line

HELD_UP_S = 0.3
"""An attempt that starts so late was held up."""
QUIET_S = 1.0
"""Once none was due for so long that was held up, all is as before."""
_GRACE_MS = 1.0  # Redis tells whole milliseconds


@dataclass(frozen=True)
class Accepted:
    """A job whose enqueue returned."""

    due_ms: float  # by Redis's clock
    called: float
    at: float  # when the call returned


@dataclass
class Attempt:
    """One call of a handler."""

    begun: float
    pid: int
    ended: float = math.inf
    how: str = ""  # end, raised or cancelled; "" = its process died, or was stopped and never went on


@dataclass(frozen=True)
class Verdict:
    """What a run shows. ``again``: jobs of which an attempt began although none had failed, and how often."""

    accepted: int
    lost: frozenset[str]
    again: Mapping[str, int]
    early: tuple[str, ...]
    recovered_s: float


def attempts_of(lines: Iterable[Line]) -> dict[str, list[Attempt]]:
    """By id, in the order in which they began."""
    found: dict[str, list[Attempt]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line.at):
        if line.what == "start":
            found[line.id].append(Attempt(line.at, line.pid))
            continue
        open_ = [attempt for attempt in found[line.id] if attempt.pid == line.pid and not attempt.how]
        open_[0].ended, open_[0].how = line.at, line.what
    return found


def _expected(accepted: Accepted, before: Attempt | None, retry_s: float) -> float:
    """When an attempt should begin, if nothing holds it up."""
    if before is None:
        return max(accepted.due_ms / 1000, accepted.at)
    return before.begun if before.how in ("", "end") else before.ended + retry_s


def judge(
    accepted: Mapping[str, Accepted],
    lines: Iterable[Line],
    since: float,
    over: float,
    retry_s: float,
    redis_ms: Callable[[float], float] = lambda at: at * 1000,
) -> Verdict:
    """``since``: from when recovery is counted; ``over``: when the fault was over; ``redis_ms``: Redis's clock at a
    moment of this machine's.
    """
    attempts = attempts_of(lines)
    early, again, late = [], {}, []
    for id, job in accepted.items():
        tried = attempts.get(id, [])
        early += [id for attempt in tried if redis_ms(attempt.begun) < job.due_ms - _GRACE_MS]
        # An attempt that failed is followed by another.
        extra = len(tried) - 1 - sum(attempt.how in ("raised", "cancelled") for attempt in tried)
        if extra > 0:
            again[id] = extra
        expected = (_expected(job, before, retry_s) for before in [None, *tried])
        late += [(at, attempt.begun) for at, attempt in zip(expected, tried, strict=False)]
    ended = {id for id, tried in attempts.items() if any(attempt.how == "end" for attempt in tried)}
    return Verdict(
        len(accepted), frozenset(accepted.keys() - ended), again, tuple(early), _recovered(late, since, over) - since
    )


def _recovered(each: Iterable[tuple[float, float]], since: float, over: float) -> float:
    """``each``: when an attempt was expected, and when it began."""
    recovered = since
    for expected, begun in sorted(each):
        if expected > max(recovered, over) + QUIET_S:
            break
        if begun > max(since, expected + HELD_UP_S):
            recovered = max(recovered, begun)
    return recovered
