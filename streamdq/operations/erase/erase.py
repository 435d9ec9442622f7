"""Erases jobs, and what Redis keeps of those that have ended.

What leads to the rest goes last: first rows of the history, failures, results and taken ids, then the jobs, by whose
bodies the rest is found. Each step can be repeated. So a run that was killed is run again, and finds what it had left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ...errors import BodyUnreadable, UnknownTopic
from ...job.job import JobState
from ...keys import ShardKeys, candidate_shards
from ...link.session import Op, pause
from ...metrics import recorded
from ...process.logs import log
from ...store.history.history_reads import RawEntry, failures_at, rows_after
from ...store.history.rows import id_and_key_in
from ...store.jobs.members import member_in
from ...store.jobs.results import stored_results
from ...store.redis_store import RedisStore
from ...store.stream_entries import entries as entries_of
from ...times.durations import Duration, to_ms
from ..find.actions import ActionResult, erase_found
from ..find.conditions import SeenJob, Where
from ..find.search import Search
from ..find.shown import planned
from ..jobs.abort import abort as abort_job
from ..jobs.large_bodies import EndedJob, drop_ended, drop_results
from ..known import topic_names
from ..schedules.changes import unschedule
from ..schedules.read import schedules as all_schedules
from .report import Erased
from .wanted import Wanted, wanted_of

_ROWS, _IDS = 1_000, 200
_LOOK_S = 0.5
_PLACES = {
    JobState.WAITING: "jobs that wait for others", JobState.DELAYED: "delayed jobs", JobState.READY: "ready jobs",
    JobState.RUNNING: "running jobs", JobState.DEAD: "dead letters", JobState.DONE: "jobs of other groups",
    JobState.ENDED: "jobs of other groups",
}  # fmt: skip
_WHY: dict[ActionResult, str] = {
    "changed": "it has changed meanwhile: run this again",
    "refused": "an attempt is running: run this again when it has ended, or abort it",
}

Known = set[tuple[str, str]]
"""Ids and keys of a topic's jobs; a job without a key has ''."""


def erase(
    store: RedisStore,
    topic: str | None = None,
    *,
    key: str | None = None,
    where: Where | None = None,
    schedules: bool = False,
    abort: bool = False,
    wait: Duration = 0,
    dry_run: bool = False,
) -> Op[Erased]:
    """Erases all jobs with this ``key``, or for which the conditions ``where`` hold (as for ``find``), with their
    history, errors, results and taken ids, in all topics or in one. Redis alone: ``streamdq.erasure`` also covers
    archive, outbox and dumps. Safe to repeat: a run that was killed is completed by the next one.

    ``schedules``: also remove schedules whose body, URL or id fits; otherwise they are only reported. ``abort``: abort
    running jobs. ``wait``: for how long to wait for running jobs to end, to erase them as well. ``dry_run``: only
    count.

    Raises:
        InvalidInput: neither ``key`` nor ``where`` is given.
        UnknownTopic: there is no such topic.
        ServerUnavailable: run it again.
    """
    wait_s = to_ms(wait, "wait") / 1000
    erasure = Erasure(store, wanted_of(key, where), topic, schedules=schedules, abort=abort, dry_run=dry_run)
    yield from erasure.look()
    yield from erasure.erase_traces()
    yield from erasure.finish(wait_s)
    return erasure.reported()


