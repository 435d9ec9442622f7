"""Tools that look: figures, jobs, what became of them, dead letters, schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from pydantic import Field

from ..http.api.models.dead_letters import DeadOut
from ..http.api.models.flows import FlowOut
from ..http.api.models.jobs import JobHistoryOut, JobOut
from ..http.api.models.schedules import SchedulesOut
from .answers import MOST, JobsPage, StatsPage, jobs_page, place_in, stats_page, with_bodies
from .api import Api

Ctx = Context[Any, Any]
Topic = Annotated[str, Field(description="The topic, such as order.close.", min_length=1, max_length=255)]
Id = Annotated[str, Field(description="The job's id.", min_length=1, max_length=255)]
Group = Annotated[str, Field(description="The consumer group.", max_length=64)]
Key = Annotated[
    str | None, Field(description="The job's key, if it has one; it is also found without.", max_length=200)
]
Limit = Annotated[int, Field(description="How many at most.", ge=1, le=MOST)]
After = Annotated[str, Field(description="The `next` of the page before.", max_length=5100)]
Time = Annotated[str | None, Field(description="A time, `now`, or one counted from now: `10m`, `-1h`.", max_length=64)]
State = Literal["waiting", "blocked", "delayed", "ready", "running", "dead", "done", "ended"]
Conditions = Annotated[
    list[Annotated[str, Field(max_length=2000)]] | None,
    Field(description="Conditions on fields or the body, such as `body.user=7` or `attempt>3`.", max_length=10),
]
_EVENTS = 50


@dataclass(frozen=True, slots=True)
class Reads:
    """Each public method is a tool; its docstring is the tool's description."""

    api: Api
    show_bodies: bool

    async def _get(self, context: Ctx, *path: str, **query: Any) -> Any:
        return with_bodies(await self.api.ask(context, "GET", ("v1", *path), query), shown=self.show_bodies)

    async def stats(
        self,
        context: Ctx,
        prefix: Annotated[str, Field(description="Only topics whose names begin with this.", max_length=255)] = "",
        limit: Limit = 20,
        after: After = "",
    ) -> StatsPage:
        """How many jobs wait, run and are dead: in total, and in each topic and group. Begin here."""
        return stats_page(await self._get(context, "stats"), prefix, limit, after)

    async def find_jobs(
        self,
        context: Ctx,
        topic: Topic,
        state: State | None = None,
        group: Annotated[str | None, Field(max_length=64)] = None,
        due_from: Time = None,
        due_until: Time = None,
        key: Key = None,
        id_prefix: Annotated[str | None, Field(description="The beginning of their ids.", max_length=254)] = None,
        where: Conditions = None,
        limit: Limit = 20,
        after: After = "",
    ) -> JobsPage:
        """Search a topic's jobs by state, due time, key, id or body. An empty page may have a next one."""
        skipped, cursor = place_in(after)
        found = await self._get(
            context, "topics", topic, "find", state=state, group=group, due_from=due_from, due_until=due_until,
            key=key, id_prefix=id_prefix, where=where, limit=1, after=cursor,
        )  # fmt: skip
        return jobs_page(found, skipped, limit, cursor)

    async def get_job(self, context: Ctx, topic: Topic, id: Id, key: Key = None) -> JobOut:
        """One job: its state in each group, when it is due, its last error, and the jobs that it waits for."""
        return JobOut.model_validate(await self._get(context, "topics", topic, "jobs", id, key=key))

    async def job_history(self, context: Ctx, topic: Topic, id: Id) -> JobHistoryOut:
        """The past attempts of a job with their errors, also after it has ended: the latest 50."""
        found = JobHistoryOut.model_validate(await self._get(context, "topics", topic, "jobs", id, "history"))
        complete = found.complete and len(found.events) <= _EVENTS
        return JobHistoryOut(events=found.events[-_EVENTS:], complete=complete)

    async def get_flow(
        self,
        context: Ctx,
        name: Annotated[str, Field(description="The flow's name.", min_length=1, max_length=255)],
    ) -> FlowOut:
        """A flow, jobs that start together: its state, and of each stage how many jobs are in which state."""
        return FlowOut.model_validate(await self._get(context, "flows", name))

    async def list_dead(
        self, context: Ctx, topic: Topic, group: Group = "default", limit: Limit = 20, after: After = ""
    ) -> DeadOut:
        """The dead letters of a group, the longest dead first: jobs that were given up, and why."""
        found = await self._get(context, "topics", topic, "dead", group=group, limit=limit, after=after)
        return DeadOut.model_validate(found)

    async def list_schedules(
        self,
        context: Ctx,
        topic: Annotated[str | None, Field(description="One topic instead of all.", max_length=255)] = None,
        limit: Limit = 20,
        after: After = "",
    ) -> SchedulesOut:
        """Schedules: when they run, in words, and what came of the last occurrence."""
        return SchedulesOut.model_validate(await self._get(context, "schedules", topic=topic, limit=limit, after=after))
