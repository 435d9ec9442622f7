"""Acts on the jobs that a search has shown. The scripts leave alone what has changed since."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from ...config import TopicSettings
from ...errors import InvalidInput
from ...job.durability import check_level
from ...keys import ShardKeys
from ...link.session import Op
from ...store import namespace
from ...store.batches import most_jobs
from ...store.jobs import lookup
from ...store.jobs.records import encode_when
from ...store.redis_store import RedisStore
from ...store.replies import OUTDATED
from ...store.scripts import Scripts
from ...store.topics.topics import changing
from ...times.durations import Duration, Moment
from ..dead_letters.kick_throttle import SLICE, KickThrottle
from ..jobs.get import REPAIRS
from .search import Search

ActionResult = Literal["done", "changed", "gone", "refused"]
Tell = Callable[[ShardKeys, str, ActionResult], None]
"""Called with what became of each job: its shard, its id, the result."""

_RESULTS: dict[int, ActionResult] = {1: "done", -3: "changed", -4: "gone"}  # by the scripts' codes; others: refused
_SEQUENCE_LENGTH = 12
_DEAD_IN = re.compile(r"\|([^:|]+):d([^|]*)")


@dataclass(slots=True)
class Acted:
    """What became of the jobs that a search had shown."""

    done: int = 0
    changed: int = 0  # left alone: it has been rescheduled, claimed, retried, kicked, … since
    gone: int = 0  # ended since
    refused: int = 0  # left alone: not possible in its state, as to cancel what runs

    @property
    def left_alone(self) -> int:
        return self.changed + self.gone + self.refused

    def add(self, result: ActionResult) -> None:
        setattr(self, result, getattr(self, result) + 1)


def cancel_found(search: Search, durable: str | None = None, tell: Tell | None = None) -> Op[Acted]:
    """Cancels what was found, as ``cancel`` does."""

    def script(scripts: Scripts, k: ShardKeys, settings: TopicSettings, shown: Sequence[_Known]) -> Op[list[int]]:
        return scripts.cancel_each(k, settings, shown)

    return (yield from _each(search, script, durable, tell))


def reschedule_found(
    search: Search,
    delay: Duration | None = None,
    at: Moment | None = None,
    durable: str | None = None,
    tell: Tell | None = None,
) -> Op[Acted]:
    """Gives what was found a new due time, as ``reschedule`` does."""
    if delay is None and at is None:
        raise InvalidInput("reschedule: pass delay or at")
    when = encode_when(delay, at)
    now_ms = yield from namespace.now_ms(search.store.session)
    at_once = when == "+0" or (when[0] != "+" and int(when) <= now_ms)
    throttle = KickThrottle(search.store.session) if at_once else None

    def script(scripts: Scripts, k: ShardKeys, settings: TopicSettings, shown: Sequence[_Known]) -> Op[list[int]]:
        return scripts.reschedule_each(k, settings, when, shown)

    return (yield from _each(search, script, durable, tell, throttle))


def erase_found(search: Search, entries: Mapping[ShardKeys, Mapping[str, Sequence[str]]], tell: Tell) -> Op[Acted]:
    """Erases what was found and does not run: the jobs go for every group, and leave nothing behind. ``entries``: what
    the ready streams of each shard have of an id.
    """

    def script(scripts: Scripts, k: ShardKeys, settings: TopicSettings, shown: Sequence[_Known]) -> Op[list[int]]:
        return scripts.erase_job(k, settings, shown, entries.get(k, {}))

    return (yield from _each(search, script, None, tell))


_Known = tuple[str, str]  # id and deliveries
_Script = Callable[[Scripts, ShardKeys, TopicSettings, Sequence[_Known]], Op[list[int]]]


def _each(
    search: Search,
    script: _Script,
    durable: str | None,
    tell: Tell | None,
    throttle: KickThrottle | None = None,
) -> Op[Acted]:
    check_level(durable)
    yield from search.some()
    store, acted, began = search.store, Acted(), False
    settings = yield from store.topics.latest(search.topic)
    for shard, part in _slices(search.plan, len(settings.groups)):
        if throttle and began:
            yield from throttle.wait_ready(shard, settings.group_names)
        codes, settings = yield from _call(store, script, shard, settings, part, durable)
        results = [_RESULTS.get(code, "refused") for code in codes]
        _count(acted, tell, shard, zip((id for id, _ in part), results, strict=True))
        began = True
    return acted


def _call(
    store: RedisStore,
    script: _Script,
    shard: ShardKeys,
    settings: TopicSettings,
    part: Sequence[_Known],
    durable: str | None,
) -> Op[tuple[list[int], TopicSettings]]:
    """The script's codes, and the settings by which it took the call."""
    codes = [OUTDATED] * len(part)
    for _ in range(REPAIRS):
        left = [i for i, code in enumerate(codes) if code == OUTDATED]
        replies = yield from script(store.at(durable, settings), shard, settings, [part[i] for i in left])
        for i, code in zip(left, replies, strict=True):
            codes[i] = code
        if OUTDATED not in codes:
            return codes, settings
        renewed = yield from store.topics.renew(shard.topic)
        if renewed is None:
            raise store.topics.unknown(shard.topic)
        settings = renewed
    raise changing(shard.topic)


