"""What the queue promises, in plain Python: a model that gets each script call that Redis carried out, and of
what processes see of it, and that says when a promise is broken. It knows the scripts' contracts (the headers in
``lua/``), not their code, and nothing of the product's Python. What each call means is in ``transitions.py``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from .outbox import Outbox
from .results import Results

_SHARD = re.compile(r"^[^{]*\{(.+):(\d+)\}:")

Shard = tuple[str, int]  # topic, number
Serial = int | str  # of a schedule's job: its schedule and time


class Broken(AssertionError):
    """A promise was broken."""


@dataclass
class Claim:
    """Who holds a job for a group, by the claim script's answer."""

    proof: tuple[bytes, bytes]  # main, entry
    consumer: str
    at: int  # the call that gave it out
    until_ms: int
    since_ms: int
    started: bool = False


@dataclass
class Delivery:
    """One job for one group."""

    due_ms: int  # its next attempt starts no earlier
    claim: Claim | None = None
    # done, dead, purged, expired, cancelled, archived; restored: it came back from the archive to another shard;
    # aborting: it runs, and ends as cancelled, perhaps unseen, with its consumer
    ended: str = ""
    ended_ms: int = 0
    archived_as: Serial = 0  # the job's serial then; a job that is postponed for other groups gets another one
    least: int = 0  # attempts that count, before the current one
    most: int = 0  # the same, with those that may have been lost with their consumers
    lost: int = 0  # times in a row that it was lost with a consumer which had started it
    maybe_lost: int = 0  # the same, with those that may have been

    def end(self, how: str, now_ms: int) -> None:
        self.ended, self.ended_ms, self.claim, self.lost, self.maybe_lost = how, now_ms, None, 0, 0

    def open_again(self, due_ms: int) -> None:
        self.ended, self.due_ms, self.claim, self.lost, self.maybe_lost = "", due_ms, None, 0, 0


class KeyLimit(NamedTuple):
    """``most``: attempts of a key at once; ``pace``: ms between starts, 0 = none; ``since``: the call that said so."""

    most: int
    pace: float
    since: int


NO_LIMIT = KeyLimit(0, 0, 0)


NEVER_MS = 9_999_999_999_999
"""When a job is due that waits for others."""


class Waits(NamedTuple):
    """What a job waits for: shard, id and nonce of each."""

    parents: tuple[tuple[Shard, str, str], ...]
    on_failure: str
    delay_ms: int


@dataclass
class Added:
    """A job that the handlers of others have added to their flow. ``parents``: these, by shard, id and life."""

    topic: str
    id: str
    flow: tuple[Shard, str, str] | None
    parents: dict[tuple[Shard, str, str], AddedBy] = field(default_factory=dict)
    stopped: bool = False  # the flow was cancelled
    first: Serial = ""  # its serial when it was put in
    shard: Shard | None = None  # where


@dataclass
class AddedBy:
    """``before``: who waits for the job and the one that has added it, by nonce and id."""

    before: tuple[tuple[str, str], ...]
    is_late: bool  # the other one was done before, as far as anybody has seen: those that wait may have started
    stands: str | None = None  # the nonce of the job that is there for it; "": that has nothing to do with the flow


@dataclass
class Tracked:
    """One job, from the call that put it in."""

    serial: Serial
    shard: Shard
    id: str
    due_ms: int
    ttr_ms: int | None
    expire_ms: int | None
    at: int  # the call that put it in
    key: str = ""
    gone: str = ""  # cancelled, replaced, deleted, lost
    first: Serial = ""  # its serial when it was put in
    waits: Waits | None = None
    flow: tuple[Shard, str, str] | None = None  # its shard, name and life
    only: set[str] = field(default_factory=set)  # it came back from an archive, for these groups alone
    deliveries: dict[str, Delivery] = field(default_factory=dict)

    def of(self, group: str) -> Delivery:
        return self.deliveries.setdefault(group, Delivery(self.due_ms))

    def may_be_late(self, now_ms: int, group: str) -> bool:
        """Whether Redis may have given it up as too late."""
        return self.expire_ms is not None and now_ms > self.of(group).due_ms + self.expire_ms


