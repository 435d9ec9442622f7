"""The scope of a token: some topics and groups by name, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ..errors import InvalidInput

_PLAIN = "!$&'()+:@/~._-"
MAX_PATTERNS = 100


@dataclass(frozen=True, slots=True)
class Scope:
    """A set of names: exact ones, and all that begin with certain prefixes."""

    exact: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def holds(self, name: str) -> bool:
        return name in self.exact or name.startswith(self.prefixes)

    @property
    def is_all(self) -> bool:
        return "" in self.prefixes

    def of(self, names: Iterable[str]) -> list[str]:
        """The names that are in the scope."""
        return [name for name in names if self.holds(name)]

    def __str__(self) -> str:
        """The form that ``scope_in`` reads."""
        return ",".join([*map(_written, sorted(self.exact)), *(f"{_written(prefix)}*" for prefix in self.prefixes)])


ALL = Scope(prefixes=("",))


def _written(name: str) -> str:
    return quote(name, safe=_PLAIN)


def scope_in(text: str, what: str, check: Callable[[str], str]) -> Scope:
    """The scope in ``order.close,mail.*``. A comma, semicolon, asterisk or percent sign of a name is percent-encoded.

    Raises:
        InvalidInput: it can't be read.
    """
    exact: set[str] = set()
    prefixes: set[str] = set()
    patterns = text.split(",")
    if len(patterns) > MAX_PATTERNS:
        raise InvalidInput(f"{what}: more than {MAX_PATTERNS} names; use a common beginning for several, such as a.*")
    for pattern in patterns:
        begins = pattern.endswith("*")
        try:
            name = _read(pattern.removesuffix("*"), begins, check)
        except (ValueError, InvalidInput) as error:
            raise InvalidInput(f"{what}: {pattern[:80]!r}: {error}") from None
        (prefixes if begins else exact).add(name)
    return Scope(frozenset(exact), tuple(sorted(prefixes)))


def _read(pattern: str, begins: bool, check: Callable[[str], str]) -> str:
    if "*" in pattern or not (pattern or begins):
        raise ValueError("is neither a name nor the beginning of names, such as a.*")
    name = unquote(pattern, errors="strict")
    return check(name) if name else name
