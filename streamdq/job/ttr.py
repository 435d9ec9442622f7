"""How long an attempt may take."""

from __future__ import annotations

_MOST_MS, _SHARE = 200, 0.1


def cut_before_ms(ttr_ms: float) -> float:
    """How long before the TTR passes a worker cancels the handler. Then the job may be taken over, and would start
    again at once instead of by its schedule. The history's replays follow the same rule.
    """
    return min(_MOST_MS, _SHARE * ttr_ms)
