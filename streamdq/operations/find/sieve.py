"""Which of a script's matches are what a search looks for: the conditions that need a job's body, or all of it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import from_json

from ...errors import BodyUnreadable
from ...job.job import ENCODED, Job
from ...link.session import Op
from ...store.jobs.records import body_in, job_in
from ...store.redis_store import RedisStore
from ...store.replies import Match
from ..jobs.get import job_of
from ..jobs.large_bodies import fetched
from .criteria import Criteria


class Sieve:
    """What a search looks for, beside what the script has looked for."""

    def __init__(self, store: RedisStore, topic: str, criteria: Criteria) -> None:
        self._bodies = store.session.bodies
        self._topic = topic
        self._criteria = criteria
        self.unreadable = 0  # bodies that can't be read here

    def sifted(self, matches: Sequence[Match], jobs: bool) -> Op[list[tuple[Match, Job | None]]]:
        """Those of the script's matches that are what is looked for; with the jobs, as far as they were needed."""
        plain: list[tuple[Match, Job | None]] = []
        if self._criteria.of_body_alone and not jobs:
            plain, matches = self._sifted_plain(matches)
        out = [(match, job) for match in matches if (job := self._job(match)) is None or self._fits(job)]
        if not self._criteria.of_body:
            return out
        yield from fetched([job for _, job in out if job is not None])
        return plain + [(match, job) for match, job in out if job is not None and self._has_body(job)]

    def _sifted_plain(self, matches: Sequence[Match]) -> tuple[list[tuple[Match, Job | None]], list[Match]]:
        """Those whose bodies are JSON that has what is looked for; and those whose bodies are encoded. Without jobs,
        which would take half of the search's time.
        """
        found: list[tuple[Match, Job | None]] = []
        encoded = []
        for match in matches:
            body = body_in(match.record)
            if body[:1] == ENCODED:
                encoded.append(match)
            elif self._holds_in(body):
                found.append((match, None))
        return found, encoded

    def _job(self, match: Match) -> Job | None:
        """As far as the script has returned it; None: the script could tell alone."""
        if match.found:
            return job_of(self._topic, match.id, match.found, self._bodies)
        return job_in(self._topic, match.id, match.record, self._bodies) if match.record else None

    def _fits(self, job: Job) -> bool:
        wanted = self._criteria
        return wanted.key in (None, job.key) and all(one.holds_for(job) for one in wanted.of_jobs)

    def _has_body(self, job: Job) -> bool:
        try:
            json = job.json
        except BodyUnreadable:
            self.unreadable += 1
            return False
        return self._holds_in(json)

    def _holds_in(self, json: bytes) -> bool:
        try:
            body = from_json(json)
        except ValueError:
            self.unreadable += 1
            return False
        return all(one.holds_in(body) for one in self._criteria.of_body)
