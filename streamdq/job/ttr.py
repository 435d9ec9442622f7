"""How long an attempt may take."""

from __future__ import annotations

LONGEST_CUT_MS = 200
_SHARE = 0.1


def cut_before_ms(ttr_ms: float) -> float:
    """How long before the TTR passes a worker cancels the handler. Then the job may be taken over, and would start
    again at once instead of by its schedule. The history's replays follow the same rule.
    """
    return min(LONGEST_CUT_MS, _SHARE * ttr_ms)