class Erasure:
    """One run: what Redis has. ``known``: by topic, the jobs that are meant; other places may add to it."""

    def __init__(
        self,
        store: RedisStore,
        wanted: Wanted,
        topic: str | None = None,
        *,
        schedules: bool = False,
        abort: bool = False,
        dry_run: bool = False,
    ) -> None:
        self.store, self.wanted, self.topic, self.dry_run = store, wanted, topic, dry_run
        self.known: dict[str, Known] = {}
        self.report = Erased(dry_run)
        self._topics: list[str] = []
        self._schedules, self._abort = schedules, abort
        self._searches: list[Search] = []
        self._large: list[tuple[ShardKeys, EndedJob]] = []
        self._jobs: dict[tuple[ShardKeys, str], tuple[str, str | None]] = {}  # place and key of each
        self._open: dict[tuple[ShardKeys, str], ActionResult] = {}
        self._unreadable: dict[tuple[str, str], int] = {}  # by place and topic
        self._asked: dict[ShardKeys, set[str]] = {}

    # -- what there is

    def look(self) -> Op[None]:
        """Finds the jobs that are there."""
        self._topics = yield from topic_names(self.store, self.topic)
        self._searches, self._large, self._open, self._asked = [], [], {}, {}
        for topic in self._topics:
            try:
                yield from self._look_at(topic)
            except UnknownTopic:  # deleted meanwhile
                if self.topic is not None:
                    raise

    def _look_at(self, topic: str) -> Op[None]:
        search = Search(self.store, topic, self.wanted.criteria)
        known, bodies = self.known.setdefault(topic, set()), self.store.session.bodies
        while not search.ended:
            for shown, job in (yield from search.next_page()):
                known.add((job.id, job.key or ""))
                place = (shown.shard, shown.id)
                if place not in self._jobs:
                    self.report.add(_PLACES[job.state], found=1)
                    self._jobs[place] = _PLACES[job.state], job.key
                if bodies.blocks(job.raw_body):
                    self._large.append((shown.shard, EndedJob(topic, job.id, job.raw_body)))
        self._unreadable["jobs", topic] = search.unreadable
        self._searches.append(search)

    def means(self, place: str, topic: str, seen: SeenJob, json: Callable[[], bytes]) -> bool:
        """Whether a job that another place has is to be erased; then it is known from now on. One whose body can't be
        read here is, if it is known already.
        """
        if self.topic not in (None, topic):
            return False
        name, known = (seen.id, seen.key or ""), self.known.setdefault(topic, set())
        try:
            fits = self.wanted.fits(seen, json)
        except (BodyUnreadable, ValueError):
            fits = name in known
            if not fits:
                self._unreadable[place, topic] = self._unreadable.get((place, topic), 0) + 1
        if fits:
            known.add(name)
        return fits

    # -- what is left of ended jobs

    def erase_traces(self) -> Op[None]:
        """Erases what is kept of the known jobs beside the jobs themselves."""
        for topic in self._topics:
            for shard in self.store.topics.all_shards(topic):
                yield from self._erase_rows(shard, self.known.setdefault(topic, set()))
            yield from self._forget_known(topic)

    def _erase_rows(self, shard: ShardKeys, known: Known) -> Op[None]:
        """The rows of one shard, a page at a time. What a row alone leads to goes before it."""
        after = ""
        while page := (yield from rows_after(self.store.session, shard, after, _ROWS)):
            after = page[-1][0].decode()
            entries, ids = self._meant(page, known)
            yield from self._forget(shard, ids)
            for start in range(0, len(entries), _IDS):
                part = entries[start : start + _IDS]
                rows, failures = yield from self._erase_part(shard, part)
                self._count("history", rows)
                self._count("failures", failures)

    def _erase_part(self, shard: ShardKeys, entries: Sequence[str]) -> Op[tuple[int, int]]:
        if not self.dry_run:
            return (yield from self.store.scripts.erase_rows(shard, entries))
        failures = yield from failures_at(self.store.session, [(shard, entry) for entry in entries])
        return len(entries), sum(failure is not None for failure in failures)

    def _meant(self, page: Sequence[RawEntry], known: Known) -> tuple[list[str], list[str]]:
        """Those of the rows that are about a known job, or meant by their id and key; and the ids of their jobs."""
        entries, ids = [], []
        for entry, fields in page:
            found = id_and_key_in(fields[1])
            if found is not None and (found in known or self.wanted.fits_row(*found)):
                known.add(found)
                entries.append(entry.decode())
                ids.append(found[0])
        return entries, ids

    def _forget_known(self, topic: str) -> Op[None]:
        settings = self.store.topics.settings_of(topic)
        by_shard: dict[int, list[str]] = {}
        for id, key in self.known.get(topic, ()):
            for number in candidate_shards(id, settings.shards, settings.former, key or None):
                by_shard.setdefault(number, []).append(id)
        for number, ids in by_shard.items():
            yield from self._forget(self.store.session.keys.shard(topic, number), ids)

    def _forget(self, shard: ShardKeys, ids: Iterable[str]) -> Op[None]:
        """Results and taken ids of jobs that are gone."""
        asked = self._asked.setdefault(shard, set())
        new = sorted(set(ids) - asked)
        asked.update(new)
        for start in range(0, len(new), _IDS):
            part = new[start : start + _IDS]
            if not self.dry_run:
                yield from self._drop_results(shard, part)
            results, taken = yield from self.store.scripts.forget_ended(shard, part, only_count=self.dry_run)
            self._count("results", results)
            self._count("taken ids", taken)

    def _drop_results(self, shard: ShardKeys, ids: Sequence[str]) -> Op[None]:
        """The files of results that are too large for Redis."""
        session = self.store.session
        if session.bodies.files is None:
            return
        places = [(group, id) for id in ids for group in self.store.topics.settings_of(shard.topic).results]
        found = yield from stored_results(session, [(shard, *place) for place in places])
        kept = [(*place, one.payload) for place, one in zip(places, found, strict=True) if one is not None]
        yield from drop_results(session, shard.topic, kept)

    def _count(self, place: str, count: int) -> None:
        if count:
            self.report.add(place, count, 0 if self.dry_run else count)

    # -- the jobs

    def _erase_jobs(self) -> Op[None]:
        """Erases the jobs that were found, and then what those that went on or ended meanwhile have left."""
        if self.dry_run:
            return
        results: list[tuple[ShardKeys, str, ActionResult]] = []
        for search in self._searches:
            entries = yield from self._entries(search.topic)
            yield from erase_found(search, entries, lambda *result: results.append(result))
            # What is still in a ready stream, of jobs that ended before, or came due since we looked.
            entries = yield from self._entries(search.topic)
            ended = {shard: dict.fromkeys(of_shard, "") for shard, of_shard in entries.items()}
            yield from erase_found(planned(self.store, search.topic, ended), entries, lambda *_: None)
        for shard, id, result in results:
            if result == "done":
                self.report.add(self._jobs[shard, id][0], erased=1)
            elif result != "gone":
                self._open[shard, id] = result
        yield from drop_ended(self.store.session, self._large)
        if self._abort:
            yield from self._abort_running()
        if any(result != "done" for _, _, result in results):
            self._asked = {}
            yield from self.erase_traces()

    def _entries(self, topic: str) -> Op[dict[ShardKeys, dict[str, list[str]]]]:
        """By shard and id, the entries of known jobs in ready streams. Those of ended jobs may stay there until a
        worker drops them.
        """
        known, found = {id for id, _ in self.known.get(topic, ())}, dict[ShardKeys, dict[str, list[str]]]()
        for shard in self.store.topics.shards(topic) if known else ():
            groups = self.store.topics.settings_of(topic).group_names
            for group, stream in [("", shard.ready), *((name, shard.ready_of(name)) for name in groups)]:
                start = "-"
                while start:
                    (page,) = yield from entries_of(self.store.session, [(stream, start)], _ROWS)
                    start = f"({page[-1].id}" if page else ""
                    for entry in page:
                        if (id := member_in(entry.value).id) in known:
                            found.setdefault(shard, {}).setdefault(id, []).append(f"{group}|{entry.id}")
        return found

    def _abort_running(self) -> Op[None]:
        for (shard, id), result in self._open.items():
            if result == "refused":
                yield from abort_job(self.store, shard.topic, id, key=self._jobs[shard, id][1])

    def keep_jobs(self, why: str) -> None:
        """Leaves the jobs that were found as they are."""
        by_topic: dict[str, list[str]] = {}
        for shard, id in self._jobs:
            by_topic.setdefault(shard.topic, []).append(id)
        for topic, ids in by_topic.items():
            self.report.leave("jobs", topic, why, ids)
        self._searches, self._large = [], []

    def _erase_schedules(self) -> Op[None]:
        """Removes schedules if that is asked for, and reports them otherwise."""
        found = yield from all_schedules(self.store, self.topic)
        for one in found:
            if not self.wanted.fits(SeenJob(one.id, one.url, None), partial(getattr, one, "raw_body")):
                continue
            self.report.add("schedules", found=1)
            if self._schedules and not self.dry_run:
                yield from unschedule(self.store, one.topic, one.id)
                self.report.add("schedules", erased=1)
            elif not self._schedules:
                self.report.leave("schedules", one.topic, "schedules are removed only if asked for", [one.id])

    def finish(self, wait_s: float) -> Op[None]:
        """Erases what is left to lead to the rest. ``wait_s``: for how long to wait for jobs that run."""
        yield from self._erase_schedules()
        yield from self._erase_jobs()
        until = time.monotonic() + wait_s
        while self._open and time.monotonic() < until:
            yield from pause(_LOOK_S)
            yield from self.look()
            yield from self.erase_traces()
            yield from self._erase_jobs()
        for topic in self._topics if self.wanted.is_key_alone else ():
            yield from self._forget_key(topic, self.wanted.criteria.key or "")

    def _forget_key(self, topic: str, key: str) -> Op[None]:
        settings = self.store.topics.settings_of(topic)
        for number in candidate_shards("", settings.shards, settings.former, key):
            shard = self.store.session.keys.shard(topic, number)
            found = yield from self.store.scripts.forget_key(shard, key, only_count=self.dry_run)
            self._count("settings of the key", found)

    def reported(self) -> Erased:
        """The report, complete. The log and the metrics get its figures, and nothing of the person."""
        report = self.report
        for (place, topic), count in self._unreadable.items():
            report.leave(place, topic, "their bodies can't be read here: run this with their keys", count=count)
        by_reason: dict[tuple[str, ActionResult], list[str]] = {}
        for (shard, id), result in self._open.items():
            by_reason.setdefault((shard.topic, result), []).append(id)
        for (topic, result), ids in by_reason.items():
            report.leave("jobs", topic, _WHY.get(result, result), ids)
        if not report.dry_run:
            for place, amount in report.places.items():
                kind = place.partition(" ")[0] if place.startswith("dump ") else place
                recorded.erased(self.store.session.keys.namespace, kind, amount.erased)
            log.info(
                "erased what is kept of a person or customer", topics=len(self._topics),
                found=report.found, erased=sum(amount.erased for amount in report.places.values()),
                remaining=sum(one.count for one in report.remaining),
            )  # fmt: skip
        return report
