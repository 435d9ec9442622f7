"""The page of a flow, and its buttons."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path, Request, Response

from ...job.after import NEVER_MS
from ...job.flow import FLOWS, FlowState, FlowStatus
from ...job.job import check_id
from ...link.session import Op
from ...operations.flows.one import cancel_flow, flow_status
from ...operations.flows.retry import retry_flow
from ...store import namespace
from ...store.flows import shards
from ...store.jobs import linked, lookup
from ...store.jobs.records import job_in
from ...store.redis_store import RedisStore
from ..api.flows import no_flow
from ..api.route import backend_of
from ..auth import Role
from .flow_chart import by_kind, chart_of, facts_of
from .page_routes import PageRoute, get, post, redirect
from .render import base_of, page, segment

router = APIRouter(route_class=PageRoute)
_FLOW = "/flows/{name:segment}"
_MOST_LIVE = 1_000
"""The page of a flow with more jobs is not read anew by itself: that reads each job that has not ended."""
_MOST_ROWS = 200
NamePath = Annotated[str, Path(max_length=255)]


@get(router, _FLOW, every_group=True)
async def flow_page(request: Request, name: NamePath) -> Response:
    backend = backend_of(request)
    store = await backend.store()
    found = await backend.do(flow_status(store, check_id(name)))
    if found is None:
        raise no_flow()
    times = await backend.do(_times(store, name))
    is_over = found.state in (FlowState.DONE, FlowState.FAILED, FlowState.CANCELLED)
    return page(
        request, "flow.html", name=name, flow=found, chart=chart_of(found.stages), is_over=is_over,
        times=times, totals=by_kind(_counts(found)), dead=found.count("dead"),
        facts=[facts_of(stage.counts) for stage in found.stages[:_MOST_ROWS]],
        is_live=not is_over and found.jobs <= _MOST_LIVE,
    )  # fmt: skip


def _counts(flow: FlowStatus) -> dict[str, int]:
    states = {state for stage in flow.stages for state in stage.counts}
    return {state: flow.count(state) for state in states}


class Times(NamedTuple):
    """When the flow's block had ended, and when all of its jobs had; None: not yet."""

    begun_ms: int | None
    ended_ms: int | None
    now_ms: int


def _times(store: RedisStore, name: str) -> Op[Times]:
    now_ms = yield from namespace.now_ms(store.session)
    for run in (yield from shards.found(store.session, store.topics, name)):
        (record,) = yield from lookup.records(store.session, [(run.shard, name)])
        if record:
            waited = yield from linked.dependencies(store.session, run.shard, name, record, 0)
            own = job_in(FLOWS, name, record)
            has_ended = own.due_ms != NEVER_MS
            return Times(own.created_ms, own.due_ms - waited.delay_ms if waited and has_ended else None, now_ms)
    return Times(None, None, now_ms)


@post(router, _FLOW + "/cancel", Role.PRODUCER, every_group=True)
async def flow_cancel(request: Request, name: NamePath) -> Response:
    backend = backend_of(request)
    if not await backend.do(cancel_flow(await backend.store(), name)):
        raise no_flow()
    return redirect(f"{base_of(request)}/flows/{segment(name)}?did=flow-cancelled")


@post(router, _FLOW + "/retry", every_group=True)
async def flow_retry(request: Request, name: NamePath) -> Response:
    """Sends all dead letters of the flow back."""
    backend = backend_of(request)
    count = await backend.do(retry_flow(await backend.store(), name))
    if count is None:
        raise no_flow()
    return redirect(f"{base_of(request)}/flows/{segment(name)}?did=flow-retried&n={count}")
