"""Removes, pauses and resumes a schedule."""

from __future__ import annotations

from dataclasses import replace

from ...link.session import Op
from ...store.redis_store import RedisStore
from ...store.schedules.schedules import AHEAD_MS, StoredSchedule
from .read import Schedule, as_schedule, check_schedule_id, must_exist, schedules_of


def plan_after_ms(known: StoredSchedule, now_ms: int) -> int:
    """New plans begin after this: after now, or after the occurrence whose job was enqueued ahead of its time, if
    somebody has cancelled or rescheduled that job. If it was taken back, it is in the plan again.
    """
    taken_back = bool(known.plan) and known.plan[0].time_ms == known.last_ms + 1
    is_ahead = now_ms < known.last_ms <= now_ms + AHEAD_MS  # later: the clock was set back
    return known.last_ms if is_ahead and not taken_back else now_ms


def unschedule(store: RedisStore, topic: str, id: str = "default") -> Op[bool]:
    """Removes a schedule; the jobs of its past occurrences stay. False: there is none.

    Raises:
        UnknownTopic: there is no such topic.
    """
    yield from store.topics.get(topic)
    return (yield from schedules_of(store).remove(topic, check_schedule_id(id)))


def pause_schedule(store: RedisStore, topic: str, id: str = "default") -> Op[Schedule]:
    """No occurrence runs until the schedule is resumed, and those of the pause are not made up for. An occurrence that
    already waits for the last job to end (overlap="queue") keeps waiting.
    """

    def changed(known: StoredSchedule | None, now_ms: int) -> StoredSchedule:
        there = must_exist(known, topic, id)
        return replace(there, state="paused", plan=(), last_ms=plan_after_ms(there, now_ms))

    yield from store.topics.get(topic)
    return as_schedule(topic, id, *(yield from schedules_of(store).change(topic, check_schedule_id(id), changed)))


def resume_schedule(store: RedisStore, topic: str, id: str = "default") -> Op[Schedule]:
    """Its occurrences run again, from the next one on."""

    def changed(known: StoredSchedule | None, now_ms: int) -> StoredSchedule:
        there = must_exist(known, topic, id)
        return (
            there if there.state != "paused" else replace(there, state="active", last_ms=plan_after_ms(there, now_ms))
        )

    yield from store.topics.get(topic)
    return as_schedule(topic, id, *(yield from schedules_of(store).change(topic, check_schedule_id(id), changed)))
