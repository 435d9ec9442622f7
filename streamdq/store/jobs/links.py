"""The codec of what is stored of jobs that wait for others, and of those that they wait for (lua/lib/followers.lua,
lua/lib/waits.lua); and the replies of the scripts that read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ...job.after import PER_FIELD, Dependencies, Dependency, Waits

SEPARATOR = "\x1f"
BETWEEN = "\x1e"
"""Between the parts of what a job waits for, as enqueue_after takes them."""
GATED = "+"
"""Behind ``on_failure``: the first of those that the job waits for is a gate of its flow (lua/lib/flows.lua)."""
ADDED = "+"
"""Before the life of one that a job waits for as a child of another one; behind the time in the line of a child."""
TO_PUT_IN, PUT_IN = "*", "&"
"""Behind how a job has ended: its children are to be put in, or are among its followers."""
OWN = "="
"""Behind ``on_failure``: it is a flow's own job; how many gates the flow has follows."""
UNKNOWN = "unknown"
"""What ``attach`` says of a job of which there is nothing."""
BY_RESULT = "="
"""How the life begins of a job of which only its kept results tell how it has ended; alone: any such job."""
ENDINGS = {
    "": ".", "done": "o", "dead": "d", "cancelled": "c", "replaced": "r", "expired": "e", "purged": "p",
    "archived": "a", "left": "g", "lost": "l",
}  # fmt: skip
"""The letter of each, as in lua/lib/dependents.lua."""


class Attached(NamedTuple):
    """What ``attach`` says of a job that another one is to wait for."""

    life: str
    generation: int
    how: str  # as in lua/lib/followers.lua


def attached_in(reply: Sequence[Any] | None) -> list[Attached] | None:
    """None: the caller's settings of the topic are out of date."""
    return None if reply is None else [Attached(life.decode(), number, how.decode()) for life, number, how in reply]


class Follower(NamedTuple):
    """Who waits for a job, which is the ``place``-th of those that it waits for; "+LIFE": a child of one of these.
    ``is_child``: it is a child of the job. ``before``: then those that wait for it, too, as the nonce and the id of
    each.
    """

    line: str  # as it is stored
    topic: str
    shard: int
    place: int | str
    nonce: str
    id: str
    is_child: bool = False
    before: tuple[tuple[str, str], ...] = ()


class Ending(NamedTuple):
    """A job that has ended, or goes on, of which its followers are to be reported."""

    field: str
    generation: int
    how: str
    followers: list[Follower]
    added: list[Follower]
    """Those that are its children."""
    children: str = ""
    """Of a job that has left the pool: "*" = they are to be put in, "&" = they are among the followers."""

    @property
    def id(self) -> str:
        return self.field.partition(SEPARATOR)[0]

    @property
    def life(self) -> str:
        return self.field.partition(SEPARATOR)[2]

    @property
    def others(self) -> list[Follower]:
        """Those that are not its children."""
        return [one for one in self.followers if not one.is_child] if self.added else self.followers


class Endings(NamedTuple):
    """Reply of endings. Times are ms; -1: never."""

    now_ms: int
    next_ms: int
    look_ms: int
    endings: list[Ending]


def endings_in(reply: Sequence[Any]) -> Endings:
    now_ms, next_ms, look_ms, *rest = reply
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return Endings(now_ms, next_ms, look_ms, [ending_in(field.decode(), text.decode()) for field, text in pairs])


def ending_in(field: str, text: str) -> Ending:
    """``text``: as it is stored in ``followers``."""
    head, *lines = text.split("\n")
    _, generation, how, *_ = head.split("|") if head else ("", "0", "")
    children = how[-1:] if how[-1:] in (TO_PUT_IN, PUT_IN) and SEPARATOR in field else ""
    known = how.rstrip("+" + TO_PUT_IN + PUT_IN)
    followers = [_follower(line) for line in lines if line]
    return Ending(field, int(generation), known, followers, [one for one in followers if one.is_child], children)


