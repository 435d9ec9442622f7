"""What the outbox promises: a job of each committed row gets into Redis, once unless Redis loses it, and its delay
counts from the row; if rows are kept, jobs that Redis has lost are put back until they have ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .model import Call, Model, Serial, Shard, Tracked

_RELAY, _RELAYED = (
    ("id taken", "enqueued", "by an earlier call", "nothing at a former home"),
    ("unknown", "live", "ended"),
)
_ROUNDED_S = 0.003  # to whole ms, by the database, the relay and Redis


class Row(NamedTuple):
    """A committed row's job; when it was made, by a clock that nobody sets."""

    topic: str
    id: str
    key: str | None
    made_s: float
    delay_s: float


@dataclass
class Outbox:
    """``clock``: that one. ``late_s``: how long a call may take to arrive. ``keeps``: rows stay until their jobs have
    ended.
    """

    clock: Callable[[], float] = lambda: 0.0
    late_s: float = 0.0
    keeps: bool = False
    rows: dict[Serial, Row] = field(default_factory=dict)
    receipts: dict[bytes, tuple[Shard, Serial]] = field(default_factory=dict)  # of jobs that Redis knows to have got
    cancelled: set[Serial] = field(default_factory=set)  # of rows that still waited
    answers: set[tuple[Serial, str]] = field(default_factory=set)  # what Redis said, also what it has forgotten since

    def forget(self, shard: Shard | None = None) -> None:
        """Nothing is left in the shard; None: nothing is left anywhere."""
        self.receipts = {receipt: of for receipt, of in self.receipts.items() if shard is not None and of[0] != shard}

    def relayed(self, model: Model, call: Call, code: int, receipt: bytes, when: str, rest: bytes) -> None:
        """Of one row the script relay says this."""
        serial = json.loads(rest.rsplit(b"\n", 1)[1])["n"]
        model.happened[f"relay: {_RELAY[code]}"] += 1
        if serial not in self.rows:
            model.broken(f"job {serial} was relayed, whose transaction was not committed")
            return
        if serial in self.cancelled and code in (1, 2):
            model.broken(f"job {serial} was relayed, though its row was cancelled")
        if code == 1:
            if receipt in self.receipts:
                model.broken(f"job {serial} was relayed twice")
            self._check_delay(model, serial, when)
        elif code == 2 and receipt not in self.receipts and not _is_open(model, model.jobs.get(serial)):
            model.broken(f"job {serial} was taken for one that had been relayed")
        if code in (1, 2):
            self.receipts[receipt] = call.shard, serial
        self.answers.add((serial, _RELAY[code]))

    def _check_delay(self, model: Model, serial: Serial, when: str) -> None:
        row = self.rows[serial]
        left_s, given_s = row.made_s + row.delay_s - self.clock(), int(when) / 1000
        if given_s < left_s - _ROUNDED_S:
            model.broken(f"job {serial} is due {left_s - given_s:.3f} s early, as counted from its row")
        elif given_s > max(left_s, 0.0) + self.late_s:
            model.broken(f"job {serial} is due {given_s - left_s:.3f} s late, as counted from its row")

    def tells(self, model: Model, code: int, receipt: bytes) -> None:
        """Of one kept row the script relayed says this."""
        model.happened[f"relayed: {_RELAYED[code]}"] += 1
        _, serial = self.receipts.get(receipt, (None, None))
        if code == 2 and serial is not None:
            if _is_open(model, model.jobs.get(serial)):
                model.broken(f"the row of job {serial} goes, as if its job had ended")
            self.answers.add((serial, _RELAYED[code]))

    def at_rest(self, model: Model, left: Mapping[Serial, str]) -> None:
        """Nothing is due any more, and everything was relayed. ``left``: the rows that are there, and their states."""
        for serial, row in self.rows.items():
            if serial in self.cancelled:
                continue
            state, answers = left.get(serial), {answer for of, answer in self.answers if of == serial}
            if state in ("waiting", "relayed"):
                model.broken(f"the row of job {serial} is still {state}")
            elif not answers:
                model.broken(f"job {serial} never reached Redis, though its transaction was committed")
            elif state == "refused" and "id taken" not in answers:
                model.broken(f"the row of job {serial} was refused, though nobody had its id")
            elif state is None and _had_ended(model.jobs.get(serial)):
                continue  # the receipt that told so was in a shard that the topic has had, and that was deleted since
            elif self.keeps and not answers & {"id taken", "ended"} and not self._is_kept(model, serial, row):
                model.broken(f"job {serial}, whose row was to be kept, is lost: {model.jobs.get(serial)}")

    def _is_kept(self, model: Model, serial: Serial, row: Row) -> bool:
        """Whether Redis still knows what became of the job; or lost it when a later row had its id."""
        job = model.jobs.get(serial)
        if job is not None and job.gone not in ("lost", "deleted"):
            return True
        return any(later[:3] == row[:3] and later.made_s >= row.made_s for n, later in self.rows.items() if n != serial)


def _had_ended(job: Tracked | None) -> bool:
    """Whether the job had ended in all of its groups before its shard was deleted. A dead letter has not."""
    if job is None or job.gone != "deleted" or not job.deliveries:
        return False
    return all(delivery.ended not in ("", "dead") for delivery in job.deliveries.values())


def _is_open(model: Model, job: Tracked | None) -> bool:
    if job is None or job.gone:
        return False
    return any(not job.of(g).ended and not job.may_be_late(model.now_ms, g) for g in model.groups_of(job))