def _slices(plan: Mapping[ShardKeys, Mapping[str, str]], groups: int) -> Iterator[tuple[ShardKeys, list[_Known]]]:
    most = most_jobs(SLICE, 2 * groups)
    for shard, shown in plan.items():
        left = iter(shown.items())
        while part := list(islice(left, most)):
            yield shard, part


def _count(acted: Acted, tell: Tell | None, shard: ShardKeys, results: Iterable[tuple[str, ActionResult]]) -> None:
    for id, result in results:
        acted.add(result)
        if tell is not None:
            tell(shard, id, result)


def kick_found(search: Search, tell: Tell | None = None) -> Op[Acted]:
    """Sends back those of the jobs that were dead, in the group of the search or in each in which they were."""
    throttle = KickThrottle(search.store.session)
    return (yield from _each_dead_letter(search, search.store.scripts.kick_each, tell, throttle))


def purge_found(search: Search, tell: Tell | None = None) -> Op[Acted]:
    """Deletes those of the jobs that were dead, in the group of the search or in each in which they were."""
    return (yield from _each_dead_letter(search, search.store.scripts.purge_each, tell, None))


_DeadLetterScript = Callable[[ShardKeys, str, Sequence[_Known]], Op[list[int]]]


def _each_dead_letter(
    search: Search, script: _DeadLetterScript, tell: Tell | None, throttle: KickThrottle | None
) -> Op[Acted]:
    yield from search.some()
    store, acted, began = search.store, Acted(), False
    settings = yield from store.topics.latest(search.topic)
    for shard, part in _slices(search.plan, len(settings.groups)):
        of_groups = _by_group(part, search.criteria.group)
        done: set[str] = set()
        for group, shown in of_groups.items():
            if throttle and began:
                yield from throttle.wait(shard, group)
            codes = yield from script(shard, group, shown)
            done |= {id for (id, _), code in zip(shown, codes, strict=True) if code == 1}
        dead = {id for shown in of_groups.values() for id, _ in shown}
        left = sorted(dead - done)
        there = dict(zip(left, (yield from lookup.records_there(store.session, shard, left)), strict=True))
        _count(acted, tell, shard, ((id, _became(id, done, there)) for id, _ in part))
        began = True
    return acted


def _became(id: str, done: Collection[str], there: Mapping[str, bool]) -> ActionResult:
    """``there``: of the dead ones to which it was not done, whether they are still there."""
    if id in done:
        return "done"
    return "refused" if id not in there else "changed" if there[id] else "gone"


def _by_group(shown: Sequence[_Known], group: str | None) -> dict[str, list[_Known]]:
    """By group, the ids and deliveries of the jobs that were dead, with their nonces."""
    found: dict[str, list[_Known]] = {}
    for id, deliveries in shown:
        nonce = deliveries[_SEQUENCE_LENGTH:].partition("|")[0]
        for name, delivery in _DEAD_IN.findall(deliveries):
            if group in (None, name):
                found.setdefault(name, []).append((id, f"{delivery}/{nonce}"))
    return found
