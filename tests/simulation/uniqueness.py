"""What enqueue_unique promises: no job gets an id while it is taken, or more often than its rate allows; a postponed
job stays one job, and is due no later than its limit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from .model import Call, Model, Shard, Tracked, due_of


@dataclass
class Span:
    """What is known of an id that may be taken for longer than its job lives."""

    job: Tracked
    until_ms: int = 0
    after_ms: int = 0  # it is taken for this long from the end of its job on
    latest_ms: int = 0
    times: list[int] = field(default_factory=list)


def check_new(model: Model, now_ms: int, job: Tracked, rule: bytes, replaces: bool) -> None:
    """A job has got an id. ``replaces``: from another one, if that waits."""
    after = rule.startswith(b"f")
    unique_for, times, per_ms, at_most = (
        int(value) if value else None for value in rule.removeprefix(b"f").split(b"|")
    )
    key = job.shard, job.id
    before = model.spans.get(key)
    if before is not None and not model.clock_was_back:
        # A job that is waiting may be replaced at any time, also within its span. Perhaps it waits in a group that
        # joined after it, and has not been seen to do anything with it.
        may_wait = replaces and bool(model.groups.get(job.shard, {}).keys() - before.job.deliveries.keys())
        until_ms = max(before.until_ms, _end_ms(model, before))
        if now_ms < until_ms and before.job.gone != "replaced" and not may_wait:
            model.broken(f"job {job.serial} got {job.id!r}, which is taken for {until_ms - now_ms} ms more")
        if times and per_ms and sum(now_ms - ms < per_ms for ms in before.times) >= times:
            model.broken(f"job {job.serial} got {job.id!r} beyond its rate: {before.times} at {now_ms}")
    span = Span(job, latest_ms=job.due_ms + at_most if at_most else 0)
    if unique_for:
        span.until_ms, span.after_ms = (0, unique_for) if after else (now_ms + unique_for, 0)
    if times:
        span.times = [*(before.times if before else []), now_ms]
    model.spans[key] = span


def _end_ms(model: Model, span: Span) -> int:
    """Until when an id is taken that is so from the end of its job on, if the model knows that end: in a group that
    joined after the job it may be open, or not be there at all. One that came back from the archive had left before.
    """
    job = span.job
    deliveries = [job.deliveries.get(group) for group in model.groups.get(job.shard, {})]
    ends = [one.ended_ms for one in deliveries if one is not None and one.ended]
    if not span.after_ms or job.gone or job.only or not ends or len(ends) < len(deliveries):
        return 0
    return max(ends) + span.after_ms


def postponed(model: Model, call: Call, shard: Shard, id: str, args: tuple[bytes, bytes, bytes], record: bytes) -> bool:
    """Whether the job with the id has become that of the call; checks that it could."""
    when, rest, rule = args
    body = rest.split(b"\n", 5)[5]
    if call.args[4] != b"postpone" or not record.endswith(rest):
        return False
    job, serial = model.live.get((shard, id)), json.loads(body)["n"]
    if job is None or job.gone:
        model.broken(f"{id!r} was postponed, which is not there")
        return True
    if job.serial == serial:
        return True  # the call was repeated
    now_ms, due_ms = call.reply[1], int(record[12 : record.index(b"\n")])
    if any(model.is_held(delivery.claim, now_ms) for delivery in job.deliveries.values()):
        model.broken(f"job {job.serial} was postponed while it ran")
    _check_due(model, job, due_ms, due_of(when.decode(), now_ms), rule)
    _becomes(model, job, serial, rest, due_ms)
    return True


def _check_due(model: Model, job: Tracked, due_ms: int, wanted_ms: int, rule: bytes) -> None:
    at_most = rule.rpartition(b"|")[2]
    span = model.spans.get((job.shard, job.id))
    if span is None or span.job is not job:
        before = span or Span(job)
        span = Span(job, before.until_ms, before.after_ms, times=before.times)
        model.spans[job.shard, job.id] = span
    # When that time is over, it is forgotten sooner or later; the job has been rescheduled since, or is due.
    forgotten = span.latest_ms < model.now_ms and due_ms == min(wanted_ms, job.due_ms + int(at_most or 0))
    if at_most and (forgotten or not span.latest_ms):
        span.latest_ms = job.due_ms + int(at_most)
    latest_ms = span.latest_ms or wanted_ms
    if due_ms not in (wanted_ms, min(wanted_ms, latest_ms), job.due_ms) and not model.clock_was_back:
        model.broken(f"job {job.serial} was postponed to {due_ms} instead of {wanted_ms}, or {latest_ms} at most")
    if due_ms > max(latest_ms, job.due_ms) and not model.clock_was_back:
        model.broken(f"job {job.serial} was postponed by {due_ms - latest_ms} ms too much")


def _becomes(model: Model, job: Tracked, serial: int, rest: bytes, due_ms: int) -> None:
    """The same job, with another body and other options. What has not begun has the new due time."""
    ttr, expire, nonce = rest.split(b"\n", 3)[:3]
    model.first_of[job.shard, job.id, nonce.decode()] = job.first
    for delivery in job.deliveries.values():
        if delivery.due_ms == job.due_ms:
            delivery.due_ms = due_ms
    job.serial, job.due_ms = serial, due_ms
    job.ttr_ms, job.expire_ms = (int(value) if value else None for value in (ttr, expire))
    model.jobs[serial] = job
