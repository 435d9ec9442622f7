"""What the queue promises, in plain Python: a model that is told of each script call that Redis carried out, and of
each handler that starts, and that says when a promise is broken. It knows the scripts' contracts (the headers in
``lua/``), not their code, and nothing of the product's Python.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

_SHARD = re.compile(r"^[^{]*\{(.+):(\d+)\}:")
_OF_CLAIM = {"finish": 4, "retry": 7, "bury": 6, "release": 4, "touch": 4}  # arguments for each claim


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
    ended: str = ""  # done, dead, purged
    ended_ms: int = 0
    least: int = 0  # attempts that count, before the current one
    most: int = 0  # the same, with those that may have been lost with their consumers


@dataclass
class Tracked:
    """One job, from the call that put it in."""

    serial: int
    shard: tuple[str, int]
    id: str
    due_ms: int
    ttr_ms: int | None
    expire_ms: int | None
    at: int  # the call that put it in
    gone: str = ""  # cancelled, replaced, deleted, lost
    deliveries: dict[str, Delivery] = field(default_factory=dict)

    def of(self, group: str) -> Delivery:
        return self.deliveries.setdefault(group, Delivery(self.due_ms))

    def may_be_late(self, now_ms: int, group: str) -> bool:
        """Whether Redis may have given it up as too late."""
        return self.expire_ms is not None and now_ms > self.of(group).due_ms + self.expire_ms


@dataclass(frozen=True)
class Call:
    """A command that Redis carried out. ``index``: how many it had carried out by then."""

    index: int
    now_ms: int
    name: str  # of the script, or the command
    keys: Sequence[str]
    args: Sequence[bytes]
    reply: Any

    @property
    def shard(self) -> tuple[str, int]:
        found = _SHARD.match(self.keys[0])
        return (found[1], int(found[2])) if found else ("", 0)


class Model:
    """Calls are kept, so that it can forget the last of them, as Redis does in a failover."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.jobs: dict[int, Tracked] = {}  # by serial
        self.now_ms = 0  # the latest of Redis's clock
        self.happened: Counter[str] = Counter()
        self._live: dict[tuple[tuple[str, int], str], Tracked] = {}  # by shard and id
        self._groups: dict[tuple[str, int], dict[str, int]] = {}  # of each shard, and the call that made them
        self._told = 0
        self._undisturbed_from = 0
        self._claimed: dict[tuple[int, str, str], int] = {}  # serial, group, consumer -> when, also what was forgotten
        self._forgotten: set[int] = set()
        self._judging = True
        self.lives: Callable[[str], bool] = lambda _: False  # whether this consumer gives signs of life for sure

    # -- what it is told

    def applied(self, call: Call) -> None:
        self._told += 1
        self.calls.append(call)
        self.now_ms = max(self.now_ms, call.now_ms)
        step = getattr(self, f"_{call.name.lower()}", None)
        if step is not None and not isinstance(call.reply, Exception):
            step(call)

    def started(self, serial: int, attempt: int, group: str, consumer: str) -> None:
        """A handler begins, in the worker with this consumer's name; it is told which attempt this is."""
        job = self.jobs.get(serial)
        delivery = job.of(group) if job else None
        if job and delivery and delivery.claim and delivery.claim.consumer == consumer and not job.gone:
            delivery.claim.started = True
            if not delivery.least < attempt <= delivery.most + 1:
                self._break(f"job {serial} starts in {group} as attempt {attempt}: {delivery}")
            if self.now_ms < delivery.due_ms:
                self._break(f"job {serial} starts {delivery.due_ms - self.now_ms} ms early in {group}")
        elif self._claimed.get((serial, group, consumer), self._told) >= self._undisturbed_from:
            what = "unknown" if job is None or delivery is None else job.gone or delivery.ended or str(delivery.claim)
            self._break(f"job {serial} starts in {group} on {consumer}, which does not hold it: {what}")

    def acknowledged(self, serial: int) -> None:
        """An enqueue has returned."""
        if serial not in self.jobs and not self._was_forgotten(serial):
            self._break(f"job {serial} was acknowledged, and never put in")

    def story(self, serial: int) -> list[Call]:
        """The calls that name the job."""
        job = self.jobs.get(serial)
        if job is None:
            return []
        named = re.compile(rf"\b{job.id}\b")
        return [c for c in self.calls if c.keys and c.shard == job.shard and named.search(str((c.args, c.reply)))]

    def disturb(self) -> None:
        """Claims given out until now may be void, without their holders' knowing."""
        self._told += 1
        self._undisturbed_from = self._told

    def forget(self, index: int) -> None:
        """Redis lost what it had carried out after its call ``index``."""
        kept, latest = [call for call in self.calls if call.index <= index], self.now_ms
        self._forgotten |= self.jobs.keys()
        self.calls, self.jobs, self._live, self._groups = [], {}, {}, {}
        self._judging = False
        for call in kept:
            self.applied(call)
        self._judging, self.now_ms = True, latest
        self.disturb()

    def _was_forgotten(self, serial: int) -> bool:
        return serial in self._forgotten

    def at_rest(self, groups: Iterable[str], stored: Sequence[tuple[tuple[str, int], str]]) -> None:
        """Nothing is due any more. ``groups`` were there all the time; ``stored``: shard and id of each job that is
        still in Redis.
        """
        for job in [job for job in self._live.values() if not job.gone]:
            for group in groups:
                delivery = job.of(group)
                if not delivery.ended and not job.may_be_late(self.now_ms, group):
                    self._break(f"job {job.serial} ({job.id} in {job.shard}) was never done in {group}: {delivery}")
        for shard, id in stored:
            left = self._live.get((shard, id))
            if left is None or left.gone:
                self._break(f"job {id} in {shard} is still in Redis, though it is gone")
            elif not any(delivery.ended == "dead" for delivery in left.deliveries.values()):
                self._break(f"job {left.serial} ({id} in {shard}) is still in Redis: {left.deliveries}")

    def _break(self, what: str) -> None:
        if self._judging:
            raise Broken(what)

    def _is_held(self, claim: Claim | None, now_ms: int) -> bool:
        """Whether nobody else may have the job now."""
        return claim is not None and now_ms < claim.until_ms and claim.at >= self._undisturbed_from

    # -- jobs come

    def _enqueue(self, call: Call) -> None:
        self._put(call, 3, replaces=False)

    def _replace(self, call: Call) -> None:
        self._put(call, 4, replaces=True)

    def _put(self, call: Call, first: int, replaces: bool) -> None:
        status, now_ms, looked, *taken = call.reply
        if status != 1:
            return
        for i in range(looked):
            if i + 1 not in taken[::2]:
                id, when, rest = call.args[first + 3 * i : first + 3 * i + 3]
                self._create(call, now_ms, id.decode(), when.decode(), rest, replaces)

    def _create(self, call: Call, now_ms: int, id: str, when: str, rest: bytes, replaces: bool) -> None:
        ttr, expire, _, _, _, body = rest.split(b"\n", 5)
        due_ms = now_ms + int(when) if when.startswith("+") else int(when)
        job = Tracked(
            json.loads(body)["n"], call.shard, id, due_ms, int(ttr) if ttr else None, int(expire) if expire else None,
            self._told,
        )  # fmt: skip
        before = self._live.get((call.shard, id))
        if before is not None and not before.gone:
            open_in = [g for g in self._groups_of(before) if not before.of(g).ended]
            if replaces and open_in:
                if any(self._is_held(before.of(group).claim, now_ms) for group in open_in):
                    self._break(f"job {before.serial} was replaced while it ran")
                before.gone = "replaced"
            elif not all(before.may_be_late(self.now_ms, group) for group in open_in):
                self._break(f"job {job.serial} took the place of {before.serial}, which is open in {open_in}")
        if job.serial in self.jobs and self.jobs[job.serial] is not before:
            self._break(f"job {job.serial} was put in twice")
        self.jobs[job.serial] = self._live[call.shard, id] = job

    # -- attempts

    def _claim(self, call: Call) -> None:
        if call.reply[0] < 0:  # there is no such group
            return
        status, now_ms, ttr_ms, _, claims, ids, records, expired, *_ = call.reply
        group, consumer = call.args[1].decode(), call.args[2].decode()
        self.happened["expired"] += expired
        if status != 1:
            return
        for claim, id, record in zip(claims, ids, records, strict=True):
            if claim:
                self._give(call, group, consumer, now_ms, ttr_ms, claim, id.decode(), record)

    def _give(
        self, call: Call, group: str, consumer: str, now_ms: int, ttr_ms: int, claim: bytes, id: str, record: bytes
    ) -> None:
        serial = json.loads(record.split(b"\n", 7)[7])["n"]
        job = self._live.get((call.shard, id))
        if job is None or job.serial != serial or job.gone:
            self._break(f"job {serial} ({id}) is claimed in {group}, though it is {job.gone if job else 'not there'}")
            return
        delivery = job.of(group)
        if delivery.ended:
            self._break(f"job {serial} is claimed in {group}, where it is {delivery.ended}")
        if self.now_ms < delivery.due_ms:
            self._break(f"job {serial} is claimed {delivery.due_ms - self.now_ms} ms early in {group}")
        main, _, rest = claim.partition(b"|")
        given = Claim((main, rest.partition(b"|")[0]), consumer, self._told, now_ms + (job.ttr_ms or ttr_ms), now_ms)
        held = delivery.claim
        if held and held.consumer == consumer and held.proof == given.proof:
            given.started = held.started  # it asks again, perhaps having got no reply, and gets the same one
        elif self._is_held(held, now_ms):
            self._break(f"job {serial} is claimed by {consumer} in {group}, while it is held: {held}")
        elif held:
            delivery.most += 1
        delivery.claim = given
        self._claimed[serial, group, consumer] = self._told

    def _accepted(self, call: Call) -> Iterator[tuple[Tracked, Delivery, Sequence[bytes]]]:
        """The claims of a batch that were not refused: the job, its delivery, and the arguments."""
        group, width = call.args[1].decode(), _OF_CLAIM[call.name]
        refused = set(call.reply[1:])
        for number, start in enumerate(range(4, len(call.args), width), start=1):
            args = call.args[start : start + width]
            job = self._live.get((call.shard, args[2].decode()))
            self.happened["refused"] += number in refused
            if number in refused:
                continue
            delivery = job.of(group) if job else None
            if job is None or delivery is None or delivery.claim is None or delivery.claim.proof != (args[0], args[1]):
                self._break(f"{call.name} of {args[:3]} in {group} was accepted, but it is held by {delivery}")
                continue
            yield job, delivery, args

    def _finish(self, call: Call) -> None:
        for _, delivery, _ in self._accepted(call):
            delivery.ended, delivery.claim = "done", None

    def _retry(self, call: Call) -> None:
        for _, delivery, args in self._accepted(call):
            delivery.claim, delivery.due_ms = None, call.reply[0] + int(args[4])
            if args[5] != b"-1":  # snoozed
                delivery.least, delivery.most = delivery.least + 1, delivery.most + 1

    def _bury(self, call: Call) -> None:
        for _, delivery, args in self._accepted(call):
            delivery.ended, delivery.ended_ms, delivery.claim = "dead", call.reply[0], None
            delivery.most += 1
            delivery.least += args[4] != b"crashed"  # then its handler was not called

    def _release(self, call: Call) -> None:
        for _, delivery, _ in self._accepted(call):
            delivery.claim = None

    def _touch(self, call: Call) -> None:
        for _, delivery, args in self._accepted(call):
            assert delivery.claim is not None
            delivery.claim.until_ms = call.reply[0] + int(args[3])

    def _remove_consumer(self, call: Call) -> None:
        """What the consumer held goes back."""
        group, consumer = call.args[1].decode(), call.args[2].decode()
        for job in self._of(call.shard):
            claim = job.of(group).claim
            if claim is not None and claim.consumer == consumer:
                claim.until_ms = min(claim.until_ms, call.now_ms)

    def _take_over(self, call: Call) -> None:
        """What a silent consumer held for long enough goes back."""
        group, consumer, silent_ms = call.args[1].decode(), call.args[4].decode(), int(call.args[5])
        if call.reply[0] == 0:
            return
        for job in self._of(call.shard):
            claim = job.of(group).claim
            if claim is None or claim.consumer != consumer or call.now_ms - claim.since_ms < silent_ms:
                continue
            if claim.started and self.lives(consumer):
                self._break(f"job {job.serial} was taken over from {consumer} in {group}, which runs it: {claim}")
            claim.until_ms = min(claim.until_ms, call.now_ms)

    # -- operators

    def _cancel(self, call: Call) -> None:
        job = self._live.get((call.shard, call.args[1].decode()))
        groups = list(self._groups.get(call.shard, {})) if job and not job.gone else []
        held = [group for group in groups if job and self._is_held(job.of(group).claim, call.now_ms)]
        if call.reply == 1:
            if job is None or all(job.of(group).ended for group in groups):
                self._break(f"cancelled {call.args[1]!r}, which was not open: {job}")
            elif held:
                self._break(f"cancelled job {job.serial} while it ran in {held}")
            else:
                job.gone = "cancelled"
        elif call.reply == 0 and job is not None and not job.gone and not job.expire_ms:
            open_in = [group for group in self._groups_of(job) if not job.of(group).ended]
            if open_in:
                self._break(f"job {job.serial} is open in {open_in}, and cancel did not find it")

    def _reschedule(self, call: Call) -> None:
        job = self._live.get((call.shard, call.args[1].decode()))
        if call.reply != 1:
            return
        if job is None or job.gone:
            self._break(f"rescheduled {call.args[1]!r}, which is gone")
            return
        when = call.args[2].decode()
        job.due_ms = call.now_ms + int(when) if when.startswith("+") else int(when)
        for delivery in job.deliveries.values():
            if not delivery.ended:
                if self._is_held(delivery.claim, call.now_ms):
                    self._break(f"rescheduled job {job.serial} while it ran")
                delivery.most += delivery.claim is not None  # it was lost with its consumer
                delivery.due_ms, delivery.claim = job.due_ms, None

    def _kick(self, call: Call) -> None:
        for delivery in self._dead(call.shard, call.args[1].decode(), call.args[4:], call.reply):
            delivery.ended, delivery.due_ms = "", 0

    def _purge(self, call: Call) -> None:
        for delivery in self._dead(call.shard, call.args[0].decode(), call.args[2:], call.reply):
            delivery.ended = "purged"

    def _dead(self, shard: tuple[str, int], group: str, ids: Sequence[bytes], count: int) -> list[Delivery]:
        """Those with the ids, or else those that have been dead for longest."""
        dead = [
            (job.of(group).ended_ms, job.id, job.of(group)) for job in self._of(shard) if job.of(group).ended == "dead"
        ]
        chosen = [row for row in sorted(dead, key=lambda row: row[:2]) if not ids or row[1].encode() in ids][:count]
        if len(chosen) != count:
            self._break(f"{count} dead letters of {group} in {shard} were kicked or purged; there were {len(chosen)}")
        return [delivery for _, _, delivery in chosen]

    def _groups_of(self, job: Tracked) -> list[str]:
        """The groups that must get the job: those that were there before it. Others may."""
        return [group for group, since in self._groups.get(job.shard, {}).items() if since < job.at]

    def _of(self, shard: tuple[str, int]) -> list[Tracked]:
        return [job for (at, _), job in self._live.items() if at == shard and not job.gone]

    # -- topics

    def _configure_shard(self, call: Call) -> None:
        status, groups, *_ = call.reply
        if status == 1:
            before = self._groups.get(call.shard, {})
            names = groups.decode().split(",") if groups else []
            self._groups[call.shard] = {name: before.get(name, self._told) for name in names}
        for group in filter(None, call.args[3].decode().split(",")):
            self.disturb()
            for job in self._of(call.shard):
                job.deliveries.pop(group, None)

    def _drop_shard(self, call: Call) -> None:
        if call.reply == 1:
            self._lose([job for job in self._live.values() if job.shard == call.shard], "deleted")
            self._groups.pop(call.shard, None)

    def _flushall(self, _: Call) -> None:
        self._lose(list(self._live.values()), "lost")
        self._groups.clear()

    def _lose(self, jobs: Iterable[Tracked], how: str) -> None:
        self.disturb()
        for job in jobs:
            job.gone = job.gone or how
            self._live.pop((job.shard, job.id), None)