@dataclass(frozen=True)
class Call:
    """A command that Redis carried out. ``index``: how many it had carried out before."""

    index: int
    now_ms: int
    name: str  # of the script, or the command
    keys: Sequence[str]
    args: Sequence[bytes]
    reply: Any

    @property
    def shard(self) -> Shard:
        return shard_of(self.keys[0])


def shard_of(key: str) -> Shard:
    found = _SHARD.match(key)
    return (found[1], int(found[2])) if found else ("", 0)


def due_of(when: str, now_ms: int) -> int:
    """As the scripts' callers say it: in so many ms, or at a time."""
    return now_ms + int(when) if when.startswith("+") else int(when)


def whole(text: bytes) -> int | None:
    return int(text) if text else None


def key_in(line: bytes) -> str:
    """The key in the line of a record that begins with the url."""
    return line.partition(b"\x1f")[2].decode()


Step = Callable[["Model", Call], None]


class Model:
    """Calls are kept, so that it can forget the last of them, as Redis does in a failover."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self.calls: list[Call] = []
        self.happened: Counter[str] = Counter()
        self.judges_rates = False  # a delayed call makes more ready at once than the rate allows
        self.deliveries_at_most = 0  # times in a row that a job may be lost with its consumer, by any configuration
        self.deliveries_at_least = 0
        self.now_ms = 0  # the latest of Redis's clock
        self.calls_seen = 0
        self.undisturbed_from = 0
        self._disturbances: list[int] = []  # how many calls there had been before
        self.lost_data = False  # Redis has, at some time
        self.clock_was_back = False
        self.standbys: set[bytes] = set()  # who waits for the mover's lease
        self.lives: Callable[[str], bool] = lambda _: False  # whether this consumer sends heartbeats for sure
        # Of jobs that others wait for, also what was forgotten: by shard, id and nonce their first serial.
        self.first_of: dict[tuple[Shard, str, str], Serial] = {}
        self.parents: set[Serial] = set()
        self.ever_done: set[Serial] = set()
        self.ever_failed: set[Serial] = set()
        self.may_have_failed: set[Serial] = set()  # and it stays so, whatever becomes of the job
        self.joined_late: set[Serial] = set()  # when others began to wait for it, a group had done it
        # Flows, also those that were forgotten: by shard, name and life.
        self.complete: set[tuple[Shard, str, str]] = set()
        self.withdrawn: set[tuple[Shard, str, str]] = set()
        self.begun: dict[str, tuple[Shard, str, str]] = {}  # the latest flow of each name
        # Jobs whose flow was cancelled, and the groups that there were then, each with the call that made it.
        self.stopped: dict[Serial, dict[str, int]] = {}
        self.closed: set[tuple[Shard, str]] = set()  # flows that were cancelled, or are about to be, by shard and name
        # What handlers have added to flows, by its nonce, also what was forgotten.
        self.children: dict[str, Added] = {}
        self.after_step: Callable[[Model], None] = lambda _: None
        self.is_of_flows: Callable[[Call], bool] = lambda _: False
        self._steps = steps
        self._claimed: dict[
            tuple[Serial, str, str], int
        ] = {}  # serial, group, consumer -> when, also what was forgotten
        self._first_claimed: dict[tuple[Serial, str, str], int] = {}
        self._ended: set[tuple[Serial, str, str, str]] = (
            set()
        )  # serial, group, consumer, script: also what was forgotten
        self._forgotten: set[Serial] = set()
        self.given_back: set[Serial] = set()  # by the archive, which keeps it no longer: also what was forgotten
        self._judging = True
        self.given: Counter[tuple[Shard, str]] = Counter()  # how many jobs a group got from a shard
        self.outbox = Outbox()
        self.results = Results()
        self._begin()

    def _begin(self) -> None:
        self.calls = []
        self.jobs: dict[Serial, Tracked] = {}  # by serial
        self.live: dict[tuple[Shard, str], Tracked] = {}  # by shard and id
        self.groups: dict[Shard, dict[str, int]] = {}  # of each shard, and the call that made them
        self.versions: dict[Shard, int] = {}
        self.fields: dict[Shard, dict[str, bytes]] = {}  # of each shard's settings
        self.rates: dict[Shard, float] = {}
        self.key_limits: dict[Shard, KeyLimit] = {}
        self.free_from: dict[tuple[Shard, str, str], float] = {}  # when the next one of a group and key may start
        self.paused_keys: dict[tuple[Shard, str], int] = {}  # and the call that paused it
        self.moves: dict[str, list[tuple[int, int]]] = {}  # of each topic at its present rate: when, how many
        self.counts: dict[Shard, Counter[str]] = {}  # as Redis should count
        self.outbox.forget()
        self.results.forget()
        self.receipts: set[tuple[Shard, bytes]] = set()  # of the archive
        self.rows: Counter[tuple[Serial, str]] = Counter()  # a job's rows in the archive of a group
        self.cleared: set[tuple[Shard, bytes]] = set()  # those that Redis has no more
        self.shown: dict[tuple[Shard, bytes, bytes], Any] = {}  # by id and deliveries, what a search has shown
        self.spans: dict[tuple[Shard, str], Any] = {}  # by shard and id (uniqueness.py)
        self.planned: dict[
            tuple[Shard, bytes], tuple[str, bytes]
        ] = {}  # occurrence's job -> due_ms, rest of its record

    # -- what is reported to it

    def applied(self, call: Call) -> None:
        self.calls_seen += 1
        self.calls.append(call)
        self.clock_was_back = self.clock_was_back or call.now_ms < self.now_ms
        self.now_ms = max(self.now_ms, call.now_ms)
        step = self._steps.get("flows" if self.is_of_flows(call) else call.name)
        if step is not None and not isinstance(call.reply, Exception):
            step(self, call)
            if self.parents:
                self.after_step(self)

    def started(self, serial: Serial, attempt: int, group: str, consumer: str) -> None:
        """An attempt begins, with the consumer of this name; ``attempt``: its number, as the consumer got it."""
        job = self.jobs.get(serial)
        delivery = job.of(group) if job else None
        if job and delivery and delivery.claim and delivery.claim.consumer == consumer and not job.gone:
            delivery.claim.started = True
            first = self._first_claimed[serial, group, consumer]
            # It may have had the job before as well, in calls that Redis has forgotten.
            if not delivery.least < attempt <= delivery.most + 1 and first >= self.undisturbed_from:
                self.broken(f"job {serial} starts in {group} as attempt {attempt}: {delivery}")
            if self.now_ms < delivery.due_ms:
                self.broken(f"job {serial} starts {delivery.due_ms - self.now_ms} ms early in {group}")
            # One loss does not count: a job that is claimed ahead has not started, as far as Redis knows.
            if self.deliveries_at_most and delivery.lost > self.deliveries_at_most + 1:
                self.broken(f"job {serial} starts in {group}, though it was lost {delivery.lost} times in a row")
        # If it had the job in a claim that Redis has forgotten, that one's outcome may have ended the claim of now.
        elif self._first_claimed.get((serial, group, consumer), self.calls_seen) >= self.undisturbed_from:
            what = "unknown" if job is None or delivery is None else job.gone or delivery.ended or str(delivery.claim)
            self.broken(f"job {serial} starts in {group} on {consumer}, which does not hold it: {what}")

    def acknowledged(self, serial: Serial) -> None:
        """An enqueue has returned."""
        if serial not in self.jobs and serial not in self._forgotten:
            self.broken(f"job {serial} was acknowledged, and never put in")

    def ended(self, serial: Serial, group: str, consumer: str, script: str) -> None:
        """A client's call that ends its claim has returned."""
        if (serial, group, consumer, script) not in self._ended:
            self.broken(f"{script} of job {serial} in {group} was acknowledged to {consumer}, and never done")

    def story(self, serial: Serial) -> list[Call]:
        """The calls that name the job, in all shards of its topic: it may come back from the archive to another one."""
        job = self.jobs.get(serial)
        if job is None:
            return []
        named = re.compile(rf"\b{job.id}\b")
        return [c for c in self.calls if c.keys and c.shard[0] == job.shard[0] and named.search(str((c.args, c.reply)))]

    def disturb(self) -> None:
        """Claims given out until now may be void, without their holders' knowing."""
        self.calls_seen += 1
        self.undisturbed_from = self.calls_seen
        self._disturbances.append(len(self.calls))

    def forget(self, index: int) -> None:
        """Redis lost what it had carried out after its call ``index``."""
        kept, latest = [call for call in self.calls if call.index <= index], self.now_ms
        self._forgotten |= self.jobs.keys()
        disturbances, self._disturbances = {*self._disturbances}, []
        self._begin()
        for child in self.children.values():
            child.first, child.shard = "", None
        self._judging = False
        for number, call in enumerate(kept):
            if number in disturbances:
                self.disturb()
            self.applied(call)
        self._judging, self.now_ms, self.lost_data = True, latest, True
        self.moves.clear()
        self.disturb()

    def running(self) -> list[tuple[str, str]]:
        """Topic and id of the jobs that some consumer holds."""
        return [
            (job.shard[0], job.id)
            for job in self.live.values()
            if not job.gone and any(one.claim is not None and not one.ended for one in job.deliveries.values())
        ]

    def states(self) -> set[str]:
        """The states that some job has now."""
        return {
            self._state(delivery)
            for job in self.live.values()
            if not job.gone
            for delivery in (job.deliveries or {"": Delivery(job.due_ms)}).values()
        }

    def _state(self, delivery: Delivery) -> str:
        if delivery.ended or delivery.claim is not None:
            return delivery.ended or "running"
        return "delayed" if delivery.due_ms > self.now_ms else "ready"

    def ready(self, now_ms: int) -> Iterator[tuple[Tracked, str]]:
        """Jobs that should start as soon as a consumer of the group has room for them. Some may be left out: where
        there is a rate, and of a key all while one has begun, which may hold the key.
        """
        begun = Counter[tuple[Shard, str, str]]()
        found = list[tuple[Tracked, str]]()
        for job in self.live.values():
            for group in () if job.gone else self.groups_of(job):
                delivery = job.deliveries.get(group) or Delivery(job.due_ms)
                if delivery.ended:
                    continue
                begun[job.shard, group, job.key] += bool(job.key and (delivery.claim or delivery.most))
                is_free = delivery.claim is None or delivery.claim.until_ms <= now_ms
                if is_free and delivery.due_ms <= now_ms and not job.may_be_late(now_ms, group):
                    found.append((job, group))
        for job, group in found:
            is_held_up = begun[job.shard, group, job.key] or (job.shard, job.key) in self.paused_keys
            if not is_held_up and not self.rates.get(job.shard) and not self._is_paused(job.shard):
                yield job, group

    def _is_paused(self, shard: Shard) -> bool:
        return self.fields.get(shard, {}).get("paused") == b"1"

    # -- the end

    def far_off(self, wait_ms: int) -> list[tuple[str, str]]:
        """Topic and id of the jobs that have a next attempt only after that time."""
        return [
            (job.shard[0], job.id)
            for job in self.live.values()
            if not job.gone
            and any(not one.ended and NEVER_MS > one.due_ms > self.now_ms + wait_ms for one in job.deliveries.values())
        ]

    def at_rest(
        self,
        groups: Iterable[str],
        stored: Sequence[tuple[Shard, str]],
        counted: Mapping[Shard, Mapping[str, int]] | None = None,
        archived: Iterable[Serial] = (),
    ) -> None:
        """Nothing is due any more. ``groups`` were there all the time; ``stored``: shard and id of each job that is
        still in Redis; ``counted``: Redis's counters; ``archived``: the serials of jobs in the archive.
        """
        kept = {*archived, *(self.given_back if self.lost_data else ())}
        for job in [job for job in self.live.values() if not job.gone]:
            for group in job.only or groups:
                delivery = job.of(group)
                if not delivery.ended and not job.may_be_late(self.now_ms, group):
                    self.broken(f"job {job.serial} ({job.id} in {job.shard}) was never done in {group}: {delivery}")
                elif delivery.ended == "archived" and delivery.archived_as not in kept:
                    self.broken(f"job {delivery.archived_as} left Redis for the archive, which does not have it")
        for shard, id in stored:
            self._should_be_stored(shard, id)
        for shard, counters in (counted or {}).items():
            for name, count in self.counts.get(shard, Counter()).items():
                if count != counters.get(name, 0):
                    self.broken(f"{name} in {shard} is {counters.get(name, 0)}, and should be {count}")

    def _should_be_stored(self, shard: Shard, id: str) -> None:
        left = self.live.get((shard, id))
        if left is None or left.gone:
            self.broken(f"job {id} in {shard} is still in Redis, though it is gone")
        elif not any(delivery.ended == "dead" for delivery in left.deliveries.values()):
            self.broken(f"job {left.serial} ({id} in {shard}) is still in Redis: {left.deliveries}")

    # -- for transitions

    def broken(self, what: str) -> None:
        if self._judging:
            raise Broken(what)

    def is_held(self, claim: Claim | None, now_ms: int) -> bool:
        """Whether nobody else may have the job now."""
        return claim is not None and now_ms < claim.until_ms and claim.at >= self.undisturbed_from

    def groups_of(self, job: Tracked) -> list[str]:
        """The groups that must get the job: those that were there before it. Others may."""
        if job.only:
            return sorted(job.only)
        return [group for group, since in self.groups.get(job.shard, {}).items() if since < job.at]

    def check_homes(self, job: Tracked) -> None:
        """An id is one job's, in whichever shard that is; with a key, together with the key. Who has lost a job, and
        puts it in again, may not know of its home before.
        """
        if self.lost_data:
            return
        for shard in self.groups:
            other = self.live.get((shard, job.id))
            if other is None or other.gone or shard == job.shard or (shard[0], other.key) != (job.shard[0], job.key):
                continue
            open_in = [g for g in self.groups_of(other) if other.of(g).ended in ("", "dead")]
            if open_in and not all(other.may_be_late(self.now_ms, group) for group in open_in):
                self.broken(
                    f"job {job.serial} got {job.id!r} in {job.shard}; {other.serial} has it in {shard}: {other}"
                )

    def check_at_home(self, shard: Shard, shards: int) -> None:
        """A topic is resharded only if each open job is where its id or key leads now: nobody looks elsewhere any more.
        What Redis has lost since may have brought one back.
        """
        for job in [] if self.lost_data else self.jobs_in(shard):
            home = crc32((job.key or job.id).encode()) % shards
            open_in = [group for group in self.groups_of(job) if job.of(group).ended in ("", "dead")]
            # It is not always known which job of a call has expired.
            if home != shard[1] and not all(job.may_be_late(self.now_ms, group) for group in open_in):
                self.broken(
                    f"its topic is resharded, and job {job.serial} is in {shard}, not in {home} of {shards}: {job}"
                )

    def jobs_in(self, shard: Shard) -> list[Tracked]:
        return [job for (at, _), job in self.live.items() if at == shard and not job.gone]

    def count(self, shard: Shard, name: str, group: str, by: int = 1) -> None:
        self.counts.setdefault(shard, Counter())[f"{name}:{group}"] += by

    def note_claim(self, serial: Serial, group: str, consumer: str) -> None:
        self._claimed[serial, group, consumer] = self.calls_seen
        self._first_claimed.setdefault((serial, group, consumer), self.calls_seen)

    def note_end(self, serial: Serial, group: str, consumer: str, script: str) -> None:
        self._ended.add((serial, group, consumer, script))

    def lose(self, jobs: Iterable[Tracked], how: str, shard: Shard | None = None) -> None:
        """``shard``: where nothing is left; None: nothing is left anywhere."""
        self.disturb()
        for job in jobs:
            job.gone = job.gone or how
            self.live.pop((job.shard, job.id), None)
        self.spans = {key: span for key, span in self.spans.items() if shard is not None and key[0] != shard}
