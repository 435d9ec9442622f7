"""Bodies in files: written before their job is enqueued, read before it is shown, deleted when it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ...codec.bodies import result_in, result_name
from ...codec.envelope import envelope_in
from ...codec.offload import Offload, StoredBody
from ...errors import BodyDamaged, BodyStorageUnavailable, InvalidInput
from ...job.job import Job
from ...keys import ShardKeys, shard_of
from ...link.session import Op, Session, Work
from ...store.jobs import lookup, results
from ...store.jobs.records import Encoded, body_of, record_in, with_body
from ...store.redis_store import RedisStore
from ...store.topics import shard_state
from ...threads import HandlerThreads

T = TypeVar("T")
_AT_ONCE = 8  # files that are read or removed at the same time
_PAGE = 100


def _each(function: Callable[[T], Any], items: Sequence[T]) -> list[Any]:
    """The process does not wait for these threads when it exits, even if the storage hangs."""
    if len(items) < 2:
        return [function(item) for item in items]
    threads = HandlerThreads(_AT_ONCE)
    try:
        return list(threads.map(function, items))
    finally:
        threads.shutdown()


def put_away(session: Session, topic: str, jobs: Sequence[Encoded]) -> Op[Sequence[Encoded]]:
    """The jobs as they go to Redis: large bodies are then in files.

    Raises:
        BodyStorageUnavailable
    """
    offload, bodies = session.bodies.offload, session.bodies
    if offload is None:
        return jobs
    large = [i for i, job in enumerate(jobs) if len(job.rest) > offload.over]
    if not large:
        return jobs

    def put(i: int) -> Encoded:
        return with_body(jobs[i], bodies.put_away(topic, jobs[i].id, body_of(jobs[i])))

    kept = yield Work(lambda: offload.calls.each(put, large))
    changed = dict(zip(large, kept, strict=True))
    return [changed.get(i, job) for i, job in enumerate(jobs)]


def take_back(session: Session, topic: str, jobs: Iterable[Encoded]) -> Op[None]:
    """Deletes the files of jobs that were not enqueued. What can't be deleted is left to the sweep."""
    if session.bodies.offload is not None:
        yield from _drop(session, [(topic, job.id, body_of(job)) for job in jobs])


def fetched(jobs: Iterable[Job]) -> Op[None]:
    """Reads the bodies of jobs that are in files, so that looking at them blocks nobody."""
    away = [job for job in jobs if job.is_elsewhere]
    if away:
        yield Work(lambda: _each(Job.fetch, away))


class EndedJob(NamedTuple):
    """A job that was finished, and its body as it is stored."""

    topic: str
    id: str
    body: bytes


def drop_ended(session: Session, jobs: Sequence[tuple[ShardKeys, EndedJob]]) -> Op[None]:
    """Deletes the files of jobs that have ended in every group; those of others stay."""
    records = yield from lookup.records(session, [(shard, job.id) for shard, job in jobs])
    ended = [
        job
        for (_, job), record in zip(jobs, records, strict=True)
        if record is None or record_in(record).body != job.body
    ]
    yield from _drop(session, ended)


def drop_results(session: Session, topic: str, results: Sequence[tuple[str, str, bytes]]) -> Op[None]:
    """Deletes the files of results that are no longer wanted: group, id and what is stored of each."""
    yield from _drop(session, [(topic, result_name(group, id), stored) for group, id, stored in results])


def _drop(session: Session, bodies: Sequence[tuple[str, str, bytes]]) -> Op[None]:
    files, away = session.bodies.files, [body for body in bodies if session.bodies.blocks(body[2])]

    def drop(body: tuple[str, str, bytes]) -> None:
        with suppress(BodyStorageUnavailable, BodyDamaged):
            session.bodies.drop(*body)

    if files is not None and away:
        with suppress(BodyStorageUnavailable):
            yield Work(lambda: files.calls.each(drop, away))


# -- the sweep


@dataclass(slots=True)
class Swept:
    """What a sweep found. ``unused``: files that no job names; they are deleted, or would be."""

    files: int = 0
    used: int = 0
    unused: int = 0
    unused_bytes: int = 0
    deleted: int = 0


