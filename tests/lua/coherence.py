"""What must be true of a shard's keys between any two calls, whatever the calls were: said here once, for every test of
every script. It takes the stored formats apart by itself, so that it shares no mistake with the product.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from streamdq.keys import ShardKeys
from streamdq.link.command import Command
from streamdq.link.session import Op, Session, checked
from tests.lua.links import Links, contradicting

MARK = b"\x1f"
_ENTRY = rb"(?:\d+-\d+|-)"
_PAST = rb"\d+(?:\+\d+)?\|\d+\|\d+"  # attempt, step, crashes
FORM = re.compile(
    # started and deadline are of a running attempt; a job that waits has only a due time
    rb"[ra]\|%(past)b\|%(entry)b\|[0-9a-f]{12}\|(?:%(entry)b)?\|-?\d+\|\d+\|.*"
    rb"|w\|%(past)b\|%(entry)b\|[0-9a-f]{12}\|\|\|\d*\|.*"
    rb"|d\|%(past)b\|%(entry)b\|[0-9a-f]{12}\|\|\|\|[^|]*\|.*"
    rb"|x\|0\|0\|0\|%(entry)b\|\|\|\|\|(?:archived|purged|cancelled|expired)?" % {b"past": _PAST, b"entry": _ENTRY},
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
    tickets: dict[bytes, bytes]
    waiting: list[bytes]
    admitted: list[bytes]
    unstarted: list[bytes]
    paused: list[bytes]
    counted: dict[bytes, bytes]
    links: Links
    ranked: dict[bytes, set[bytes]]  # what waits for its turn, by group

    @property
    def groups(self) -> list[bytes]:
        return [group for group in self.settings.get(b"groups", b"").split(b",") if group]


def read(session: Session, k: ShardKeys, groups: Sequence[str]) -> Op[Stored]:
    commands = [
        *(Command(key, ("HGETALL", key)) for key in (k.jobs, k.progress, k.counts, k.settings)),
        Command(k.bucket, ("ZRANGE", k.bucket, 0, -1, "WITHSCORES")),
        Command(k.key_tickets, ("HGETALL", k.key_tickets)),
        *(
            Command(key, ("ZRANGE", key, 0, -1))
            for key in (k.key_waiting, k.key_admitted, k.key_unstarted, k.key_paused)
        ),
        *(Command(key, ("HGETALL", key)) for key in (k.followers, k.dependencies)),
        *(Command(key, ("ZRANGE", key, 0, -1, "WITHSCORES")) for key in (k.endings, k.dependents, k.blocked)),
        Command(k.key_counts, ("ZRANGE", k.key_counts, 0, -1, "WITHSCORES")),
        *(Command(key, ("XRANGE", key, "-", "+")) for key in (k.ready, *map(k.ready_of, groups))),
        *(Command(key, ("ZRANGE", key, 0, -1, "WITHSCORES")) for key in map(k.dead_of, groups)),
        *(Command(key, ("ZRANGE", key, 0, -1)) for key in map(k.ranked_of, groups)),
    ]
    replies = [checked(reply) for reply in (yield from session.call(commands))]
    records, progress, counts, settings, bucket = (pairs(reply) for reply in replies[:5])
    tickets, waiting, admitted, unstarted, paused = replies[5:10]
    links, counted = Links(*map(pairs, replies[10:15])), replies[15]
    del replies[5:16]
    names = [group.encode() for group in groups]
    streams = [{entry: fields[1] for entry, fields in reply} for reply in replies[5 : 6 + len(names)]]
    letters = [{id: float(at) for id, at in pairs(reply).items()} for reply in replies[6 + len(names) :][: len(names)]]
    ranked = [set(reply) for reply in replies[6 + 2 * len(names) :]]
    return Stored(
        records,
        by_group(progress),
        {member: float(due) for member, due in bucket.items()},
        Counter({name: int(value) for name, value in counts.items()}),
        settings,
        streams[0],
        dict(zip(names, streams[1:], strict=True)),
        dict(zip(names, letters, strict=True)),
        pairs(tickets),
        waiting,
        admitted,
        unstarted,
        paused,
        pairs(counted),
        links,
        dict(zip(names, ranked, strict=True)),
    )


def pairs(reply: list[Any]) -> dict[bytes, bytes]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def by_group(progress: dict[bytes, bytes]) -> dict[bytes, dict[bytes, Progress]]:
    found: dict[bytes, dict[bytes, Progress]] = defaultdict(dict)
    for field, value in progress.items():
        group, _, id = field.partition(MARK)
        assert FORM.fullmatch(value), value
        state, _, _, _, main, sequence, entry, started, deadline, _ = value.split(b"|", 9)
        state = b"r" if state == b"a" else state  # told to stop, it runs until it ends
        found[group][id] = Progress(state, main, sequence, entry, started, deadline)
    return found


def contradictions(stored: Stored, now_ms: float = float("inf")) -> list[str]:
    """What does not fit together; nothing, if all is well."""
    found = [text for group in stored.groups for text in _of_group(stored, group)]
    found += _of_bucket(stored)
    found += _of_keys(stored, now_ms)
    found += [f"links: {text}" for text in _of_links(stored)]
    detached = {id for of in stored.progress.values() for id, p in of.items() if p.main == b"-"}
    # A leaving group's progress may be of a job that had the id of another one before.
    if stored.counts[b"detached"] != len(detached) and b"leaving" not in stored.settings:
        found.append(f"{len(detached)} jobs are detached, counted are {stored.counts[b'detached']}")
    return found


def _of_links(stored: Stored) -> Iterator[str]:
    yield from contradicting(stored.links, stored.records, stored.progress, stored.counts[b"waiting_for_jobs"])


def _of_group(stored: Stored, group: bytes) -> list[str]:
    progress, dead = stored.progress.get(group, {}), stored.dead.get(group, {})
    states = Counter(p.state for p in progress.values())
    waiting = [member for member in stored.bucket if member[12:].startswith(MARK + group + MARK)]
    counted = {b"running": states[b"r"], b"waiting": len(waiting)}
    counted[b"waiting_for_key"] = sum(ticket.startswith(group + MARK) for ticket in stored.waiting)
    counted[b"ready"] = states[b"w"] - len(waiting) - counted[b"waiting_for_key"] + _untouched(stored, group)
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
    members = set(own.values()) | stored.ranked.get(group, set())
    for id, p in stored.progress.get(group, {}).items():
        member = p.sequence + MARK + group + MARK + id
        waits = stored.tickets.get(group + MARK + id) in stored.waiting
        if p.state == b"w" and member not in members and member not in stored.bucket and not waits:
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
            first = _due_of(stored.tickets.get(rest[1:]))
            good = p is not None and p.state == b"w" and p.sequence == sequence
            good = good and score >= min(float(p.deadline or 0 if p else 0), first)
        else:
            record = stored.records.get(rest, b"")
            good = record[:12] == sequence and score == float(record[12:].partition(b"\n")[0] or -1)
        if not good:
            found.append(f"{member!r} at {score} is out of date")
    return found


def _of_keys(stored: Stored, now_ms: float) -> list[str]:
    """Each ticket is that of a job that waits, or is admitted and has not ended. No key is stuck."""
    found = []
    if sorted(stored.tickets.values()) != sorted(stored.waiting + stored.admitted):
        found.append(f"tickets {stored.tickets}, waiting {stored.waiting}, admitted {stored.admitted}")
    if not set(stored.unstarted) <= set(stored.admitted):
        found.append(f"{stored.unstarted} are to start, admitted {stored.admitted}")
    for field, ticket in stored.tickets.items():
        group, _, id = field.partition(MARK)
        _, _, rest = ticket.split(MARK, 2)
        p = stored.progress.get(group, {}).get(id)
        waits = ticket in stored.waiting
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
        Counter(ticket.rpartition(MARK)[0] for ticket in tickets) for tickets in (stored.waiting, stored.admitted)
    )
    if waiting != {group_key: int(number) for group_key, number in stored.counted.items()}:
        found.append(f"waiting: {waiting}, counted {stored.counted}")
    if b"limit_applied_to" not in stored.settings:
        for group_key, number in waiting.items():
            if group_key.partition(MARK)[2] in stored.paused:
                continue
            if _is_open(stored, group_key, out[group_key]):
                found.append(f"{group_key!r} has {number} waiting and {out[group_key]} admitted")
            found += _overtaken(stored, group_key, now_ms)
    return found


def _is_open(stored: Stored, group_key: bytes, taken: int) -> bool:
    """Whether another job of the key can be admitted."""
    most, _, pace = stored.settings.get(b"key_limit", b"0").partition(b"/")
    unstarted = sum(ticket.rpartition(MARK)[0] == group_key for ticket in stored.unstarted)
    return (most == b"0" or taken < int(most)) and (not pace or unstarted < max(1, int(50 / float(pace))))


def _due_of(ticket: bytes | None) -> float:
    return float(ticket.split(MARK, 2)[2][:13]) if ticket else math.inf


def _overtaken(stored: Stored, group_key: bytes, now_ms: float) -> list[str]:
    """Of what is in the bucket with its first due time, none is later than what waits and not due."""
    first = min(ticket for ticket in stored.waiting if ticket.startswith(group_key + MARK))
    given = stored.unstarted if b"/" in stored.settings.get(b"key_limit", b"") else stored.admitted
    last = max((ticket for ticket in given if ticket.startswith(group_key + MARK)), default=b"")
    group, rest = group_key.partition(MARK)[0], last.rpartition(MARK)[2]
    member = rest[13:25] + MARK + group + MARK + rest[25:]
    early = last > first and member in stored.bucket and stored.bucket[member] > now_ms
    return [f"{first!r} waits for {last!r}"] if early else []
