"""The Redis side of the outbox: operations that enqueue the jobs of rows, and tell what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from ..config import MAX_BATCH, TopicSettings
from ..errors import FlowExists, ServerUnavailable, StreamdqError, UnknownTopic
from ..job.flow import FLOWS
from ..keys import ShardKeys, candidate_shards, shard_of
from ..link.session import Op
from ..operations.flows.builder import Building
from ..operations.jobs.get import REPAIRS, get
from ..operations.jobs.previous_shards import in_turn
from ..operations.known import topic_names
from ..store.batches import REPLACED_BYTES, most_jobs, parts
from ..store.outbox import drop_outbox_receipts, keep_outbox_receipt, outbox_receipts, scan_outbox
from ..store.redis_store import RedisStore
from ..store.scripts import Scripts
from ..store.topics.changes import expect_keys, expect_priorities
from .batch import Batch, Placed, Row
from .flow_rows import RowOfFlow, flow_in


class Code(IntEnum):
    """What the script relay did with a row."""

    TAKEN = 0
    ENQUEUED = 1
    BEFORE = 2  # by an earlier call; the job may have ended
    NOT_HERE = 3  # this previous shard has nothing of its id


class Fate(IntEnum):
    """What became of a row's job, as the script relayed tells."""

    UNKNOWN = 0
    LIVE = 1
    ENDED = 2


class Outdated(StreamdqError):
    """The topic was changed meanwhile. Nothing more was written; read the rows again."""