def sweep(
    store: RedisStore, older_than: timedelta, *, delete: bool, tell: Callable[[int], None] = lambda _: None
) -> Op[Swept]:
    """Looks at every file that is older than this, whether its job still names it. A job is enqueued within seconds
    after its file was written, or never; so what no job names then, none ever will.

    Raises:
        InvalidInput: no storage is configured.
        BodyStorageUnavailable
    """
    offload = store.session.bodies.files
    if offload is None:
        raise InvalidInput("sweep: no storage of large bodies is configured; set STREAMDQ_OFFLOAD")
    yield from store.topics.registry()
    found = Swept()
    for hour in (yield Work(partial(offload.hours, store.session.keys.namespace, older_than))):
        files: list[StoredBody] = yield Work(partial(offload.written_in, hour))
        for start in range(0, len(files), _PAGE):
            unused = yield from _unused(store, files[start : start + _PAGE])
            found.files += len(files[start : start + _PAGE])
            found.unused += len(unused)
            found.unused_bytes += sum(file.size for file in unused)
            if delete and unused:
                yield Work(partial(_each, offload.remove, [file.path for file in unused]))
                found.deleted += len(unused)
            tell(found.files)
        if delete:
            yield Work(partial(offload.clear_away, hour))
    found.used = found.files - found.unused
    return found


def _unused(store: RedisStore, files: Sequence[StoredBody]) -> Op[list[StoredBody]]:
    keys, shards = store.session.keys, (yield from _shards(store, sorted({file.topic for file in files})))
    known = [file for file in files if shards[file.topic]]
    usual = [(file, keys.shard(file.topic, shard_of(_id_in(file), len(shards[file.topic])))) for file in known]
    used = yield from _used(store, usual)
    # A job with a key is in the shard of the key, which the file does not tell.
    left = [file for file in known if file.path not in used]
    used |= yield from _used(store, [(file, shard) for file in left for shard in shards[file.topic]])
    return [file for file in files if file.path not in used]


def _id_in(file: StoredBody) -> str:
    """The job's, also if the file is a result."""
    of_result = result_in(file.id)
    return file.id if of_result is None else of_result[1]


def _shards(store: RedisStore, topics: Sequence[str]) -> Op[dict[str, list[ShardKeys]]]:
    """The shards in which these topics may have jobs. If the registry has lost a topic, its first shard still knows."""
    keys, known = store.session.keys, store.topics.known
    first = yield from shard_state.shard_counts(store.session, [keys.shard(topic, 0) for topic in topics])
    counts = [
        max(count, known[topic].reach if topic in known else 0) for topic, count in zip(topics, first, strict=True)
    ]
    return {
        topic: [keys.shard(topic, number) for number in range(count)]
        for topic, count in zip(topics, counts, strict=True)
    }


def _used(store: RedisStore, places: Sequence[tuple[StoredBody, ShardKeys]]) -> Op[set[str]]:
    """The paths of those files that a job in this shard names, or a result."""
    bodies = [(file, shard) for file, shard in places if result_in(file.id) is None]
    records = yield from lookup.records(store.session, [(shard, file.id) for file, shard in bodies])
    used = {
        file.path
        for (file, _), record in zip(bodies, records, strict=True)
        if record and _names(record_in(record).body, file)
    }
    of_results = [(file, shard, found) for file, shard in places if (found := result_in(file.id)) is not None]
    kept = yield from results.stored_results(store.session, [(shard, *found) for _, shard, found in of_results])
    return used | {
        file.path for (file, *_), one in zip(of_results, kept, strict=True) if one and _names(one.payload, file)
    }


def _names(stored: bytes, file: StoredBody) -> bool:
    """Whether the stored body, or result, has this file."""
    try:
        made = envelope_in(stored)
    except BodyDamaged:
        return True  # who can tell
    last = made.layers[-1].name if made.layers else ""
    return last == Offload.name and made.data.startswith(file.reference)
