"""Schedules as Redis holds them: the codec of their records, and how they are read and changed. All of a topic's
schedules are in its first shard, which it has whatever its number of shards. ``lua/lib/schedule.lua`` has the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ...config import MAX_BATCH
from ...keys import ShardKeys
from ...link.command import Command
from ...link.session import Op, Session, checked
from ...schedules.civil import database_version
from ...schedules.definition import Definition, definition_in
from ...schedules.plan import Occurrence, Plan, late_ms, make_plan, occurrence_id
from ..calling import Spread
from ..commands import one
from ..counters import ShardCounter
from ..replies import Fired, Written
from ..scripts import Scripts
from ..topics.topics import Topics, changing

ScheduleState = Literal["active", "paused", "ended"]
_OCCURRENCES, _FIELDS = "\x1e", "\x1f"
_PAGE = 200
_RACES = 20
LOOK_AGAIN_MS = 1_000
"""When to look again at what waits for its predecessor to end."""
AHEAD_MS = 10_000
"""Jobs of schedules are enqueued this long before they are due, so that those of the same minute are in their buckets
when it comes.
"""
_BACK_MS = 3_600_000


class Totals(NamedTuple):
    """How many occurrences became jobs, were skipped as they overlapped, and were missed."""

    fired: int = 0
    skipped: int = 0
    missed: int = 0


_NONE = Totals()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """Every field of a schedule's record."""

    version: int = 0
    state: ScheduleState = "active"
    definition: Definition
    shards: int = 0
    last_ms: int
    late_ms: int = 0
    held: Occurrence | None = None
    ahead: Occurrence | None = None  # enqueued, and not due when last looked at
    previous: str = ""
    totals: Totals = _NONE
    plan: Sequence[Occurrence] = field(default_factory=tuple)
    more: bool = True
    zones: str = ""  # the version of the time zone database that the plan was made with
    job: bytes  # the rest of the record of its jobs, with {due} in the body

    def look_ms(self, ahead_ms: int = AHEAD_MS) -> int | None:
        """When the mover looks at it next."""
        if self.state != "active":
            return None
        waits = [self.last_ms] if self.held or (self.more and not self.plan) else []
        return min([*waits, *(one.due_ms - ahead_ms for one in self.plan[:1])], default=None)

    def is_due(self, now_ms: int) -> bool:
        """Whether an occurrence is due and has not been enqueued yet."""
        return self.state == "active" and any(one.due_ms <= now_ms for one in self.plan[:1])

    def is_ahead(self, now_ms: int) -> bool:
        """Whether the job of its next occurrence is enqueued already."""
        return self.ahead is not None and self.ahead.due_ms > now_ms

    def is_beyond(self, now_ms: int) -> bool:
        """Whether the clock has been set back since by more than an hour. Nothing of it would run until that time has
        come again, which may take years if the clock was wrong by as much.
        """
        return self.state != "paused" and self.last_ms > now_ms + _BACK_MS

    def begun_again(self, now_ms: int) -> StoredSchedule:
        """As if it was made now, if it is beyond."""
        if not self.is_beyond(now_ms):
            return self
        definition = replace(self.definition, anchor_ms=min(self.definition.anchor_ms, now_ms))
        return replace(self, definition=definition, last_ms=now_ms, late_ms=0, plan=())

    def seen_at(self, now_ms: int) -> StoredSchedule:
        """As it is at that moment, with the occurrence whose job is enqueued ahead of its time in the plan until it is
        due.
        """
        if self.ahead is None:
            return self
        if not self.is_ahead(now_ms):
            return replace(self, ahead=None, previous=self.ahead.id)
        fired, skipped, missed = self.totals
        return replace(
            self, state="active", ahead=None, plan=[self.ahead, *self.plan], totals=Totals(fired - 1, skipped, missed)
        )

    def is_planned(self) -> bool:
        """False: it was missed so often that more of these occurrences have to be looked at."""
        return bool(self.plan) or not self.more or self.state == "paused"

    def with_plan(self, plan: Plan, shards: int) -> StoredSchedule:
        fired, skipped, missed = self.totals
        return replace(
            self,
            state="active" if plan.occurrences or plan.more or self.held else "ended",
            shards=shards,
            last_ms=plan.last_ms,
            late_ms=plan.late_ms,
            plan=plan.occurrences,
            more=plan.more,
            zones=database_version(),
            totals=Totals(fired, skipped, missed + plan.missed),
        )

    def encode(self) -> bytes:
        """All but the version, which the script counts."""
        held, ahead = (_encode_occurrence(one) if one else "" for one in (self.held, self.ahead))
        plan = _OCCURRENCES.join(map(_encode_occurrence, self.plan))
        lines = (
            self.state, self.definition.overlap, self.shards, self.last_ms, self.late_ms, held, ahead,
            self.previous,
            ":".join(map(str, self.totals)), plan, int(self.more), f"{self.zones} {self.definition.text()}",
        )  # fmt: skip
        return "".join(f"{line}\n" for line in lines).encode() + self.job


