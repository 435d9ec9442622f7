"""The Redis side of the archive: operations that take dead letters out of Redis and put them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from ..codec.bodies import Bodies
from ..codec.envelope import as_text, from_text
from ..config import MAX_BATCH, TopicSettings
from ..errors import BodyUnreadable, ServerUnavailable
from ..job.job import Priority
from ..keys import ShardKeys, candidate_shards
from ..link.session import Op, Work
from ..operations.dead_letters.kick_throttle import KickThrottle
from ..operations.jobs.previous_shards import in_turn
from ..operations.known import known_group, topic_names
from ..process.logs import log
from ..store.batches import MAX_BYTES, most_jobs, parts
from ..store.dead_letters import archive_receipts, dead_until, drop_archive_receipts
from ..store.jobs.progress import progress_in
from ..store.jobs.records import Record, record_in
from ..store.redis_store import RedisStore
from ..store.replies import NOT_HERE
from ..store.topics.changes import expect_keys, expect_priorities

PAGE = 200
_TAKE_BATCH, _GIVE_BATCH = 100, 50
_REPAIRS = 5
_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter: a job that one group gave up, with everything needed to send it back. Times are Redis's."""

    topic: str
    group: str
    id: str
    sequence: str  # of the buried delivery; together with buried_ms it identifies the burial
    buried_ms: int
    created_ms: int
    due_ms: int
    attempts: int
    step: int
    crashes: int
    reason: str
    error: str
    body: str  # JSON, or an encoded body (codec/envelope.py)
    url: str | None
    ttr_ms: int | None
    retry: str | None
    expire_ms: int | None
    nonce: str
    key: str | None = None
    priority: Priority | None = None

    def receipt(self, kind: str) -> str:
        return _SEPARATOR.join((kind, str(self.buried_ms), self.sequence, self.group, self.id))

    def record(self) -> Record:
        return Record(
            self.sequence, self.due_ms, self.created_ms, self.ttr_ms, self.expire_ms, self.nonce, self.retry, self.url,
            from_text(self.body), self.key, self.priority,
        )  # fmt: skip


class RowState(StrEnum):
    """Where the dead letter of an archive's row is."""

    STORED = "stored"  # committed; Redis may have it, too, until the run goes on or is repeated
    ARCHIVED = "archived"  # only in the database
    KICKED = "kicked"  # sent back to Redis; the row stays as history
    LEFT = "left"  # kicked, purged or lost in Redis after it was stored and before it was taken out


