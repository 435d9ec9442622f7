"""What must be true of a shard's keys between any two calls, whatever the calls were: said here once, for every test of
every script. It takes the stored formats apart by itself, so that it shares no mistake with the product.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from streamdq.keys import ShardKeys
from streamdq.link.command import Command
from streamdq.link.session import Op, Session, checked

MARK = b"\x1f"
UNBEGUN = b"\x1e"
_ENTRY = rb"(?:\d+-\d+|-)"
_PAST = rb"\d+(?:\+\d+)?\|\d+\|\d+"  # attempt, step, crashes
FORM = re.compile(
    # started and deadline are of a running attempt; a job that waits has only a due time
    rb"r\|%(past)b\|%(entry)b\|[0-9a-f]{12}\|(?:%(entry)b)?\|-?\d+\|\d+\|.*"
    rb"|w\|%(past)b\|%(entry)b\|[0-9a-f]{12}\|\|\|\d*\|.*"
    rb"|d\|%(past)b\|%(entry)b\|[0-9a-f]{12}\|\|\|\|[^|]*\|.*"
    rb"|x\|0\|0\|0\|%(entry)b\|\|\|\|\|" % {b"past": _PAST, b"entry": _ENTRY},
    re.DOTALL,
)
"""A progress, by its state."""


class Progress(NamedTuple):
    state: bytes
    main: bytes
    sequence: bytes
    entry: bytes
    started: bytes
    deadline: bytes


class Stored(NamedTuple):
    """A shard as it is in Redis. Progress by group and id; ready entries by stream, and dead letters by group."""

    records: dict[bytes, bytes]
    progress: dict[bytes, dict[bytes, Progress]]
    bucket: dict[bytes, float]
    counts: Counter[bytes]
    settings: dict[bytes, bytes]
    shared: dict[bytes, bytes]
    own: dict[bytes, dict[bytes, bytes]]
    dead: dict[bytes, dict[bytes, float]]
    keyed: dict[bytes, bytes]
    lanes: list[bytes]
    fronts: list[bytes]
    crowds: dict[bytes, bytes]

    @property
    def places(self) -> list[bytes]:
        return [ticket for ticket in self.fronts if not ticket.startswith(UNBEGUN)]

    @property
    def unbegun(self) -> list[bytes]:
        """Those that have a place and have not started, in a topic with a pace of keys."""
        return [mark[1:] for mark in self.fronts if mark.startswith(UNBEGUN)]

    @property
    def groups(self) -> list[bytes]:
        return [group for group in self.settings.get(b"groups", b"").split(b",") if group]


def read(session: Session, k: ShardKeys, groups: Sequence[str]) -> Op[Stored]:
    commands = [
        *(Command(key, ("HGETALL", key)) for key in (k.jobs, k.progress, k.counts, k.settings)),
        Command(k.bucket, ("ZRANGE", k.bucket, 0, -1, "WITHSCORES")),
        Command(k.keyed, ("HGETALL", k.keyed)),
        *(Command(key, ("ZRANGE", key, 0, -1)) for key in (k.lanes, k.fronts)),
        Command(k.crowds, ("ZRANGE", k.crowds, 0, -1, "WITHSCORES")),
        *(Command(key, ("XRANGE", key, "-", "+")) for key in (k.ready, *map(k.ready_of, groups))),
        *(Command(key, ("ZRANGE", key, 0, -1, "WITHSCORES")) for key in map(k.dead_of, groups)),
    ]
    replies = [checked(reply) for reply in (yield from session.call(commands))]
    records, progress, counts, settings, bucket = (pairs(reply) for reply in replies[:5])
    keyed, lanes, fronts, crowds = replies[5:9]
    del replies[5:9]
    names = [group.encode() for group in groups]
    streams = [{entry: fields[1] for entry, fields in reply} for reply in replies[5 : 6 + len(names)]]
    letters = [{id: float(at) for id, at in pairs(reply).items()} for reply in replies[6 + len(names) :]]
    return Stored(
        records,
        by_group(progress),
        {member: float(due) for member, due in bucket.items()},
        Counter({name: int(value) for name, value in counts.items()}),
        settings,
        streams[0],
        dict(zip(names, streams[1:], strict=True)),
        dict(zip(names, letters, strict=True)),
        pairs(keyed),
        lanes,
        fronts,
        pairs(crowds),
    )


def pairs(reply: list[Any]) -> dict[bytes, bytes]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def by_group(progress: dict[bytes, bytes]) -> dict[bytes, dict[bytes, Progress]]:
    found: dict[bytes, dict[bytes, Progress]] = defaultdict(dict)
    for field, value in progress.items():
        group, _, id = field.partition(MARK)
        assert FORM.fullmatch(value), value
        state, _, _, _, main, sequence, entry, started, deadline, _ = value.split(b"|", 9)
        found[group][id] = Progress(state, main, sequence, entry, started, deadline)
    return found


def contradictions(stored: Stored, now_ms: float = float("inf")) -> list[str]:
    """What does not fit together; nothing, if all is well."""
    found = [text for group in stored.groups for text in _of_group(stored, group)]
    found += _of_bucket(stored)
    found += _of_lanes(stored, now_ms)
    detached = {id for of in stored.progress.values() for id, p in of.items() if p.main == b"-"}
    # A leaving group's progress may be of a job that had the id of another one before.
    if stored.counts[b"detached"] != len(detached) and b"leaving" not in stored.settings:
        found.append(f"{len(detached)} jobs are detached, counted are {stored.counts[b'detached']}")
    return found


def _of_group(stored: Stored, group: bytes) -> list[str]:
    progress, dead = stored.progress.get(group, {}), stored.dead.get(group, {})
    states = Counter(p.state for p in progress.values())
    waiting = [member for member in stored.bucket if member[12:].startswith(MARK + group + MARK)]
    counted = {b"running": states[b"r"], b"through": states[b"x"], b"waiting": len(waiting)}
    counted[b"aside"] = sum(ticket.startswith(group + MARK) for ticket in stored.lanes)
    counted[b"ready"] = states[b"w"] - len(waiting) - counted[b"aside"] + _untouched(stored, group)
    found = [
        f"{name.decode()} of {group.decode()}: {number}, counted {stored.counts[name + b':' + group]}"
        for name, number in counted.items()
        if stored.counts[name + b":" + group] != number
    ]
    if letters := dead.keys() ^ {id for id, p in progress.items() if p.state == b"d"}:
        found.append(f"dead letters of {group.decode()}: {letters}")
    return found + _entries_of(stored, group)


def _untouched(stored: Stored, group: bytes) -> int:
    """Jobs in the shared stream that the group has not begun."""
    begun = stored.progress.get(group, {})
    detached = {id for of in stored.progress.values() for id, p in of.items() if p.main == b"-"}
    return sum(
        id not in begun and id not in detached and record[:12] + id not in stored.bucket
        for id, record in stored.records.items()
    )


def _entries_of(stored: Stored, group: bytes) -> list[str]:
    """Each attempt that is ready or running has its entry."""
    own, found = stored.own.get(group, {}), []
    members = set(own.values())
    for id, p in stored.progress.get(group, {}).items():
        member = p.sequence + MARK + group + MARK + id
        aside = stored.keyed.get(group + MARK + id) in stored.lanes
        if p.state == b"w" and member not in members and member not in stored.bucket and not aside:
            found.append(f"{id!r} is in no stream of {group.decode()}")
        if p.state == b"r" and (p.entry or p.main) not in (own if p.entry else stored.shared):
            found.append(f"{id!r} runs in {group.decode()} without its entry")
    return found


def _of_bucket(stored: Stored) -> list[str]:
    """Each member is the next delivery of a job, at its time, or later: what was lost twice is held back."""
    found = []
    for member, score in stored.bucket.items():
        sequence, rest = member[:12], member[12:]
        if rest.startswith(MARK):
            group, _, id = rest[1:].partition(MARK)
            p = stored.progress.get(group, {}).get(id)
            # A retry that held its key while the key was paused comes out by its ticket, which has its first due time.
            first = _due_of(stored.keyed.get(rest[1:]))
            good = p is not None and p.state == b"w" and p.sequence == sequence
            good = good and score >= min(float(p.deadline or 0 if p else 0), first)
        else:
            record = stored.records.get(rest, b"")
            good = record[:12] == sequence and score == float(record[12:].partition(b"\n")[0] or -1)
        if not good:
            found.append(f"{member!r} at {score} is out of date")
    return found


def _of_lanes(stored: Stored, now_ms: float) -> list[str]:
    """Each ticket is that of a job that waits, or has a place and has not ended. No key is stuck."""
    found = []
    if sorted(stored.keyed.values()) != sorted(stored.lanes + stored.places):
        found.append(f"tickets {stored.keyed}, in lanes {stored.lanes}, with a place {stored.fronts}")
    if not set(stored.unbegun) <= set(stored.places):
        found.append(f"{stored.unbegun} are to start, with a place {stored.places}")
    for field, ticket in stored.keyed.items():
        group, _, id = field.partition(MARK)
        _, _, rest = ticket.split(MARK, 2)
        p = stored.progress.get(group, {}).get(id)
        waits = ticket in stored.lanes
        good = p is not None and rest[25:] == id and (p.state == b"w" if waits else p.state in (b"w", b"r"))
        if good and waits and p is not None:
            good = int(rest[:13]) <= int(p.deadline) and rest[13:25] == p.sequence
        if not good:
            found.append(f"{ticket!r} of {field!r} is out of date")
    return found + _of_waiting(stored, now_ms)


def _of_waiting(stored: Stored, now_ms: float) -> list[str]:
    """They are counted, and wait only for those that come before them."""
    found = []
    waiting, out = (
        Counter(ticket.rpartition(MARK)[0] for ticket in tickets) for tickets in (stored.lanes, stored.places)
    )
    paused = {lane for lane in stored.crowds if lane.startswith(MARK)}
    crowds = {lane: int(number) for lane, number in stored.crowds.items() if lane[:1] not in (MARK, UNBEGUN)}
    if waiting != crowds:
        found.append(f"waiting: {waiting}, counted {stored.crowds}")
    if b"opening" not in stored.settings:
        for lane, number in waiting.items():
            if lane[lane.index(MARK) :] in paused:
                continue
            if _is_open(stored, lane, out[lane]):
                found.append(f"{lane!r} has {number} waiting and {out[lane]} places taken")
            found += _overtaken(stored, lane, now_ms)
    return found


def _is_open(stored: Stored, lane: bytes, taken: int) -> bool:
    """Whether the lane has a place to give."""
    most, _, pace = stored.settings.get(b"key_limit", b"0").partition(b"/")
    unbegun = sum(ticket.rpartition(MARK)[0] == lane for ticket in stored.unbegun)
    return (most == b"0" or taken < int(most)) and (not pace or unbegun < max(1, int(50 / float(pace))))


def _due_of(ticket: bytes | None) -> float:
    return float(ticket.split(MARK, 2)[2][:13]) if ticket else math.inf


def _overtaken(stored: Stored, lane: bytes, now_ms: float) -> list[str]:
    """Of what is in the bucket with its first due time, none is later than what waits and not due."""
    first = min(ticket for ticket in stored.lanes if ticket.startswith(lane + MARK))
    given = stored.unbegun if b"/" in stored.settings.get(b"key_limit", b"") else stored.places
    last = max((ticket for ticket in given if ticket.startswith(lane + MARK)), default=b"")
    group, rest = lane.partition(MARK)[0], last.rpartition(MARK)[2]
    member = rest[13:25] + MARK + group + MARK + rest[25:]
    early = last > first and member in stored.bucket and stored.bucket[member] > now_ms
    return [f"{first!r} waits for {last!r}"] if early else []
