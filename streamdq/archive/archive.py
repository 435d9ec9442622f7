"""The archive: moves dead letters from Redis to a database, and back when they are kicked.

A dead letter is first committed to the database and then removed from Redis; a kicked one is first added to Redis and
then marked in the database. Each Redis step is one script, which leaves a receipt until the database knows. So the next
run completes what a killed run had begun, without loss or duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TypeVar

from ..codec.configured import bodies_of
from ..codec.envelope import from_text
from ..codec.protocol import Codec
from ..config import Settings
from ..errors import InvalidInput, UnknownGroup, UnknownTopic
from ..job.job import ENCODED, check_id, check_topic
from ..keys import ShardKeys
from ..link.session import Op
from ..operations.dead_letters.kick_throttle import KickThrottle
from ..queue import Queue, carry_out, store_of
from ..times.durations import Duration, to_ms
from .dead_letters import GIVEN, PAGE, TAKEN, ArchivedJob, DeadLetter, DeadLetters, RowState, Wanted

if TYPE_CHECKING:
    from .store import Store

T = TypeVar("T")
TellProgress = Callable[[int, int], None]
"""Called with how many dead letters are done, and how many there are."""

_KICK_BATCH = 100
_SHOWN = 100


@dataclass(slots=True)
class Stored:
    """The result of ``store``. ``left``: dead letters that were kicked or purged in Redis before they could be taken
    out.
    """

    archived: int = 0
    left: int = 0


@dataclass(slots=True)
class Kicked:
    """The result of ``kick``. ``live``: (topic, group, id) of jobs whose id is live in Redis, at most 100 of
    ``live_count``. ``unknown``: missing topics and groups, with how many dead letters stay because of each.
    """

    kicked: int = 0
    live_count: int = 0
    live: list[tuple[str, str, str]] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)


class Archive:
    """The archive in one database, ``sqlite:///FILE`` or ``postgresql://…``, for one namespace. Close it, or use it as
    a context manager. ``create`` False: the archive must exist. ``codec``: as for Queue; the bodies of these codecs can
    be read.

    Raises:
        InvalidInput: the URL; or the extra ``database`` is not installed.
        ArchiveMissing, ArchiveVersion, ArchiveUnavailable, ArchiveRefusesWrites, ArchiveError
    """

    def __init__(
        self, url: str, namespace: str | None = None, *, create: bool = True, codec: Sequence[Codec] | None = None
    ) -> None:
        try:
            from .store import Store
        except ImportError as error:
            raise InvalidInput(f"archive: needs SQLAlchemy ({error}): pip install 'streamdq[database]'") from None
        self.namespace = Settings().namespace if namespace is None else namespace
        self._bodies = bodies_of(self.namespace, Settings(), codec)
        self._store: Store = Store(url, self.namespace, create)
        self.address = self._store.address

    def body_json(self, dead_letter: DeadLetter) -> bytes:
        """A dead letter's body, as JSON.

        Raises:
            BodyUnreadable: this process can't read it; a key may be missing.
        """
        raw = from_text(dead_letter.body)
        return raw if raw[:1] != ENCODED else self._bodies.decode(dead_letter.topic, dead_letter.id, raw)

    def store(
        self,
        queue: Queue,
        topic: str | None = None,
        group: str | None = None,
        *,
        older_than: Duration = 0,
        reasons: Sequence[str] = (),
        progress: TellProgress | None = None,
        stopping: Callable[[], bool] | None = None,
    ) -> Stored:
        """Moves dead letters that were buried at least ``older_than`` ago into the database, at most 200 and 1 MB at a
        time. First it completes the work of a killed run. ``stopping`` is called between batches.

        Raises:
            UnknownTopic, UnknownGroup: the given topic or group does not exist.
            ArchiveError: dead letters that are not certain to be in the database are still in Redis.
            ServerError: run it again.
        """
        older_ms = to_ms(older_than, "older_than")
        check_reasons(reasons)
        intake = _Intake(self._store, self._side(queue), Wanted(topic, group, reasons=reasons), progress, stopping)
        intake.run(older_ms)
        return intake.stored

    def kick(
        self,
        queue: Queue,
        topic: str | None = None,
        id: str | None = None,
        group: str | None = None,
        *,
        reasons: Sequence[str] = (),
        left: bool = False,
        progress: TellProgress | None = None,
    ) -> Kicked:
        """Sends archived dead letters back to the group that gave them up, and only to it: they are ready at once, as
        after ``Queue.kick``. With an id: the last dead letter of that job in each group; without: all. ``left``: also
        dead letters that left Redis in another way, whose jobs may have been done. A job whose id is live in Redis is
        left alone and reported.

        Raises:
            UnknownTopic, UnknownGroup: the given one does not exist; without a topic, such dead letters are counted and
            stay.
            ArchiveError: run it again; no job is sent twice.
            ServerError: run it again.
        """
        check_reasons(reasons)
        if id is not None and topic is None:
            raise InvalidInput("archive: pass the topic with a job's id")
        states = (RowState.ARCHIVED, RowState.LEFT) if left else (RowState.ARCHIVED,)
        wanted = Wanted(topic and check_topic(topic), group, id and check_id(id), reasons, states)
        back = _Return(self._store, self._side(queue), wanted, progress)
        back.run()
        return back.kicked

    def _side(self, queue: Queue) -> _Side:
        if queue.namespace != self.namespace:
            raise InvalidInput(
                f"archive: it belongs to namespace {self.namespace!r}, the queue to {queue.namespace!r}; use the same"
            )
        return _Side(queue)

    def complete(self, queue: Queue, topic: str | None = None) -> None:
        """Completes what killed runs had begun. If none is running, Redis then has no dead letter that a row has.

        Raises:
            UnknownTopic: the given one does not exist.
            ArchiveError, ServerError: run it again.
        """
        side = self._side(queue)
        side.clear(self._store, topic)
        _Intake(self._store, side, Wanted(topic), None, None).complete_killed_run()

    def delete(self, rows: Sequence[ArchivedJob]) -> int:
        """Deletes these rows permanently; returns how many. Those stay whose dead letters a run of ``store`` has yet to
        take out of Redis.

        Raises:
            ArchiveError
        """
        parts = (rows[start : start + PAGE] for start in range(0, len(rows), PAGE))
        return sum(self._store.delete([row.number for row in part]) for part in parts)

    # -- reading

    def rows(self, wanted: Wanted, limit: int = 100, after: int = 0) -> list[ArchivedJob]:
        """Rows with numbers above ``after``, in the order in which they were archived."""
        return self._store.rows(wanted, limit, after)

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_reasons(reasons: Sequence[str]) -> None:
    from ..operations.attempts.ends import DeadReason

    if unknown := [reason for reason in reasons if reason not in tuple(DeadReason)]:
        raise InvalidInput(f"reason: {unknown[0]!r} is not one of {', '.join(DeadReason)}")


class _Side:
    """The Redis side of one run."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.session = store_of(queue).session
        self.dead_letters = DeadLetters(store_of(queue))

    def run(self, op: Op[T]) -> T:
        return carry_out(self._queue, op)

    def clear(self, store: Store, topic: str | None) -> None:
        """Records in the database what the receipts of killed runs say that Redis did, and clears them."""
        for shard in self.run(self.dead_letters.with_receipts(topic)):
            self._clear(store, shard)

    def _clear(self, store: Store, shard: ShardKeys) -> None:
        receipts = self.run(self.dead_letters.receipts(shard))
        for start in range(0, len(receipts), PAGE):
            part = receipts[start : start + PAGE]
            taken = [receipt for receipt in part if receipt.kind == TAKEN]
            given = [receipt for receipt in part if receipt.kind == GIVEN]
            with store.writing() as db:
                store.mark(db, taken, RowState.ARCHIVED, (RowState.STORED,))
                store.mark(db, given, RowState.KICKED, (RowState.ARCHIVED, RowState.LEFT))
                own = store.own(db, part)  # receipts of other databases are left alone
            self.run(self.dead_letters.forget(shard, [receipt.field for receipt in own]))


