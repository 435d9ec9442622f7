"""Decides from what the mover reads which consumers are dead: a pure calculation, without Redis.

A consumer is silent if its last sign of life is old by Redis's clock. That alone proves nothing: the clock may have
jumped, Redis may have stood still or lost its latest data, or this process may have. So a silent consumer counts as
dead only if its sign was also *seen* unchanged for longer than a live one takes to give the next, by this host's
monotonic clock, while everything went steadily.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..config import SIGN_S

_SEEN_S = 1.5 * SIGN_S
"""A live worker gives a sign within this time, even if its event loop is somewhat late."""
_STEADY_S = 3.0
"""After trouble with Redis, every live worker has given a sign within this time: it may have to connect again first."""
_PROMPT_S = 0.5  # a slower answer is trouble, too
_GAP_S = 2.0  # between looks; a longer one means that this process stood still
_JUMP_S = 0.5  # Redis's clock against this host's


class _Look(NamedTuple):
    at: float
    now_ms: int


class SignWatch:
    """Is told of each look at the signs. Times in ms are Redis's, others those of the monotonic clock."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._last: _Look | None = None
        self._unchanged: dict[str, tuple[int, float]] = {}  # consumer -> its sign, and since when it is known
        self._trusted_from = 0.0
        self.next = 0.0  # when the next consumer is dead, if none gives a sign

    def begin(self) -> None:
        """Nobody looked for a while, as there was nobody to look for."""
        self._last = None

    def disturbed(self, now: float) -> None:
        """A look has failed, or was slow."""
        self._last = None
        self._trusted_from = now + _STEADY_S

    def saw(self, asked: float, arrived: float, now_ms: int, signs: Mapping[str, int]) -> set[str]:
        """The consumers that are dead, of those whose ``signs`` were read in a call from ``asked`` to ``arrived``, when
        it was ``now_ms`` in Redis.
        """
        if not self._is_steady(asked, arrived, now_ms):
            self.disturbed(arrived)
        if self._last is None:
            self._unchanged = {}
            self._trusted_from = max(self._trusted_from, arrived + _SEEN_S)
        self._last = _Look(arrived, now_ms)
        before, self._unchanged, self.next = self._unchanged, {}, float("inf")
        dead = set()
        for consumer, sign in signs.items():
            known = before.get(consumer)
            since = known[1] if known is not None and known[0] == sign else arrived
            self._unchanged[consumer] = sign, since
            if (dies := self._dies_at(sign, since)) <= asked:
                dead.add(consumer)
            else:
                self.next = min(self.next, dies)
        return dead

    def _is_steady(self, asked: float, arrived: float, now_ms: int) -> bool:
        if arrived - asked > _PROMPT_S:
            return False
        if self._last is None:
            return True
        passed_s = arrived - self._last.at
        return passed_s <= _GAP_S and abs((now_ms - self._last.now_ms) / 1000 - passed_s) <= _JUMP_S

    def _dies_at(self, sign: int, since: float) -> float:
        """When a consumer is dead whose last sign this is, seen ``since`` then."""
        assert self._last is not None
        silent_s = (self._last.now_ms - sign) / 1000
        # A sign from the future, as the clock was set back since, tells nothing.
        timed_out = min(self._last.at + self._timeout_s - silent_s, since + self._timeout_s)
        return max(timed_out, since + _SEEN_S, self._trusted_from)
