"""Tools that change something; a server has them only with --allow-changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ..http.api.models.jobs import JobOut
from .answers import Done, with_bodies
from .api import Api
from .reads import Ctx, Group, Id, Key, Topic

Delay = Annotated[str | None, Field(description="From now, such as `30m`. Instead of `at`.", max_length=100)]
At = Annotated[str | None, Field(description="A moment with a zone, such as 2030-01-31T09:00:00+08:00.", max_length=64)]


@dataclass(frozen=True, slots=True)
class Changes:
    """Each public method is a tool; its docstring is the tool's description."""

    api: Api
    show_bodies: bool

    async def _post(self, context: Ctx, *path: str, body: dict[str, Any] | None = None, **query: Any) -> Any:
        return await self.api.ask(context, "POST", ("v1", "topics", *path), query, body)

    def _job(self, found: Any) -> JobOut:
        return JobOut.model_validate(with_bodies(found, shown=self.show_bodies))

    async def enqueue_job(
        self,
        context: Ctx,
        topic: Topic,
        id: Id,
        body: Annotated[dict[str, Any], Field(description="The data for the handler.")],
        delay: Delay = None,
        at: At = None,
        key: Annotated[str | None, Field(description="The customer or tenant that it is for.", max_length=200)] = None,
    ) -> JobOut:
        """Enqueue a job under an id. The same call again changes nothing; an id that another job has is refused."""
        content = {"body": body, "delay": delay, "at": at, "key": key}
        return self._job(await self.api.ask(context, "PUT", ("v1", "topics", topic, "jobs", id), {}, content))

    async def cancel_job(self, context: Ctx, topic: Topic, id: Id, key: Key = None) -> Done:
        """Cancel a waiting job in all groups permanently. A running one is refused: use abort_job."""
        await self.api.ask(context, "DELETE", ("v1", "topics", topic, "jobs", id), {"key": key})
        return Done(done=f"cancelled {id}: no new attempt starts")

    async def abort_job(self, context: Ctx, topic: Topic, id: Id, key: Key = None) -> Done:
        """Stop a job permanently, also while it runs. A waiting one is cancelled."""
        found = await self._post(context, topic, "jobs", id, "abort", key=key)
        is_over = found["result"] == "cancelled"
        return Done(done=f"{id} is cancelled" if is_over else f"{id} is told to stop; it ends as cancelled")

    async def reschedule_job(
        self, context: Ctx, topic: Topic, id: Id, delay: Delay = None, at: At = None, key: Key = None
    ) -> JobOut:
        """Give a waiting job a new due time: `delay` from now, or `at`."""
        return self._job(
            await self._post(context, topic, "jobs", id, "reschedule", body={"delay": delay, "at": at}, key=key)
        )

    async def kick_dead(
        self,
        context: Ctx,
        topic: Topic,
        ids: Annotated[
            list[Annotated[str, Field(max_length=255)]], Field(description="At most 100.", min_length=1, max_length=100)
        ],
        group: Group = "default",
    ) -> Done:
        """Send dead letters back, so that they run again at once. Do it when the cause is mended."""
        found = await self._post(context, topic, "dead", "kick", body={"ids": ids, "group": group})
        return Done(done=f"{found['count']} of {len(ids)} run again", count=found["count"])

    async def pause_topic(self, context: Ctx, topic: Topic) -> Done:
        """Start no more jobs of a topic until it is resumed. Running ones go on."""
        await self._post(context, topic, "pause")
        return Done(done=f"{topic} is paused")

    async def resume_topic(self, context: Ctx, topic: Topic) -> Done:
        """Let the jobs of a paused topic start again; what became due meanwhile starts at once."""
        await self._post(context, topic, "resume")
        return Done(done=f"{topic} is resumed")
