"""What an erasure has found, what it has erased, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_IDS = 100


@dataclass(slots=True)
class Amount:
    found: int = 0
    erased: int = 0


@dataclass(frozen=True, slots=True)
class Remaining:
    """What was found and not erased, and why. ``ids``: at most 100 of them."""

    place: str
    topic: str
    count: int
    why: str
    ids: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Erased:
    """The result of an erasure. ``places``: by name, such as ``delayed jobs`` or ``history``."""

    dry_run: bool = False
    places: dict[str, Amount] = field(default_factory=dict)
    remaining: list[Remaining] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing is left of what was found."""
        return not self.remaining

    @property
    def found(self) -> int:
        return sum(amount.found for amount in self.places.values())

    def add(self, place: str, found: int = 0, erased: int = 0) -> None:
        amount = self.places.setdefault(place, Amount())
        amount.found += found
        amount.erased += erased

    def leave(self, place: str, topic: str, why: str, ids: Sequence[str] = (), count: int | None = None) -> None:
        number = len(ids) if count is None else count
        if number:
            self.remaining.append(Remaining(place, topic, number, why, sorted(ids)[:MOST_IDS]))