def schedule_in(record: bytes) -> StoredSchedule:
    *head, definition, job = record.split(b"\n", 13)
    version, state, _overlap, shards, last, late, held, ahead, previous, totals, plan, more = (
        part.decode() for part in head
    )
    zones, _, text = definition.decode().partition(" ")
    return StoredSchedule(
        version=int(version), state=state, definition=definition_in(text),  # type: ignore[arg-type]
        shards=int(shards), last_ms=int(last), late_ms=int(late),
        held=_occurrence_in(held) if held else None, ahead=_occurrence_in(ahead) if ahead else None,
        previous=previous, totals=Totals(*map(int, totals.split(":"))),
        plan=[_occurrence_in(one) for one in plan.split(_OCCURRENCES) if one], more=more == "1", zones=zones, job=job,
    )  # fmt: skip


def _encode_occurrence(occurrence: Occurrence) -> str:
    return _FIELDS.join(map(str, occurrence))


def _occurrence_in(text: str) -> Occurrence:
    due, time, id, shown = text.split(_FIELDS)
    return Occurrence(int(due), int(time), id, shown)


# -- what can be done with them

Changed = Callable[[StoredSchedule | None, int], StoredSchedule]
"""Makes of a schedule (None: there is none) and Redis's time the new one. The same object: nothing changes."""


class Standing(NamedTuple):
    """Which schedules a topic has, and how many were ever removed from it."""

    present: set[str]
    removals: int


