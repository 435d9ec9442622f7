"""What schedules will add to the coming load: their occurrences become jobs seconds before they are due, so no bucket
has them yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import add

from ...errors import InvalidInput
from ...link.session import Op, Work
from ...schedules.coming import coming
from ...store.redis_store import RedisStore
from ...store.schedules.schedules import Schedules, StoredSchedule
from .overview import Load, TopicSummary

MOST_SCHEDULES = 500  # that one page reads
MOST_TIMES = 5_000  # of cron expressions, each 5 to 10 µs; a page is made anew every two seconds


def plan_ahead(store: RedisStore, topics: Sequence[TopicSummary], load: Load) -> Op[None]:
    """Adds what their active schedules will add to the load. ``load.planned_whole`` is False if some were left out, as
    there are too many, or in time zones that this host does not know.
    """
    names = [
        one.name for one in topics if one.settings.scheduled and store.topics.all_shards(one.name)[0] not in one.lost
    ]
    if not names:
        return
    stored = Schedules(store.session, store.scripts, store.topics)
    few, left = [], MOST_SCHEDULES
    for name, count in zip(names, (yield from stored.counts(names)), strict=True):
        if count > left:
            load.planned_whole = False
        elif count:
            few.append(name)
            left -= count
    if few:
        found = yield from stored.of_each(few)
        yield Work(lambda: _add(load, found))  # an event loop must not stand still


def _add(load: Load, schedules: Iterable[tuple[str, StoredSchedule]]) -> None:
    left, unknown = MOST_TIMES, set[str]()  # time zones: of a newer database than this host's
    for id, one in schedules:
        if one.state == "active" and one.definition.tz not in unknown:
            after_ms = one.plan[0].time_ms - 1 if one.plan else one.last_ms
            try:
                counts, looked_at, whole = coming(
                    one.definition, id, after_ms, load.now_ms, load.step_ms, len(load.planned), left
                )
            except InvalidInput:
                unknown.add(one.definition.tz)
                load.planned_whole = False
                continue
            left -= looked_at
            load.planned = list(map(add, load.planned, counts))
            load.planned_whole = load.planned_whole and whole