@dataclass(frozen=True, slots=True)
class ArchivedJob:
    """One row of an archive: a dead letter, and what became of it. Its times are from the host that archived it."""

    number: int
    dead_letter: DeadLetter
    state: RowState
    archived_ms: int
    kicked_ms: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selects rows of an archive; None or empty: any."""

    topic: str | None = None
    group: str | None = None
    id: str | None = None
    reasons: Sequence[str] = ()
    states: Sequence[RowState] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """A note in Redis that an archive has taken out or put back a dead letter, until the database knows."""

    field: bytes
    kind: str
    topic: str
    buried_ms: int
    sequence: str
    group: str
    id: str


TAKEN, GIVEN = "taken", "given"


def dead_letter_in(topic: str, group: str, row: tuple[bytes, bytes, bytes, bytes]) -> DeadLetter:
    """The dead letter in a row of the script dead letters."""
    id, buried_ms, kept, progress = row
    record, p = record_in(kept), progress_in(progress)
    return DeadLetter(
        topic, group, id.decode(), p.sequence, int(buried_ms), record.created_ms, record.due_ms,
        p.attempt, p.step, p.crashes, p.reason, p.error, as_text(record.body), record.url,
        record.ttr_ms, record.retry, record.expire_ms, record.nonce, record.key, record.priority,
    )  # fmt: skip


class DeadLetters:
    """The archive's operations on Redis."""

    def __init__(self, store: RedisStore) -> None:
        self._session = store.session
        self._scripts = store.scripts
        self._store = store
        self._topics = store.topics

    def places(self, topic: str | None, group: str | None) -> Op[list[tuple[str, ShardKeys]]]:
        """The selected groups and shards.

        Raises:
            UnknownTopic, UnknownGroup
        """
        if topic is not None and group is not None:
            yield from known_group(self._store, topic, group)
        names = yield from topic_names(self._store, topic)
        return [
            (each, shard)
            for name in names
            for each in self._topics.settings_of(name).group_names
            if group in (None, each)
            for shard in self._topics.shards(name)
        ]

    def now_ms(self, shard: ShardKeys) -> Op[int]:
        return (yield from self._scripts.stats(shard, ())).now_ms

    def count(self, shard: ShardKeys, group: str, until_ms: int) -> Op[int]:
        return (yield from dead_until(self._session, shard, group, until_ms))

    def page(self, shard: ShardKeys, group: str, until_ms: int, offset: int) -> Op[tuple[int, list[DeadLetter]]]:
        """How many dead letters were looked at (0 at the end), and those that were read."""
        looked, rows = yield from self._scripts.dead_letters(shard, group, until_ms, offset, PAGE, MAX_BYTES)
        return looked, (yield from self._whole([dead_letter_in(shard.topic, group, row) for row in rows]))

    def _whole(self, dead_letters: list[DeadLetter]) -> Op[list[DeadLetter]]:
        """The dead letters with their bodies, where these are in files: a database keeps longer than the files are
        kept. One whose file can't be read is left out, and stays in Redis.
        """
        bodies = self._session.bodies
        if not any(bodies.blocks(from_text(dead_letter.body)) for dead_letter in dead_letters):
            return dead_letters

        def whole(dead_letter: DeadLetter) -> DeadLetter | None:
            try:
                raw = bodies.brought_back(dead_letter.topic, dead_letter.id, from_text(dead_letter.body))
            except BodyUnreadable as error:
                log.warning("not archived", topic=dead_letter.topic, id=dead_letter.id, why=error.why)
                return None
            return replace(dead_letter, body=as_text(raw))

        found: list[DeadLetter | None] = yield Work(lambda: [whole(dead_letter) for dead_letter in dead_letters])
        return [dead_letter for dead_letter in found if dead_letter is not None]

    def take_out(self, shard: ShardKeys, group: str, dead_letters: Sequence[DeadLetter]) -> Op[list[bool]]:
        """Takes dead letters of one shard and group out of Redis. False: that dead letter is gone; it was kicked or
        purged, and perhaps buried again. Idempotent until ``forget``.
        """
        settings = self._topics.known.get(shard.topic)
        most = most_jobs(_TAKE_BATCH, len(settings.groups) if settings else 1)
        gone: list[bool] = []
        for start in range(0, len(dead_letters), most):
            args: list[str | int] = []
            for dead_letter in dead_letters[start : start + most]:
                args += [
                    dead_letter.id,
                    dead_letter.receipt(TAKEN),
                    dead_letter.buried_ms,
                    dead_letter.sequence,
                    dead_letter.attempts,
                ]
            gone += yield from self._scripts.archive(shard, group, args)
        return gone

    def shards_of(self, topic: str, group: str) -> Op[list[ShardKeys]]:
        """Every shard that may have dead letters of the group, or receipts of them: the number of shards may have
        changed.

        Raises:
            UnknownTopic, UnknownGroup
        """
        yield from known_group(self._store, topic, group, anew=True)
        return self._topics.all_shards(topic)

    def give_back(self, topic: str, group: str, dead_letters: Sequence[DeadLetter]) -> Op[list[ShardKeys | None]]:
        """Makes dead letters of one topic and group ready again, at most MAX_BATCH. Returns in which shards they are;
        None: the id is live. Idempotent until ``forget``.

        Raises:
            UnknownTopic, UnknownGroup
        """
        assert len(dead_letters) <= MAX_BATCH
        dead_letters = yield from self._put_away(dead_letters)
        for _ in range(_REPAIRS):
            settings = yield from known_group(self._store, topic, group)
            if any(dead_letter.key is not None for dead_letter in dead_letters):
                settings = yield from expect_keys(self._topics, topic)
            if any(dead_letter.priority is not None for dead_letter in dead_letters):
                settings = yield from expect_priorities(self._topics, topic)
            there = yield from self._give(topic, group, settings, dead_letters)
            if there is not None:
                return [there[dead_letter.receipt(GIVEN)] for dead_letter in dead_letters]
            yield from self._topics.repair(topic)
        raise ServerUnavailable(f"topic {topic!r}: its settings were changed during the call; try again")

    def _give(
        self, topic: str, group: str, settings: TopicSettings, dead_letters: Sequence[DeadLetter]
    ) -> Op[dict[str, ShardKeys | None] | None]:
        """By its receipt, where each dead letter is; None: these settings are out of date."""
        # From now on, Redis alone has the job: as durable as a job that is enqueued to the topic.
        scripts, there = self._store.at(None, settings), dict[str, ShardKeys | None]()
        candidates = {dead_letter: _candidates(dead_letter, settings) for dead_letter in dead_letters}
        for turn in range(len(settings.former) + 1):
            left = [dead_letter for dead_letter in dead_letters if dead_letter.receipt(GIVEN) not in there]
            for (number, former), asked in in_turn(turn, left, candidates).items():
                for part in parts(asked, lambda dead_letter: len(dead_letter.body.encode()), _GIVE_BATCH):
                    shard = self._session.keys.shard(topic, number)
                    spread = settings.named(by_key=any(dead_letter.key is not None for dead_letter in part))
                    reply = yield from scripts.restore(shard, group, spread, _restored(part), former)
                    if reply is None:
                        return None
                    there |= _found(shard, part, reply)
        return there

    def _put_away(self, dead_letters: Sequence[DeadLetter]) -> Op[Sequence[DeadLetter]]:
        """The dead letters with large bodies in files again.

        Raises:
            BodyStorageUnavailable
        """
        bodies = self._session.bodies
        if bodies.offload is None:
            return dead_letters
        calls = bodies.offload.calls
        away: list[DeadLetter] = yield Work(lambda: calls.each(partial(_away, bodies), dead_letters))
        return away

    def wait(self, throttle: KickThrottle, topic: str, group: str) -> Op[None]:
        """Waits until most of the jobs that were put back have been claimed."""
        for shard in self._topics.shards(topic):
            yield from throttle.wait(shard, group)

    def with_receipts(self, topic: str | None) -> Op[list[ShardKeys]]:
        """Every shard that may have receipts, including shards that a topic no longer uses.

        Raises:
            UnknownTopic
        """
        names = yield from topic_names(self._store, topic)
        return [shard for name in names for shard in self._topics.all_shards(name)]

    def receipts(self, shard: ShardKeys) -> Op[list[Receipt]]:
        """The receipts that a killed run left; few, as each run clears its own after every batch."""
        fields = yield from archive_receipts(self._session, shard)
        return [_receipt_in(shard.topic, field) for field in fields]

    def forget(self, shard: ShardKeys, receipts: Sequence[str | bytes]) -> Op[None]:
        if receipts:
            yield from drop_archive_receipts(self._session, shard, receipts)