def _follower(line: str) -> Follower:
    at, topic, shard, index, nonce, id = line.split(SEPARATOR)
    place = index if index.startswith(ADDED) else int(index)
    if at.isdigit():
        return Follower(line, topic, int(shard), place, nonce, id)
    mark, *names = at.split(BETWEEN)
    before = tuple((nonce, id) for nonce, _, id in (name.partition("\x1d") for name in names))
    return Follower(line, topic, int(shard), place, nonce, id, mark.endswith(ADDED), before)


class News(NamedTuple):
    """For a job that waits: how one of the others has ended, or that it goes on. ``id``, ``nonce``: of the job that
    waits. ``seen``: what was known of it, when it was asked.
    """

    id: str
    nonce: str
    place: int | str
    generation: int
    how: str
    seen: int | None = None
    children: tuple[str, ...] = ()
    """For which it has to wait, too (links.child_line)."""

    @property
    def text(self) -> str:
        """In the form that deliver takes."""
        return f"{self.place}|{self.generation}|{self.how}|{'' if self.seen is None else self.seen};"


class Received(IntEnum):
    """What deliver answers to a piece of news."""

    ENDED = 0  # the job that waited
    WAITS = 1  # or has started before
    STARTS = 2
    KNOWS = 3  # and never forgets it: it need not be said again
    CLOSED = 4  # it is the own job of a flow that was cancelled: the children must not start


_MAY_CHANGE = ("", "dead", "archived")


def received(answer: Received, how: str) -> Received:
    """``answer``: of the job. ``how``: the piece of news."""
    return Received.WAITS if answer is Received.KNOWS and how in _MAY_CHANGE else answer


class Asked(NamedTuple):
    """One of those that a job waits for, and that has not reported its end: its place, and what is known of it."""

    place: int | str
    topic: str
    shard: int
    life: str
    id: str
    generation: int


class LookedAfter(NamedTuple):
    """Reply of look_after: jobs that wait, by id and nonce, each with those that it may have to ask."""

    now_ms: int
    next_ms: int  # -1: none waits
    waiting: list[tuple[str, str, list[Asked]]]


def looked_after_in(reply: Sequence[Any]) -> LookedAfter:
    now_ms, next_ms, *rest = reply
    found: dict[bytes, list[Asked]] = {}
    for member, n, others, states in zip(*(rest[i::4] for i in range(4)), strict=True):
        found.setdefault(member, []).extend(_asked(int(n), others.decode(), states.decode()))
    names = [member.decode().split("\x1f") for member in found]
    return LookedAfter(
        now_ms, next_ms, [(id, nonce, asked) for (id, nonce), asked in zip(names, found.values(), strict=True)]
    )


def _asked(n: int, others: str, states: str) -> Iterator[Asked]:
    marks, *generations = states.split(",")
    known = {int(i): int(number) for i, _, number in (one.partition("=") for one in generations)}
    for i, line in enumerate(others.split("\n")):
        if marks[i] != "o":
            topic, shard, life, id = line.split("\x1f")
            place = life if life.startswith(ADDED) else n * PER_FIELD + i
            yield Asked(place, topic, int(shard), life.lstrip(ADDED), id, known.get(i + 1, 0))


class Known(NamedTuple):
    """One of those that a new job waits for: where it is, and what ``attach`` said of it."""

    topic: str
    shard: int
    id: str
    life: str
    generation: int
    how: str


def dependencies(waits: Waits, known: Sequence[Known], gate: Known | None = None) -> list[str]:
    """What a new job waits for, in the form that enqueue_after takes. ``gate``: of its flow."""
    known = [*([gate] if gate else ()), *known]
    mark = _mark(waits, gate)
    done = sum(one.how == "done" for one in known)
    failed = sum(one.how not in ("", "done") for one in known)
    out = [f"{len(known)}|{done}|{failed}|{waits.delay_ms}|{waits.on_failure}{mark}|0"]
    for begin in range(0, len(known), PER_FIELD):
        some = known[begin : begin + PER_FIELD]
        out.append("\n".join(SEPARATOR.join((one.topic, str(one.shard), one.life, one.id)) for one in some))
        marks = "".join(ENDINGS[one.how] for one in some)
        noted = [f",{i}={one.generation}" for i, one in enumerate(some, 1) if one.generation and one.how != "done"]
        out.append(marks + "".join(noted))
    return out


