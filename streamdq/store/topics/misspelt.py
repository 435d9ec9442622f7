"""Names of topics that may be misspelt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...errors import UnknownTopic
from ...link.session import Op
from ...process.logs import log

if TYPE_CHECKING:
    from .topics import Topics

_SHORTEST = 5  # shorter names differ in one letter by chance
_LIKE = 0.75


def meant_by(name: str, names: Iterable[str]) -> str | None:
    """The name that is most similar to ``name``; None if none is similar."""
    from difflib import get_close_matches  # only errors need it

    found = get_close_matches(name, sorted(names), n=1, cutoff=_LIKE)
    return found[0] if found else None


def slip_of(name: str, names: Iterable[str]) -> str | None:
    """The name from which this one differs by one slip: a letter too many, too few or wrong, or two exchanged. Names
    that differ in a digit are different names: shop-1 and shop-2.
    """
    return next((one for one in sorted(names) if _is_slip(name, one)), None)


def _is_slip(a: str, b: str) -> bool:
    if a == b or abs(len(a) - len(b)) > 1 or min(len(a), len(b)) < _SHORTEST:
        return False
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest_a, rest_b = a[same:], b[same:]
    if rest_a[:2] == rest_b[1::-1] and rest_a[2:] == rest_b[2:]:  # exchanged
        return True
    for more, less in ((1, 1), (1, 0), (0, 1)):  # wrong, or too many in one of them
        if rest_a[more:] == rest_b[less:]:
            return not any(letter.isdigit() for letter in rest_a[:more] + rest_b[:less])
    return False


def meant_by_new(topics: Topics, topic: str) -> Op[str | None]:
    """If the topic does not exist, the one whose name it would have but for a slip."""
    if topic in topics.known or (yield from topics.read(topic)) is not None:
        return None
    return slip_of(topic, (yield from topics.names()))


def check_spelling(topics: Topics, topic: str) -> Op[None]:
    """For a change that would make the topic.

    Raises:
        UnknownTopic: it does not exist, and its name looks like a slip in the name of one that does.
    """
    if meant := (yield from meant_by_new(topics, topic)):
        raise UnknownTopic(
            f"no topic {topic!r} in namespace {topics.session.keys.namespace!r}: did you mean {meant!r}? "
            "If it is a new one, pass create=True (--create)"
        )


def warn_of_slips(topics: Topics, new: frozenset[str]) -> Op[None]:
    """Of those that are about to be made and have almost the name of another one, which is not among them."""
    known = yield from topics.names()
    for topic in sorted(new - known):
        if (meant := slip_of(topic, known - new)) is not None:
            log.warning(
                "a new topic is made: did you mean another one?", topic=topic, did_you_mean=meant,
                advice=f"if its name is a slip, correct it in the code and `streamdq topic delete {topic}`",
            )  # fmt: skip
