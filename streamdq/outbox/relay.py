"""The relay: puts the jobs of committed rows into Redis, and looks after the rows that are kept.

One script puts a job into Redis, together with a receipt; then its row is marked in the database; then the receipt is
cleared, and the row deleted. So a killed relay never leaves a job in doubt: if a waiting row has a receipt, its job was
put into Redis, and may have ended since. A receipt never outlives its row.

One relay is active for a namespace; others wait for its lease. The lease only saves work. What keeps a relay that was
stopped and continues from doing harm is its epoch: the database and each shard refuse one that is out of date.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from ..config import TopicSettings
from ..errors import (
    FlowExists,
    InvalidInput,
    JobExists,
    NewerFormat,
    OutboxError,
    ParentUnknown,
    ServerError,
    StreamdqError,
)
from ..job.flow import FLOWS
from ..link.session import Op
from ..metrics import recorded
from ..process.logs import log, what
from ..queue import Queue, carry_out, store_of
from ..times.durations import Duration, to_ms
from .batch import Batch, Placed, Row, RowState, Unfit
from .redis_side import Code, Fate, FencedOff, Outdated, RedisSide
from .rows import LeaseLost, Rows
from .wakeups import Wakeups

T = TypeVar("T")
R = TypeVar("R", Row, Placed)
_LEASE_MS = 5_000
_RENEW_S = 1.5
_LOOK_S = 1.0
"""How long to wait for the next commit before looking all the same: a notification can be lost."""

_HOLD_S = 1.0
_CHECK_S, _CHECK_SHARE = 10.0, 10
"""How often the kept rows are looked through, and at most which part of the time that may take."""


@dataclass(slots=True)
class Totals:
    """What a relay has done so far, in rows. ``put_back``: kept rows whose jobs Redis had lost; they are relayed
    again.
    """

    relayed: int = 0
    refused: int = 0
    ended: int = 0
    put_back: int = 0


class Relay:
    """Relays the outbox at ``url``, ``sqlite:///FILE``, ``postgresql://…`` or ``mysql://…``, to a queue: the rows of
    the queue's namespace. ``keep``: rows stay until their jobs have ended. ``look_every``: how often to look for
    commits in a database that does not tell; by default every 10 ms in SQLite, and every 50 ms in MySQL. Close it, or
    use it as a context manager.

    Raises:
        InvalidInput: the URL or ``look_every``, or the driver is not installed.
        OutboxMissing, OutboxVersion, OutboxUnavailable, OutboxRefusesWrites, OutboxError
    """

    def __init__(self, url: str, queue: Queue, *, keep: bool = False, look_every: Duration | None = None) -> None:
        self.totals = Totals()
        self._queue = queue
        self._namespace = queue.namespace
        self._keep = keep
        self._look_s = None if look_every is None else _look_s(look_every)
        self._rows = Rows(url, queue.namespace)
        self.address = self._rows.address
        self._redis = RedisSide(store_of(queue), self._rows.outbox)
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
        self._epoch: int | None = None  # while it has the lease
        self._fence = 0  # an epoch that Redis has seen
        self._renewed = 0.0
        self._suspect = 0  # rows up to this number may have been relayed before
        self._cleared: list[int] = []  # rows whose receipts are gone; the next transaction deletes them
        self._held: dict[str, tuple[float, StreamdqError]] = {}  # topics that failed: they wait until then
        self._failed: StreamdqError | None = None  # the last of these failures
        self._in_doubt = False  # a call that failed may still reach Redis
        self._none_marked = False  # with a horizon: no row is known to be marked
        self._leftovers = False  # rows of topics that failed have receipts that have to be cleared
        self._check: Iterator[None] | None = None
        self._check_at = 0.0

    def close(self) -> None:
        self._rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, stopping: Callable[[], bool] = lambda: False, *, burst: bool = False) -> None:
        """Relays until ``stopping()``, which it asks once a second at least. ``burst``: until no row waits.

        Raises:
            OutboxError, ServerError: run it again. Rows that were not relayed are still in the outbox, and none is
            relayed twice. NewerFormat: upgrade first.
        """
        with self._rows.wakeups(self._look_s) as wakeups:
            try:
                while not stopping():
                    if self._turn():
                        continue
                    if burst and self._is_drained():
                        return
                    self._wait(wakeups)
            finally:
                self._step_down()

    def reconcile(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Looks through all kept rows once, relays what waits, and clears receipts without a row. Rows whose jobs Redis
        has lost are relayed again; rows whose jobs have ended are deleted. an active relay pauses meanwhile.

        Raises:
            As run.
            StreamdqError: why a topic's rows could not be looked at. The others' were.
        """
        try:
            self._failed = None
            self._lead(force=True)
            for _ in self._check_kept():
                self._relay_all(stopping)
                if stopping():
                    return
            self._relay_all(stopping)
            if self._failed is not None:
                raise self._failed
            self._drop_orphans()
        except (LeaseLost, FencedOff):
            raise OutboxError(f"another relay took over the outbox at {self.address}: run it again") from None
        finally:
            self._step_down()

    # -- the lease

    def _turn(self) -> bool:
        """Does some work, if this relay has the lease or gets it. Returns whether there may be more at once."""
        try:
            if self._epoch is None and not self._lead():
                return False
            if time.monotonic() - self._renewed > _RENEW_S:
                self._write_states()
            return self._relay_some() or self._look_after()
        except LeaseLost:
            log.info("another relay has taken over", outbox=self.address)
        except FencedOff as error:
            # By a relay that took over; or the database lost the epoch, and this relay takes a higher one.
            self._fence = error.epoch
        self._epoch = None
        return False

    def _lead(self, force: bool = False) -> bool:
        self._epoch = self._rows.take_lease(self._holder, _LEASE_MS, self._fence, force)
        if self._epoch is None:
            return False
        self._rows.learn_horizon()
        self._renewed = time.monotonic()
        self._suspect = self._rows.last()
        self._cleared, self._check, self._none_marked = [], None, False
        log.info("relaying", outbox=self.address, epoch=self._epoch)
        self._clear_leftovers()  # of a relay that was killed
        return True

    def _clear_leftovers(self) -> None:
        self._leftovers = bool(self._held)
        while leftovers := self._rows.relayed(self._held):
            self._forget(leftovers)
            self._write_states()

    def _step_down(self) -> None:
        if self._epoch is not None:
            try:
                self._rows.release_lease(self._epoch)
            except OutboxError as error:
                log.info("lease not released; it expires", outbox=self.address, error=what(error))
            self._epoch = None

    def _wait(self, wakeups: Wakeups) -> None:
        """Waits for a commit; without the lease, for the time to ask for it again."""
        until = time.monotonic() + _LOOK_S
        wakeups.wait(_LOOK_S)
        while self._epoch is None and (left_s := until - time.monotonic()) > 0:
            wakeups.wait(left_s)

    def _write_states(
        self, turned: Sequence[tuple[RowState, Sequence[int]]] = (), errors: Sequence[tuple[int, str]] = ()
    ) -> None:
        """Notes in the database what was done, and deletes rows that are no longer needed."""
        assert self._epoch is not None
        self._rows.write_states(self._epoch, _LEASE_MS, turned, errors, self._cleared)
        self._cleared, self._renewed = [], time.monotonic()

    # -- rows that wait

    def _is_drained(self) -> bool:
        """Whether no row waits.

        Raises:
            StreamdqError: why a topic's rows can't be relayed.
        """
        if isinstance(self._held.get(FLOWS, (0.0, None))[1], ParentUnknown):
            return False  # its turn is again when the rows before it are relayed
        for _, error in self._held.values():
            raise error
        return self._rows.waiting().is_empty and not self._rows.is_due()

    def _relay_all(self, stopping: Callable[[], bool]) -> None:
        while not stopping() and self._relay_some():
            pass

    def _lead_anew(self) -> None:
        """Under a higher epoch: a call that was sent under the lower epoch, and arrives late, has no effect any more.

        Raises:
            LeaseLost
        """
        self._in_doubt = False
        if not self._lead():
            raise LeaseLost

    def _next(self) -> tuple[Batch, bool]:
        """The rows to hand over, and whether they are claimed only now."""
        assert self._epoch is not None
        batch = Batch.none() if self._none_marked else self._rows.waiting(self._held, self._epoch)
        if batch.is_empty:
            return self._rows.claim(self._epoch, _LEASE_MS, self._held), True
        return batch, False

    def _relay_some(self) -> bool:
        if self._in_doubt:
            self._lead_anew()
        now = time.monotonic()
        self._held = {topic: held for topic, held in self._held.items() if held[0] > now}
        known = self._redis.known()  # before the rows: a topic that was changed since may have been another relay's
        batch, claiming = self._next()
        if batch.is_empty:
            if self._cleared:
                self._write_states()
            return False
        self._none_marked = False
        by_topic = _by_topic(batch.rows)
        codes: dict[int, Code] = {}
        flows = by_topic.pop(FLOWS, [])
        for topic, rows in by_topic.items():
            codes |= self._hand_over(topic, known.get(topic), rows, batch)
        codes |= self._build_flows(flows, batch, all_there=codes.keys() >= {row.number for row in _plain(batch)})
        self._note(batch, codes)
        self._none_marked = claiming and batch.is_all and codes.keys() >= {row.number for row in batch.rows}
        return True

    def _hand_over(self, topic: str, settings: TopicSettings | None, rows: list[Row], batch: Batch) -> dict[int, Code]:
        """Enqueues one topic's rows. If that fails for this topic alone, its rows wait for a while."""
        assert self._epoch is not None
        try:
            return self._run(self._redis.enqueue(topic, settings, rows, batch, self._epoch, self._suspect))
        except Outdated:
            self._suspect = self._rows.last()
        except (FencedOff, NewerFormat):
            raise
        except StreamdqError as error:
            self._hold(topic, error)
            self._suspect, self._in_doubt = self._rows.last(), True
        return {}

    def _build_flows(self, rows: Sequence[Row], batch: Batch, *, all_there: bool) -> dict[int, Code]:
        """Starts the flows of these rows, after all others: their jobs may wait for those. ``all_there``: these are in
        Redis. What can't be started is refused.
        """
        codes: dict[int, Code] = {}
        for row in rows:
            try:
                codes[row.number] = self._run(self._redis.build_flow(row))
            except (JobExists, ParentUnknown, InvalidInput) as error:
                if isinstance(error, ParentUnknown) and (self._held or not all_there):
                    self._held[FLOWS] = (time.monotonic() + _HOLD_S, error)
                    break
                batch.unfit.append(Unfit(row.placed, f"{type(error).__name__}: {error}"))
            except NewerFormat:
                raise
            except StreamdqError as error:
                self._hold(FLOWS, error)
                break
        return codes

    def _hold(self, topic: str, error: StreamdqError) -> None:
        """Leaves the topic alone for a while, unless the error concerns all of them: it is raised again."""
        if isinstance(error, ServerError) and not store_of(self._queue).session.is_cluster:
            raise error
        log.warning("rows wait", outbox=self.address, topic=topic, error=what(error))
        self._held[topic] = (time.monotonic() + _HOLD_S, error)
        self._failed = error

    def _note(self, batch: Batch, codes: dict[int, Code]) -> None:
        """Marks rows whose jobs are in Redis, and refuses those whose ids are taken, or that are not valid."""
        rows = _with_code(batch, codes, Code.ENQUEUED, Code.BEFORE)
        taken = _with_code(batch, codes, Code.TAKEN)
        refused = [Unfit(row.placed, _taken(row)) for row in taken if not row.keeps] + batch.unfit
        waits_s = [batch.waited_s(row) for row in rows]
        done, over = _placed(rows), _placed(row for row in taken if row.keeps)
        kept, over = (done, over) if self._keep else ([], over + done)
        self._write_states(
            [(RowState.KEPT, _numbers(kept)), (RowState.RELAYED, _numbers(over))],
            [(row.placed.number, row.error) for row in refused],
        )
        for row in refused:
            placed = row.placed
            log.warning("row refused", outbox=self.address, row=placed.number, topic=placed.topic, error=row.error)
        self._count("relayed", done)
        self._count("refused", [row.placed for row in refused])
        recorded.outbox_waits(self._namespace, waits_s)
        self._forget(over)

    def _forget(self, placed: Sequence[Placed]) -> None:
        """Clears the receipts of rows that are marked as relayed; the next transaction deletes the rows."""
        for topic, rows in _by_topic(placed).items():
            try:
                self._run(self._redis.forget(topic, [each.receipt for each in rows]))
            except ServerError as error:
                self._hold(topic, error)
                self._leftovers = True
            else:
                self._cleared += _numbers(rows)

    # -- rows that are kept

    def _look_after(self) -> bool:
        """Looks at some kept rows, if it is time to."""
        if self._leftovers and not self._held:
            self._clear_leftovers()
        if self._check is None:
            if time.monotonic() < self._check_at:
                return False
            self._check = self._check_kept()
        if next(self._check, self) is self:
            self._check = None
        return self._check is not None

    def _check_kept(self) -> Iterator[None]:
        """Looks at every kept row; yields after each slice."""
        after, took_s = 0, 0.0
        while True:
            began = time.monotonic()
            kept = self._rows.kept(after)
            if not kept:
                break
            after = kept[-1].number
            self._sort_out(kept)
            took_s += time.monotonic() - began
            yield
        self._check_at = time.monotonic() + max(_CHECK_S, took_s * (_CHECK_SHARE - 1))

    def _sort_out(self, kept: Sequence[Placed]) -> None:
        ended: list[Placed] = []
        lost: list[Placed] = []
        for topic, rows in _by_topic(kept).items():
            try:
                fates = self._run(self._redis.fates(topic, rows))
            except ServerError as error:
                self._hold(topic, error)  # it is their turn again when all rows are looked through the next time
                continue
            ended += [row for row in rows if fates[row.number] is Fate.ENDED]
            lost += [row for row in rows if fates[row.number] is Fate.UNKNOWN]
        if not ended and not lost:
            return
        self._write_states([(RowState.RELAYED, _numbers(ended)), (RowState.WAITING, _numbers(lost))])
        if lost:
            self._none_marked = False
            log.warning("Redis has lost jobs; they are put back", outbox=self.address, rows=len(lost))
        self._count("ended", ended)
        self._count("put_back", lost)
        self._clear_leftovers()

    def _drop_orphans(self) -> None:
        """Clears receipts that came back with an old copy of Redis's data, and whose rows are gone."""
        for shard in self._run(self._redis.shards()):
            cursor = b"0"
            while True:
                cursor, receipts = self._run(self._redis.page(shard, cursor))
                there = self._rows.existing(receipts)
                self._run(self._redis.drop(shard, [receipts[number] for number in receipts.keys() - there]))
                if cursor == b"0":
                    break

    # --

    def _run(self, op: Op[T]) -> T:
        return carry_out(self._queue, op)

    def _count(self, outcome: str, rows: Sequence[Placed]) -> None:
        setattr(self.totals, outcome, getattr(self.totals, outcome) + len(rows))
        for topic, part in _by_topic(rows).items():
            recorded.outbox(self._namespace, topic, outcome, len(part))


def _look_s(look_every: Duration) -> float:
    ms = to_ms(look_every, "look_every")
    if ms == 0:
        raise InvalidInput("look_every: looking without a pause would keep the database busy; write at least 1ms")
    return ms / 1000


def _plain(batch: Batch) -> Iterator[Row]:
    return (row for row in batch.rows if row.topic != FLOWS)


def _with_code(batch: Batch, codes: dict[int, Code], *wanted: Code) -> list[Row]:
    return [row for row in batch.rows if codes.get(row.number) in wanted]


def _taken(row: Row) -> str:
    if row.topic == FLOWS:
        return f"FlowExists: {FlowExists(row.id)}"
    return f"JobExists: job {row.id!r} is already in topic {row.topic!r}"


def _placed(rows: Iterable[Row]) -> list[Placed]:
    return [row.placed for row in rows]


def _numbers(rows: Iterable[Placed]) -> list[int]:
    return [row.number for row in rows]


def _by_topic(rows: Sequence[R]) -> dict[str, list[R]]:
    found: dict[str, list[R]] = {}
    for row in rows:
        found.setdefault(row.topic, []).append(row)
    return found