def _mark(waits: Waits, gate: Known | None) -> str:
    if gate is not None:
        return GATED
    return f"{OWN}{waits.gates}" if waits.gates else ""


def follower(topic: str, shard: int, index: int | str, nonce: str, id: str, early: bool = False) -> str:
    """Who waits for a job, in the form that attach takes. ``early``: it is there before the job can start."""
    return (SEPARATOR if early else "") + SEPARATOR.join((topic, str(shard), str(index), nonce, id))


def child_line(topic: str, shard: int, nonce: str, id: str) -> str:
    """A child, as it is stored among those that a job waits for."""
    return SEPARATOR.join((topic, str(shard), ADDED + nonce, id))


def before_text(names: Iterable[tuple[str, str]]) -> str:
    """What the line of a child begins with. ``names``: those that wait for it, too, by nonce and id."""
    return "".join(("0", ADDED, *(f"{BETWEEN}{nonce}\x1d{id}" for nonce, id in names)))


def children_field(id: str, life: str) -> str:
    """Of ``followers``: the children of a job, which are to be put in."""
    return f"{id}{SEPARATOR}{life}{SEPARATOR}{ADDED}"


OUTCOMES = {letter: how or None for how, letter in ENDINGS.items()}


def member(id: str, nonce: str) -> str:
    """How a job that waits is named in its shard's keys."""
    return f"{id}{SEPARATOR}{nonce}"


def fields_of(member: str, parts: int) -> list[str]:
    """The fields of ``dependencies`` with the first parts of what a job waits for."""
    return [field for n in range(parts) for field in part_fields(member, n)]


def part_fields(member: str, n: int) -> list[str]:
    """Those of the n-th part: who they are, and how each has ended."""
    return [f"{member}{SEPARATOR}{n}{end}" for end in ("", f"{SEPARATOR}s")]


def head_in(head: bytes) -> tuple[int, bool]:
    """How many a job waits for, and whether the first of these is the gate of its flow."""
    total, _, _, _, on_failure, _ = head.decode().split("|")
    return int(total), on_failure.endswith(GATED)


def on_failure_in(head: bytes) -> str:
    """What becomes of a job if one that it waits for fails."""
    return head.decode().split("|")[4].rstrip(GATED).partition(OWN)[0]


def dependencies_in(head: bytes, blocked: bool, stored: Sequence[bytes | None]) -> Dependencies:
    """``stored``: the values of ``fields_of``."""
    total, done, failed, delay_ms, _, _ = head.decode().split("|")
    jobs = [Dependency(one.topic, one.id, one.outcome) for one in parents_in(stored)]
    how: Any = on_failure_in(head)
    _, has_gate = head_in(head)
    is_open = has_gate and jobs[0].outcome == "done"
    return Dependencies(
        int(total) - has_gate, int(done) - is_open, int(failed), how, int(delay_ms), blocked, tuple(jobs[has_gate:])
    )


class StoredParent(NamedTuple):
    """One of those that a job waits for. ``outcome`` None: it has not ended."""

    topic: str
    shard: int
    life: str
    id: str
    outcome: str | None


def parents_in(stored: Sequence[bytes | None]) -> list[StoredParent]:
    """``stored``: the values of ``fields_of``."""
    found: list[StoredParent] = []
    for others, states in zip(stored[::2], stored[1::2], strict=True):
        marks = (states or b"").decode().split(",")[0]
        for line, letter in zip((others or b"").decode().split("\n"), marks, strict=False):
            topic, shard, life, id = line.split(SEPARATOR)
            found.append(StoredParent(topic, int(shard), life.lstrip(ADDED), id, OUTCOMES[letter]))
    return found


def followers_in(text: bytes) -> list[Follower]:
    """Who waits for a job that is in the pool."""
    return ending_in("", text.decode()).followers