def _away(bodies: Bodies, dead_letter: DeadLetter) -> DeadLetter:
    raw = from_text(dead_letter.body)
    if bodies.blocks(raw):
        return dead_letter
    return replace(dead_letter, body=as_text(bodies.put_away(dead_letter.topic, dead_letter.id, raw)))


def _receipt_in(topic: str, field: bytes) -> Receipt:
    kind, buried_ms, sequence, group, id = field.decode().split(_SEPARATOR)
    return Receipt(field, kind, topic, int(buried_ms), sequence, group, id)


def _candidates(dead_letter: DeadLetter, settings: TopicSettings) -> tuple[int, ...]:
    return candidate_shards(dead_letter.id, settings.shards, settings.former, dead_letter.key)


def _found(shard: ShardKeys, dead_letters: Sequence[DeadLetter], codes: Sequence[int]) -> dict[str, ShardKeys | None]:
    """By its receipt, where each dead letter is, of those that this shard has an answer for; None: the id is live."""
    answered = [(dead_letter, code) for dead_letter, code in zip(dead_letters, codes, strict=True) if code != NOT_HERE]
    return {dead_letter.receipt(GIVEN): shard if code else None for dead_letter, code in answered}


def _restored(dead_letters: Sequence[DeadLetter]) -> list[str | int | bytes]:
    args: list[str | int | bytes] = []
    for dead_letter in dead_letters:
        args += [
            dead_letter.id,
            dead_letter.receipt(GIVEN),
            dead_letter.attempts,
            dead_letter.due_ms,
            dead_letter.record().from_created(),
        ]
    return args
