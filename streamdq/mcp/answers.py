"""What tools answer: as over HTTP, in bounded pages, and without bodies unless they are wanted."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, Field

from ..http.api.models.find import FoundOut
from ..http.api.models.jobs import JobOut
from ..http.api.models.topics import StatsOut, TopicStatsOut

MOST = 100
MAX_BODY_CHARS = 4000
HIDDEN = "hidden: this server shows no bodies; it does if it is started with --show-bodies"


class TopicFigures(TopicStatsOut):
    """The figures of one topic."""

    topic: str


class StatsPage(BaseModel):
    """Totals of all topics, and the figures of some."""

    delayed: int
    ready: int
    running: int
    dead: int
    topics: list[TopicFigures]
    next: Annotated[str | None, Field(description="Pass it as `after` to get the following page; null on the last.")]


class JobsPage(BaseModel):
    """Jobs of a search."""

    jobs: list[JobOut]
    next: Annotated[
        str | None, Field(description="Pass it as `after`, with the same criteria, to go on; null at the end.")
    ]
    looked: Annotated[int, Field(description="How many jobs were looked at for this page.")]
    total: Annotated[int, Field(description="About how many jobs the whole search looks at.")]
    unreadable: Annotated[
        int, Field(description="How many bodies can't be read here; they match no condition on them.")
    ]


class Done(BaseModel):
    """What a change has done."""

    done: Annotated[str, Field(description="In words.")]
    count: Annotated[int, Field(description="To how many jobs or topics.")] = 1


def stats_page(found: Any, prefix: str, limit: int, after: str) -> StatsPage:
    """Topics in the order of their names."""
    stats = StatsOut.model_validate(found)
    names = sorted(name for name in stats.topics if name.startswith(prefix) and name > after)
    shown = [TopicFigures(topic=name, **stats.topics[name].model_dump()) for name in names[:limit]]
    following = names[limit - 1] if len(names) > limit else None
    totals = stats.model_dump(exclude={"topics"})
    return StatsPage(topics=shown, next=following, **totals)


def jobs_page(found: Any, skipped: int, limit: int, after: str) -> JobsPage:
    """Some of the jobs of an answer. ``next`` is where the search goes on, and how many jobs to skip there: an answer
    may have more jobs than a page.
    """
    answer = FoundOut.model_validate(found)
    shown = answer.jobs[skipped : skipped + limit]
    has_more = len(answer.jobs) > skipped + limit
    following = f"{skipped + limit}@{after}" if has_more else answer.next and f"0@{answer.next}"
    return JobsPage(
        jobs=[JobOut(**job.model_dump(exclude={"as_shown"})) for job in shown], next=following or None,
        looked=answer.looked, total=answer.total, unreadable=answer.unreadable,
    )  # fmt: skip


def place_in(after: str) -> tuple[int, str]:
    """How many jobs to skip, and the API's own cursor."""
    skipped, at, cursor = after.partition("@")
    return (int(skipped), cursor) if at and skipped.isascii() and skipped.isdigit() and len(skipped) < 7 else (0, after)


def with_bodies(found: Any, *, shown: bool) -> Any:
    """The answer with bodies hidden or, of those that are long, left out."""
    if isinstance(found, list):
        return [with_bodies(one, shown=shown) for one in found]
    if not isinstance(found, dict):
        return found
    rest = {name: with_bodies(value, shown=shown) for name, value in found.items() if name != "body"}
    if "body" not in found:
        return rest
    if not shown:
        return rest | {"body": None, "body_unreadable": HIDDEN}
    size = len(json.dumps(found["body"]))
    if size > MAX_BODY_CHARS:
        return rest | {
            "body": None,
            "body_unreadable": f"left out: it has {size} characters, at most {MAX_BODY_CHARS} are shown",
        }
    return rest | {"body": found["body"]}