class _Intake:
    """One run of ``store``."""

    def __init__(
        self,
        store: Store,
        side: _Side,
        wanted: Wanted,
        progress: TellProgress | None,
        stopping: Callable[[], bool] | None,
    ) -> None:
        self.stored = Stored()
        self._store = store
        self._side = side
        self._wanted = wanted
        self._progress = progress or (lambda _done, _total: None)
        self._stopping = stopping or (lambda: False)
        self._looked = self._total = 0

    def run(self, older_ms: int) -> None:
        side = self._side
        places = side.run(side.dead_letters.places(self._wanted.topic, self._wanted.group))
        side.clear(self._store, self._wanted.topic)
        self.complete_killed_run()
        waiting: list[tuple[str, ShardKeys, int]] = []
        for group, shard in places:
            until_ms = side.run(side.dead_letters.now_ms(shard)) - older_ms
            count = side.run(side.dead_letters.count(shard, group, until_ms))
            if count:
                waiting.append((group, shard, until_ms))
                self._total += count
        for group, shard, until_ms in waiting:
            self._drain(group, shard, until_ms)

    def complete_killed_run(self) -> None:
        """Completes the work of a killed run: what it committed leaves Redis now, if it is still there."""
        wanted = Wanted(self._wanted.topic, self._wanted.group, states=(RowState.STORED,))
        after = 0
        while rows := self._store.rows(wanted, PAGE, after):
            after = rows[-1].number
            by_group: dict[tuple[str, str], list[DeadLetter]] = {}
            for dead_letter in (row.dead_letter for row in rows):
                by_group.setdefault((dead_letter.topic, dead_letter.group), []).append(dead_letter)
            for (topic, group), dead_letters in by_group.items():
                try:
                    shards = self._side.run(self._side.dead_letters.shards_of(topic, group))
                except (UnknownTopic, UnknownGroup):
                    continue  # Redis has lost them; the dead letters stay stored until they are created again
                self._take_out(shards, group, dead_letters)

    def _drain(self, group: str, shard: ShardKeys, until_ms: int) -> None:
        """Moves one group's dead letters of one shard, always from the front, as archived ones leave the list."""
        passed = 0
        while not self._stopping():
            looked, dead_letters = self._side.run(self._side.dead_letters.page(shard, group, until_ms, passed))
            if not looked:
                return
            wanted = [each for each in dead_letters if not self._wanted.reasons or each.reason in self._wanted.reasons]
            if wanted:
                self._store.put(wanted)
                self._take_out([shard], group, wanted)
            passed += looked - len(wanted)
            self._looked += looked
            self._progress(self._looked, max(self._total, self._looked))

    def _take_out(self, shards: Sequence[ShardKeys], group: str, dead_letters: list[DeadLetter]) -> None:
        """Each dead letter is in one of the shards, or has left it; another run may be about to clear its receipt
        there.
        """
        taken, left = dict[ShardKeys, list[DeadLetter]](), dead_letters
        for shard in shards:
            gone = self._side.run(self._side.dead_letters.take_out(shard, group, left))
            taken[shard] = [dead_letter for dead_letter, each in zip(left, gone, strict=True) if each]
            left = [dead_letter for dead_letter, each in zip(left, gone, strict=True) if not each]
        with self._store.writing() as db:
            for some in taken.values():
                self._store.mark(db, some, RowState.ARCHIVED, (RowState.STORED,))
            # Other dead letters that are gone have just been archived by another run.
            self.stored.left += self._store.count(db, left, RowState.STORED)
            self._store.mark(db, left, RowState.LEFT, (RowState.STORED,))
        for shard, some in taken.items():
            self._side.run(self._side.dead_letters.forget(shard, [dead_letter.receipt(TAKEN) for dead_letter in some]))
            self.stored.archived += len(some)