class Schedules:
    """Reads and writes the schedules of one namespace."""

    def __init__(self, session: Session, scripts: Scripts, topics: Topics) -> None:
        self._session = session
        self._scripts = scripts
        self._topics = topics
        self._late_ms = late_ms(manual=session.clock.manual)

    def read(self, topic: str, id: str) -> Op[tuple[StoredSchedule | None, int]]:
        """The schedule, if there is one, and Redis's time."""
        key = self._first(topic).schedules
        commands = [Command(key, ("HGET", key, id)), Command(key, ("TIME",))]
        record, now = map(checked, (yield from self._session.call(commands)))
        return None if record is None else schedule_in(record), self._ms(now)

    def now_ms(self, topic: str) -> Op[int]:
        """The time of the topic's first shard."""
        return self._ms((yield from one(self._session, self._first(topic).schedules, "TIME")))

    def _ms(self, reply: Sequence[bytes]) -> int:
        given = self._session.clock.argument()
        return int(given) if given else int(reply[0]) * 1000 + int(reply[1]) // 1000

    def counts(self, topics: Sequence[str]) -> Op[list[int]]:
        """How many schedules each of these topics has."""
        keys = [self._first(topic).schedules for topic in topics]
        return [checked(reply) for reply in (yield from self._session.call([Command(k, ("HLEN", k)) for k in keys]))]

    def of_each(self, topics: Sequence[str]) -> Op[list[tuple[str, StoredSchedule]]]:
        """The schedules of these topics, each with its id, in one call: for topics of which ``counts`` says that they
        have few.
        """
        keys = [self._first(topic).schedules for topic in topics]
        replies = yield from self._session.call([Command(key, ("HGETALL", key)) for key in keys])
        return [
            (id.decode(), schedule_in(text))
            for flat in map(checked, replies)
            for id, text in zip(flat[::2], flat[1::2], strict=True)
        ]

    def all_of(self, topic: str) -> Op[dict[str, StoredSchedule]]:
        """The topic's schedules by id. Of those that are made or removed meanwhile, some are missing."""
        key, cursor = self._first(topic).schedules, "0"
        found: dict[str, StoredSchedule] = {}
        while True:
            reply = yield from one(self._session, key, "HSCAN", key, cursor, "COUNT", _PAGE)
            cursor, flat = reply[0].decode(), reply[1]
            found |= {id.decode(): schedule_in(text) for id, text in zip(flat[::2], flat[1::2], strict=True)}
            if cursor == "0":
                return found

    def standing(self, topic: str, ids: Sequence[str]) -> Op[Standing | None]:
        """Which of these there are, and how many of the topic's have been removed; None: some were removed during the
        call.
        """
        first = self._first(topic)
        count = Command(first.counts, ("HGET", first.counts, ShardCounter.UNSCHEDULED))
        looks = [Command(first.schedules, ("HEXISTS", first.schedules, id)) for id in ids]
        before, *found, after = map(checked, (yield from self._session.call([count, *looks, count])))
        if before != after:
            return None
        return Standing({id for id, there in zip(ids, found, strict=True) if there}, int(after or 0))

    def remove(self, topic: str, id: str) -> Op[bool]:
        """Also takes back the job of its next occurrence. False: there is none.

        Raises:
            ServerUnavailable: others changed it all the time.
        """
        for _ in range(_RACES):
            yield from self._scripts.retract(self._first(topic), id)
            if (removed := (yield from self._scripts.unschedule(self._first(topic), id))) is not None:
                return removed
        raise changing(topic)

    def fire(self, first: ShardKeys, spread: Spread) -> Op[Fired]:
        """Enqueues the jobs of occurrences that are due, or soon will be. ``first``: the topic's shard 0."""
        return self._scripts.fire(
            first, spread, MAX_BATCH, late_ms=self._late_ms, again_ms=LOOK_AGAIN_MS, ahead_ms=AHEAD_MS
        )

    def change(self, topic: str, id: str, changed: Changed) -> Op[tuple[StoredSchedule, int]]:
        """Reads the schedule, changes it, plans it, and writes it, once more if somebody else did meanwhile.
        Occurrences that were due before are not changed; a job that was enqueued ahead of its time is taken back. The
        topic must exist. Returns the schedule and Redis's time.

        Raises:
            ServerUnavailable: others changed it all the time.
        """
        for _ in range(_RACES):
            known, now_ms = yield from self.read(topic, id)
            after = changed(known, now_ms)
            if after is known:
                return after, now_ms
            if known is not None and known.is_due(now_ms):
                yield from self._fire_due(topic, id)
            elif known is not None and known.is_ahead(now_ms):
                yield from self._scripts.retract(self._first(topic), id)
            elif (written := (yield from self._write(topic, id, after, now_ms))) and written.is_planned():
                return written, now_ms
        raise changing(topic)

    def replan(self, topic: str, id: str) -> Op[int]:
        """Gives the schedule a new plan, unless it is paused or was removed meanwhile; returns how many occurrences
        were missed. If very many were, it looks at some of them, and at the next ones when it is called again.

        Raises:
            ServerUnavailable: others changed it all the time.
        """
        before, written = None, None
        for _ in range(_RACES):
            known, now_ms = yield from self.read(topic, id)
            if known is None or known.state == "paused":
                return 0
            before = known.totals.missed if before is None else before
            written = (yield from self._write(topic, id, known.begun_again(now_ms), now_ms)) or written
            if written and written.is_planned():
                break
        if written is None:
            raise changing(topic)
        return written.totals.missed - (before or 0)

    def begin_again(self, topic: str, id: str) -> Op[None]:
        """If the clock was set back by more than an hour: gives the schedule a plan that begins now, and takes back the
        job that was enqueued ahead of a time that has not come.
        """
        known, now_ms = yield from self.read(topic, id)
        if known is not None and known.is_beyond(now_ms):
            if known.is_ahead(now_ms):
                yield from self._scripts.retract(self._first(topic), id)
            yield from self.replan(topic, id)

    def _fire_due(self, topic: str, id: str) -> Op[None]:
        """Enqueues what is due, as the mover does."""
        spread = self._topics.settings_of(topic).spread
        fired = yield from self.fire(self._first(topic), spread)
        if not fired.current:
            yield from self._topics.shared(topic, self._topics.repair)
        elif id in fired.unplanned:
            yield from self.replan(topic, id)

    def _write(self, topic: str, id: str, after: StoredSchedule, now_ms: int) -> Op[StoredSchedule | None]:
        """None: it has to be read again."""
        settings, missed = (yield from self._topics.get(topic)), 0
        if after.state != "paused":
            plan = make_plan(after.definition, id, after.last_ms, now_ms, settings.shards, self._late_ms)
            after, missed = after.with_plan(plan, settings.shards), plan.missed
            if held := after.held:  # its id may have been made for another number of shards
                after = replace(after, held=held._replace(id=occurrence_id(id, held.time_ms, settings.shards)))
        written = yield from self._scripts.schedule(
            self._first(topic), settings.layout.text, id, after.version, after.look_ms(), missed, after.encode()
        )
        if written is Written.OUTDATED:
            yield from self._topics.shared(topic, self._topics.repair)
        return after if written is Written.YES else None

    def _first(self, topic: str) -> ShardKeys:
        return self._session.keys.shard(topic, 0)
