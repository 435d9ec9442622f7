"""Operations on topics: settings, groups, pausing, deleting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ...config import DEFAULT_GROUP, MAX_KEY_CONCURRENCY, TopicSettings
from ...errors import InvalidInput, UnknownGroup
from ...job.durability import check_level
from ...job.job import check_group, check_topic, check_ttr
from ...job.result import check_retention
from ...job.retry import RetryInput, RetrySchedule
from ...link.session import Op
from ...store.redis_store import RedisStore
from ...store.topics import changes as topic_changes
from ...store.topics.misspelt import check_spelling
from ...times.durations import Duration, rate_in, to_ms
from ..keys.pause import pause_key

MAX_SHARDS = 256
_LEAST_RATE = 1e-6
_LEAST_AGE_MS = 1_000
_OF_PROCESS = "default"


def configure(
    store: RedisStore,
    topic: str,
    *,
    ttr: Duration | None = None,
    retry: RetryInput | None = None,
    shards: int | None = None,
    max_deliveries: int | None = None,
    groups: Sequence[str] | None = None,
    rate: float | None = None,
    durable: str | None = None,
    key_concurrency: int | None = None,
    key_order: bool | Literal["pass"] | None = None,
    key_rate: str | Literal[0] | None = None,
    result: Duration | Mapping[str, Duration] | None = None,
    dead_for: Duration | None = None,
    create: bool = False,
) -> Op[TopicSettings]:
    """Changes the given settings, and returns all. Without any, it only reads them. A missing topic is created. If its
    name looks like a misspelt name of another topic, that needs ``create``.

    ``rate``: at most this many jobs become ready per second; 0 for no limit. ``groups``: exactly these; others are
    removed, and their open jobs end. ``max_deliveries``: how often a job may be lost with its consumer before it is
    buried. ``durable``: the level of its producers' calls that don't name one; "default" for that of the process.

    ``key_concurrency``: at most this many attempts of a key run at once, for each group; 0 for no limit. ``key_order``:
    jobs of a key start in the order of their due times. A job that waits for its next attempt holds the key, so that no
    other overtakes it; "pass" lets the others pass; False for any order. Unless it is given, ``key_concurrency`` is
    then 1. ``key_rate``: this many attempts of a key start in a time, ``"5/s"`` or ``"100/10m"``, spread evenly, for
    each group; 0 for no limit. The first limit of a topic applies to jobs that are enqueued from now on (docs/keys.md).

    ``result``: for how long what handlers return is kept for ``Queue.result``; 0: no longer. If the topic has several
    groups, name those that are meant: ``{"billing": "1d"}``.

    ``dead_for``: older dead letters are removed, within minutes; 0 removes none.

    ``shards``: existing jobs stay in their shards and keep their ids; new ones are spread over the new number.

    Raises:
        UnknownGroup: ``result`` names a group that the topic does not have.
        UnknownTopic: there is no such topic, and no settings are given, or its name may be misspelt. TopicNotEmpty:
        ``shards`` differs, and the topic holds jobs whose keys have limits, or jobs from before the last three changes.
        Or the first limit of keys is set while the topic is resharding.
    """
    topic = check_topic(topic)
    changes = _of_attempts(ttr, retry)
    if shards is not None:
        changes["shards"] = _in_range("shards", shards, 1, MAX_SHARDS)
    if max_deliveries is not None:
        changes["max_deliveries"] = _in_range("max_deliveries", max_deliveries, 1, 10_000)
    if dead_for is not None:
        changes["dead_for_ms"] = _dead_for(dead_for)
    changes |= _of_flow(rate, durable) | _of_keys(key_concurrency, key_order, key_rate)
    exactly = None if groups is None else _checked_groups(groups)
    of_groups = yield from _of_groups(store, topic, result, exactly)
    if not (create or changes or exactly or of_groups):
        return (yield from store.topics.get(topic, anew=True))
    if not create:
        yield from check_spelling(store.topics, topic)
    return (yield from topic_changes.configure(store.topics, topic, changes, exactly, of_groups))


def delete_topic(store: RedisStore, topic: str, *, force: bool = False) -> Op[None]:
    """Deletes the topic with its settings, counters and history; with ``force``, also its jobs, whose running
    attempts can then no longer be finished. Enqueuing to it or serving it creates it again.

    Raises:
        UnknownTopic
        TopicNotEmpty: it holds jobs, schedules, or receipts for a database, and ``force`` is not given.
        TopicServed (a TopicNotEmpty): it has consumers beside this queue, and ``force`` is not given. One that was
            killed, or has only used ``take``, counts for two and a half minutes.
    """
    yield from topic_changes.delete(store.topics, check_topic(topic), force)


def pause(store: RedisStore, topic: str, *, key: str | None = None) -> Op[None]:
    """No new attempt of the topic's jobs, or of those of one key, starts until ``resume``; running ones go on.

    Raises:
        UnknownTopic
        InvalidInput: a key is given, and the topic has no limit of keys (``configure``).
    """
    if key is None:
        yield from topic_changes.set_paused(store.topics, check_topic(topic), True)
    else:
        yield from pause_key(store, topic, key, True)


def resume(store: RedisStore, topic: str, *, key: str | None = None) -> Op[None]:
    """Ends a pause; jobs that came due meanwhile are delivered now."""
    if key is None:
        yield from topic_changes.set_paused(store.topics, check_topic(topic), False)
    else:
        yield from pause_key(store, topic, key, False)


def _of_attempts(ttr: Duration | None, retry: RetryInput | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if ttr is not None:
        changes["ttr_ms"] = check_ttr(ttr)
    if retry is not None:
        changes["retry"] = str(RetrySchedule.of(retry))
    return changes


def _dead_for(age: Duration) -> int | None:
    ms = to_ms(age, "dead_for")
    if 0 < ms < _LEAST_AGE_MS:
        raise InvalidInput(
            f"dead_for: {age!r} is less than 1s; it is for how long dead letters are kept, 0 for no limit"
        )
    return ms or None


def _of_flow(rate: float | None, durable: str | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if rate is not None:
        changes["rate"] = check_rate(rate) or None
    if durable is not None:
        changes["durable"] = None if durable == _OF_PROCESS else check_level(durable)
    return changes


def _of_groups(
    store: RedisStore, topic: str, result: Duration | Mapping[str, Duration] | None, groups: Sequence[str] | None
) -> Op[dict[str, dict[str, Any]]]:
    """The changes of single groups. ``groups``: those that the topic will have; None: as it has them."""
    if result is None:
        return {}
    if groups is None:
        known = yield from store.topics.read(topic)
        groups = known.group_names if known else (DEFAULT_GROUP,)
    if not isinstance(result, Mapping):
        if len(groups) > 1:
            raise InvalidInput(
                f"result: topic {topic!r} has several groups; name those that are meant, such as "
                f"{{{groups[0]!r}: {result!r}}}; there are {', '.join(groups)}"
            )
        result = {groups[0]: result}
    for name in result:
        if name not in groups:
            raise UnknownGroup(f"result: topic {topic!r} has no group {name!r}; it has {', '.join(groups)}")
    return {name: {"result_ms": check_retention(one) or None} for name, one in result.items()}


def _of_keys(
    concurrency: int | None, order: bool | Literal["pass"] | None, rate: str | Literal[0] | None
) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if order is not None:
        changes["key_order"] = _key_order(order)
        concurrency = 1 if order and concurrency is None else concurrency
    if concurrency is not None:
        changes["key_concurrency"] = _in_range("key_concurrency", concurrency, 0, MAX_KEY_CONCURRENCY) or None
    if rate is not None:
        changes["key_rate"] = _key_rate(rate)
    if changes:
        changes["relimiting"] = True
    return changes | ({"key_limited": True} if concurrency or changes.get("key_rate") else {})


def _key_order(order: bool | Literal["pass"]) -> str | None:
    if order not in (True, False, "pass"):
        raise InvalidInput(f"key_order: {order!r} is not one of True, False, 'pass'")
    return {True: "hold", False: None, "pass": "pass"}[order]


def _key_rate(rate: str | Literal[0]) -> str | None:
    """As the registry keeps it; None for no limit."""
    if rate in ("0", 0) and rate is not False:
        return None
    times, span_ms = rate_in(str(rate), "key_rate")
    if times > span_ms:
        raise InvalidInput(f"key_rate: {rate!r}: at most 1000 a second")
    return str(rate).strip()


def check_rate(rate: float) -> float:
    """The jobs of a topic that become ready in a second; 0: no limit. Raises `InvalidInput`."""
    number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not number or not (rate == 0 or _LEAST_RATE <= rate <= 1e6):
        raise InvalidInput(f"rate: {rate!r} is not a number of jobs per second: 0, or from 0.000001 to 1,000,000")
    return rate


def _checked_groups(groups: Sequence[str]) -> list[str]:
    if isinstance(groups, str) or not groups:
        raise InvalidInput("groups: pass a list with at least one group")
    return [check_group(group) for group in groups]


def _in_range(name: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(f"{name}: {value!r} is not a whole number between {low} and {high}")
    return value
