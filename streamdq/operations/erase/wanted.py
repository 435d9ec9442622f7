"""Whose data an erasure is about: the key of jobs, or conditions as a search takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic_core import from_json

from ...errors import InvalidInput
from ...job.job import Job
from ..find.conditions import SeenJob, Where
from ..find.criteria import Criteria, criteria_of


@dataclass(frozen=True)
class Wanted:
    """What is to be erased."""

    criteria: Criteria

    @property
    def is_of_rows(self) -> bool:
        """Whether id and key are enough to decide. Rows of the history have nothing else of a job."""
        return all(condition.path[0] in ("id", "key") for condition in self.criteria.conditions)

    @property
    def is_key_alone(self) -> bool:
        return not self.criteria.conditions

    def fits(self, seen: Job | SeenJob, json: Callable[[], bytes]) -> bool:
        """Whether a job that is kept elsewhere is meant. ``json``: reads its body, if that is needed.

        Raises:
            BodyUnreadable
        """
        wanted = self.criteria
        if wanted.key not in (None, seen.key):
            return False
        if not all(one.holds_for(seen) for one in wanted.conditions if not one.of_body):
            return False
        if not wanted.of_body:
            return True
        body = from_json(json())
        return all(one.holds_in(body) for one in wanted.of_body)

    def fits_row(self, id: str, key: str) -> bool:
        """The same for a row of the history."""
        return self.is_of_rows and self.fits(SeenJob(id, None, key or None), bytes)


def wanted_of(key: str | None, where: Where | None) -> Wanted:
    """What is to be erased, checked.

    Raises:
        InvalidInput: it would be everything.
    """
    criteria = _of_key(criteria_of(key=key, where=where))
    if criteria.key is None and not criteria.conditions:
        raise InvalidInput("erase: pass key or where; to delete all of a topic, delete the topic")
    return Wanted(criteria)


def _of_key(criteria: Criteria) -> Criteria:
    """A condition that names the key says the same as ``key``: then what is kept of the key itself is erased, too."""
    one = criteria.conditions[0] if len(criteria.conditions) == 1 and criteria.key is None else None
    if one is None or one.path != ("key",) or one.operator != "=" or not isinstance(one.value, str):
        return criteria
    return criteria_of(key=one.value)