class FencedOff(StreamdqError):
    """A relay with a higher epoch has been there. Nothing was written."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"another relay, of epoch {epoch}, has taken over")
        self.epoch = epoch


class RedisSide:
    """The operations of one outbox, which has a name."""

    def __init__(self, store: RedisStore, outbox: str) -> None:
        self._store = store
        self._outbox = outbox

    def known(self) -> Mapping[str, TopicSettings]:
        """The topics' settings, as this process knows them now."""
        return dict(self._store.topics.known)

    def enqueue(
        self, topic: str, settings: TopicSettings | None, rows: Sequence[Row], batch: Batch, epoch: int, suspect: int
    ) -> Op[dict[int, Code]]:
        """Enqueues the jobs of one topic's rows, in their order, and returns what happened to each row (by number).
        ``settings``: of the topic, as known before the rows were read; None: not at all. Rows up to the number
        ``suspect`` may have been relayed when the topic had other shards.

        Raises:
            Outdated, FencedOff: read the rows again: they may be another relay's by now.
            ServerError: read the rows again: any of them may have been enqueued.
        """
        store, keys = self._store, self._store.session.keys
        if settings is None:
            # Since the rows were read, another relay may have relayed them, and the topic have been changed.
            yield from store.topics.shared(topic, store.topics.ensure)
            raise Outdated(f"topic {topic!r} was not known")
        yield from self._expect_keys(topic, settings, rows)
        codes = yield from self._elsewhere(topic, [row for row in rows if row.number <= suspect])
        most = most_jobs(MAX_BATCH, len(settings.groups))
        scripts = self._store.at(None, settings)  # as durable as the topic wants it, before the row is marked
        candidates = {
            row.number: candidate_shards(row.id, settings.shards, settings.former, row.placed.key) for row in rows
        }
        by_number = {row.number: row for row in rows}
        for turn in range(len(settings.former) + 1):
            left = [number for number in by_number if codes.get(number, Code.NOT_HERE) is Code.NOT_HERE]
            for (number, former), asked in in_turn(turn, left, candidates).items():
                of_shard = [by_number[number] for number in asked]
                for part in parts(of_shard, lambda row: len(row.job.rest), most, REPLACED_BYTES):
                    codes |= yield from self._enqueue(
                        scripts, keys.shard(topic, number), settings, part, batch, epoch, former
                    )
        return codes

    def build_flow(self, row: Row) -> Op[Code]:
        """Puts all jobs of a flow's row into Redis, and starts them. The flow knows the row's receipt: so a relay that
        comes after one that was killed knows whose it is. Then the receipt is kept like that of any other row.

        Raises:
            JobExists, ParentUnknown, InvalidInput: nothing of it starts.
            FlowWithdrawn: another process builds a flow of this name.
        """
        store, receipt = self._store, row.placed.receipt
        yield from store.topics.shared(FLOWS, store.topics.ensure)
        places = store.topics.all_shards(FLOWS)
        if (yield from outbox_receipts(store.session, places, [receipt]))[0]:
            return Code.BEFORE
        said = flow_in(row.body)
        deadline = None if said.deadline_ms is None else said.deadline_ms / 1000
        building = Building(store, row.id, deadline, said.keep_ms / 1000, None, receipt)
        code = Code.ENQUEUED
        try:
            yield from building.begin()
        except FlowExists:
            own = yield from get(store, FLOWS, row.id)
            if own is None or own.body.get("outbox") != receipt:
                return Code.TAKEN
            code = Code.BEFORE
        else:
            yield from self._built(building, said)
        settings = yield from store.topics.get(FLOWS)
        home = store.session.keys.shard(FLOWS, shard_of(row.id, settings.shards))
        yield from keep_outbox_receipt(store.session, home, receipt)
        return code

    def _built(self, building: Building, said: RowOfFlow) -> Op[None]:
        try:
            for topic, job in said.each():
                yield from building.add_encoded(topic, job)
        except StreamdqError:
            yield from building.withdraw()
            raise
        yield from building.complete()

    def _expect_keys(self, topic: str, settings: TopicSettings, rows: Sequence[Row]) -> Op[None]:
        """Marks the topic before the first of its jobs has a priority, or is in a shard that its id alone does not lead
        to.
        """
        if any(row.placed.key is not None for row in rows) and not settings.leads_to_keys:
            yield from expect_keys(self._store.topics, topic)
            raise Outdated(f"topic {topic!r} has keys from now on")
        if any(row.job.priority is not None for row in rows) and not settings.prioritized:
            yield from expect_priorities(self._store.topics, topic)
            raise Outdated(f"topic {topic!r} has priorities from now on")

    def _enqueue(
        self,
        scripts: Scripts,
        shard: ShardKeys,
        settings: TopicSettings,
        rows: list[Row],
        batch: Batch,
        epoch: int,
        former: bool,
    ) -> Op[dict[int, Code]]:
        codes: dict[int, Code] = {}
        while rows:
            args: list[str | int | bytes] = []
            for row in rows:
                args += [row.id, batch.when(row), row.job.rest, row.placed.receipt, int(row.replaces)]
            by_key = any(row.placed.key is not None for row in rows)
            reply = yield from scripts.relay(shard, settings, self._outbox, epoch, args, by_key, former)
            if reply.fence:
                raise FencedOff(reply.fence)
            if not reply.current:
                # Not tried again here: another relay may have taken over before the topic was changed.
                yield from self._store.topics.shared(shard.topic, self._store.topics.repair)
                raise Outdated(f"topic {shard.topic!r} was changed meanwhile")
            codes |= {row.number: Code(code) for row, code in zip(rows, reply.codes, strict=False)}
            rows = rows[len(reply.codes) :]
        return codes

    def _elsewhere(self, topic: str, suspects: Sequence[Row]) -> Op[dict[int, Code]]:
        """Those rows that have a receipt in any shard that the topic ever had, if it had others than now."""
        shards = self._store.topics.all_shards(topic)
        if len(shards) < 2 or not suspects:
            return {}
        found = yield from outbox_receipts(self._store.session, shards, [row.placed.receipt for row in suspects])
        return {row.number: Code.BEFORE for row, there in zip(suspects, found, strict=True) if there}

    def forget(self, topic: str, receipts: Sequence[str]) -> Op[None]:
        """Clears the receipts."""
        try:
            yield from self._store.topics.get(topic)
        except UnknownTopic:
            return  # they are gone with it
        yield from drop_outbox_receipts(self._store.session, self._store.topics.all_shards(topic), receipts)

    def shards(self) -> Op[list[ShardKeys]]:
        """Every shard that may have receipts."""
        names = yield from topic_names(self._store, None)
        return [shard for name in names for shard in self._store.topics.all_shards(name)]

    def page(self, shard: ShardKeys, cursor: bytes) -> Op[tuple[bytes, dict[int, str]]]:
        """The next cursor, b"0" at the end; and some of this outbox's receipts, by the numbers of their rows."""
        following, receipts = yield from scan_outbox(self._store.session, shard, cursor, f"{self._outbox}:*")
        return following, {int(receipt.split(":")[1]): receipt for receipt in receipts}

    def drop(self, shard: ShardKeys, receipts: Sequence[str]) -> Op[None]:
        if receipts:
            yield from drop_outbox_receipts(self._store.session, [shard], receipts)

    def fates(self, topic: str, rows: Sequence[Placed]) -> Op[dict[int, Fate]]:
        """What became of the jobs of one topic's rows, by number. A job that waits in a shard is live, also as a dead
        dead letter; one that Redis does not know any more was lost, and its receipt with it.
        """
        for _ in range(REPAIRS):
            try:
                settings = yield from self._store.topics.latest(topic)
            except UnknownTopic:
                return {row.number: Fate.UNKNOWN for row in rows}
            found = yield from self._ask(topic, settings, rows)
            if found is not None:
                return (yield from self._also_elsewhere(topic, rows, found))
            yield from self._store.topics.mend(topic)
        raise ServerUnavailable(f"topic {topic!r}: its settings were changed during the call; try again")

    def _ask(self, topic: str, settings: TopicSettings, rows: Sequence[Placed]) -> Op[dict[int, Fate] | None]:
        """In each shard that may have the ids, previous ones first; a receipt is in one of them alone."""
        spread: dict[int, list[Placed]] = {}
        for row in rows:
            for number in candidate_shards(row.id, settings.shards, settings.former, row.key):
                spread.setdefault(number, []).append(row)
        found = dict.fromkeys((row.number for row in rows), Fate.UNKNOWN)
        for number, part in spread.items():
            shard = self._store.session.keys.shard(topic, number)
            args = [value for row in part for value in (row.id, row.receipt)]
            codes = yield from self._store.scripts.relayed(shard, settings.layout.text, args)
            if codes is None:
                return None
            found |= {row.number: Fate(code) for row, code in zip(part, codes, strict=True) if code}
        return found

    def _also_elsewhere(self, topic: str, rows: Sequence[Placed], found: dict[int, Fate]) -> Op[dict[int, Fate]]:
        """A receipt in a shard that the topic had before: the topic was empty since, so the job has ended."""
        unknown = [row for row in rows if found[row.number] is Fate.UNKNOWN]
        shards = self._store.topics.all_shards(topic)
        if unknown and len(shards) > 1:
            there = yield from outbox_receipts(self._store.session, shards, [row.receipt for row in unknown])
            found |= {row.number: Fate.ENDED for row, each in zip(unknown, there, strict=True) if each}
        return found
