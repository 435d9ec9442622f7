"""The page of a flow, and its buttons."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from ...job.flow import FlowState, FlowStatus
from ...job.job import check_id
from ...operations.flows.one import cancel_flow, flow_status
from ...operations.flows.retry import retry_flow
from ...store import namespace
from ..api.flows import no_flow
from ..api.route import backend_of
from ..auth import Role
from .flow_chart import by_kind, chart_of, facts_of, took
from .flow_path import path_of
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
    found = await backend.do(flow_status(store, check_id(name), times=True))
    if found is None:
        raise no_flow()
    now_ms, times = await backend.do(namespace.now_ms(store.session)), found.times
    is_over = found.state in (FlowState.DONE, FlowState.FAILED, FlowState.CANCELLED)
    return page(
        request, "flow.html", name=name, flow=found, chart=chart_of(found.stages, times), is_over=is_over,
        times=times, now_ms=now_ms, path=path_of(times, now_ms) if times and times.path else None,
        totals=by_kind(_counts(found)), dead=found.count("dead"),
        rows=[(facts_of(one.counts), took(times.stages[n]) if times else "")
              for n, one in enumerate(found.stages[:_MOST_ROWS])],
        has_medians=times is not None and any(one.known > 1 for one in times.stages),
        is_live=not is_over and found.jobs <= _MOST_LIVE,
    )  # fmt: skip


def _counts(flow: FlowStatus) -> dict[str, int]:
    states = {state for stage in flow.stages for state in stage.counts}
    return {state: flow.count(state) for state in states}


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