class _Return:
    """One run of ``kick``."""

    def __init__(self, store: Store, side: _Side, wanted: Wanted, progress: TellProgress | None) -> None:
        self.kicked = Kicked()
        self._store = store
        self._side = side
        self._wanted = wanted
        self._progress = progress or (lambda _done, _total: None)

    def run(self) -> None:
        side, wanted = self._side, self._wanted
        side.run(side.dead_letters.places(wanted.topic, wanted.group))  # they are there
        side.clear(self._store, wanted.topic)
        # Dead letters that a killed run committed may still be in Redis, too: take them out first.
        _Intake(self._store, side, Wanted(wanted.topic, wanted.group), None, None).complete_killed_run()
        if wanted.id is not None:
            self._kick(self._last_of_each_group())
            return
        total, until = self._store.extent(wanted)  # no more than there are now: a job may die again at once
        after = done = 0
        throttle = KickThrottle(side.session)
        while rows := self._store.rows(wanted, _KICK_BATCH, after, until):
            after = rows[-1].number
            for topic, group in {(row.dead_letter.topic, row.dead_letter.group) for row in rows if done}:
                side.run(side.dead_letters.wait(throttle, topic, group))
            self._kick(rows)
            done += len(rows)
            self._progress(done, max(total, done))

    def _last_of_each_group(self) -> list[ArchivedJob]:
        last: dict[str, ArchivedJob] = {}
        after = 0
        while rows := self._store.rows(self._wanted, _KICK_BATCH, after):
            after = rows[-1].number
            last |= {row.dead_letter.group: row for row in rows}
        return list(last.values())

    def _kick(self, rows: list[ArchivedJob]) -> None:
        """Sends back one batch. Its rows are locked until Redis has the jobs, so that no other run sends them as well.
        They are marked before that, so that a database that refuses writes says so first.
        """
        given: dict[ShardKeys, list[str]] = {}
        with self._store.writing() as db:
            held = self._store.lock(db, rows, self._wanted.states)
            self._store.turn(db, held, RowState.KICKED)
            by_place: dict[tuple[str, str], list[ArchivedJob]] = {}
            for row in held:
                by_place.setdefault((row.dead_letter.topic, row.dead_letter.group), []).append(row)
            for (topic, group), part in by_place.items():
                there = self._give(topic, group, [row.dead_letter for row in part])
                for row, shard in zip(part, there, strict=True):
                    if shard is not None:
                        given.setdefault(shard, []).append(row.dead_letter.receipt(GIVEN))
                kept = [row for row, shard in zip(part, there, strict=True) if shard is None]
                for state in self._wanted.states:
                    self._store.turn(db, [row for row in kept if row.state is state], state)
        self.kicked.kicked += sum(map(len, given.values()))
        for shard, receipts in given.items():
            self._side.run(self._side.dead_letters.forget(shard, receipts))

    def _give(self, topic: str, group: str, part: list[DeadLetter]) -> list[ShardKeys | None]:
        """Returns in which shards the dead letters are ready; notes why others are not."""
        try:
            there = self._side.run(self._side.dead_letters.give_back(topic, group, part))
        except (UnknownTopic, UnknownGroup) as error:
            if self._wanted.topic is not None:
                raise
            self.kicked.unknown[str(error)] = self.kicked.unknown.get(str(error), 0) + len(part)
            return [None] * len(part)
        for dead_letter, shard in zip(part, there, strict=True):
            if shard is None:
                self._live(dead_letter)
        return there

    def _live(self, dead_letter: DeadLetter) -> None:
        self.kicked.live_count += 1
        if len(self.kicked.live) < _SHOWN:
            self.kicked.live.append((dead_letter.topic, dead_letter.group, dead_letter.id))
