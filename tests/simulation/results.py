"""What Redis keeps of each end, as it should be: the judge of each read of a result, and of what waits return."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .model import Call, Model, Shard, Tracked

_KEY = ":result:"


class Kept(NamedTuple):
    """How a group has ended a job. ``told``: which call ended it, or was the first to show it."""

    outcome: str
    payload: bytes | None  # None: any
    ended_ms: int
    until_ms: int
    calls_seen: int


class Shown(NamedTuple):
    """What a read has shown. ``ended``: the call that ended the job."""

    topic: str
    id: str
    group: str
    outcome: str
    payload: bytes
    ended: int
    read: int


class Results:
    def __init__(self) -> None:
        self._kept: dict[tuple[Shard, str, str], Kept] = {}
        self.shown: list[Shown] = []  # also what Redis has forgotten since

    def forget(self) -> None:
        self._kept.clear()

    # -- what calls mean

    def ended(
        self, model: Model, job: Tracked, group: str, outcome: str, now_ms: int, payload: bytes | None = b""
    ) -> None:
        """A result appears in the step that ends the job, if the group keeps results."""
        if ms := _retention_ms(model, job.shard, group):
            self._kept[job.shard, group, job.id] = Kept(outcome, payload, now_ms, now_ms + ms, model.calls_seen)

    def finished(self, model: Model, call: Call, job: Tracked, sent: Sequence[bytes]) -> None:
        """``sent``: the result, if there is one. It says whose it is: the job's, and the attempt's that returned it."""
        group, consumer = call.args[1].decode(), call.args[4].decode()
        outcome, _, payload = (sent[0] if sent else b"done|").partition(b"|")
        self.ended(model, job, group, outcome.decode(), call.reply[0], payload)
        value = json.loads(payload or b"null")
        if value is not None and value != returned(job.serial, group, consumer):
            model.broken(f"job {job.serial} was finished in {group} by {consumer} with the result {value}")

    def cancelled(self, model: Model, job: Tracked, now_ms: int) -> None:
        """By every group that it was open in. Whether it had expired before is not always known."""
        for group in model.groups.get(job.shard, {}):
            if not job.of(group).ended and not job.may_be_late(model.now_ms, group):
                self.ended(model, job, group, "cancelled", now_ms)

    def begins(self, shard: Shard, id: str, group: str | None = None) -> None:
        """A new life, for all groups or one: nothing of the life before is a result of it."""
        for place in [place for place in self._kept if (place[0], place[2]) == (shard, id)]:
            if group in (None, place[1]):
                del self._kept[place]

    # -- what is seen

    def read(self, model: Model, shard: Shard, group: str, id: str, value: bytes | None) -> None:
        place = shard, group, id
        known = self._kept.get(place)
        if value is None:
            if known is not None and model.now_ms < known.until_ms:
                model.broken(
                    f"the result of {id!r} in {group} is gone, {known.until_ms - model.now_ms} ms early: {known}"
                )
            return
        ended_ms, _, rest = value.partition(b"|")
        outcome, _, payload = rest.partition(b"|")
        if known is None and self._may_have_ended(model, shard, group, id, outcome.decode()):
            known = self._kept[place] = Kept(outcome.decode(), payload, int(ended_ms), 0, model.calls_seen)
        if known is None or not _fits(known, outcome.decode(), payload, int(ended_ms)):
            job = model.live.get((shard, id))
            what = "nothing" if job is None else job.gone or str(job.of(group))
            model.broken(f"{id!r} in {group} of {shard} has the result {value!r}, and should have {known}: {what}")
            return
        self.shown.append(Shown(shard[0], id, group, known.outcome, payload, known.calls_seen, model.calls_seen))

    def _may_have_ended(self, model: Model, shard: Shard, group: str, id: str, outcome: str) -> bool:
        """No call tells when an aborted job is lost with its consumer, nor always which one has expired. A job that is
        late may have been cancelled as well.
        """
        job = model.live.get((shard, id))
        if job is None:
            return False
        aborting = outcome == "cancelled" and job.of(group).ended == "aborting"
        late = outcome in ("expired", job.gone) and job.may_be_late(model.now_ms, group)
        return aborting or late

    def returned(self, model: Model, topic: str, id: str, group: str, since: int, outcome: str, value: Any) -> None:
        """A wait has ended with this outcome, of a job that was looked for since then (``model.calls_seen``)."""
        seen = [
            one for one in self.shown
            if one.read > since and (one.topic, one.id, one.group, one.outcome) == (topic, id, group, outcome)
            and (outcome != "done" or json.loads(one.payload or b"null") == value)
        ]  # fmt: skip
        lives = [job for (shard, name), job in model.live.items() if (shard[0], name) == (topic, id)]
        if not seen:
            if outcome != "dead" or not any(job.of(group).ended == "dead" for job in lives):  # the progress says it
                model.broken(
                    f"a wait for {id!r} of {topic} in {group} was told {outcome}, {value}, which nothing showed"
                )
            return
        before = max((job.at for job in lives if not job.gone and job.at <= since), default=0)
        if max(one.ended for one in seen) < before and not model.lost_data:
            model.broken(f"a wait for {id!r} of {topic} in {group} was told how an earlier job had ended: {seen[-1]}")


def returned(serial: int | str, group: str, consumer: str) -> dict[str, Any]:
    """What handlers return."""
    return {"n": serial, "group": group, "by": consumer}


def read(model: Model, call: Call) -> None:
    """GET"""
    from .model import shard_of

    key = call.args[0].decode()
    if _KEY in key:
        group, _, id = key.partition(_KEY)[2].partition(":")
        model.results.read(model, shard_of(key), group, id, call.reply)


def _fits(known: Kept, outcome: str, payload: bytes, ended_ms: int) -> bool:
    """The script's own clock may be a fraction of a millisecond behind."""
    return known.outcome == outcome and abs(known.ended_ms - ended_ms) <= 1 and known.payload in (None, payload)


def _retention_ms(model: Model, shard: Shard, group: str) -> int:
    fields = model.fields.get(shard, {}).get("results", b"").decode()
    return int(dict(one.split("=") for one in fields.split(",") if one).get(group, 0))
