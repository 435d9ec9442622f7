"""Operations on flows: how one stands, and to cancel it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic_core import to_json

from ...job.flow import FlowState, FlowStatus
from ...operations.json_out import flow_json
from ..auth import Role
from ..problems import ProblemError
from .models.common import NAME
from .models.flows import FlowOut
from .route import JSON, Route, backend_of, operation

router = APIRouter(route_class=Route)
_FLOW = "/v1/flows/{name:segment}"
NamePath = Annotated[
    str,
    Path(
        description="The flow's name, percent-encoded.", max_length=255, examples=["report-7"], json_schema_extra=NAME
    ),
]
TimesQuery = Annotated[bool, Query(description="Also get how long its jobs took, and its critical path.")]


def no_flow() -> ProblemError:
    return ProblemError("no-flow", "it was forgotten a while after its end, or never existed")


def _response(found: FlowStatus) -> Response:
    return Response(to_json(flow_json(found)), media_type=JSON)


@operation(
    router, "GET", _FLOW, roles=(Role.PRODUCER, Role.WORKER, Role.VIEWER), tag="Flows", every_group=True,
    problems=["no-flow"], responses={200: {"description": "How it stands.", "model": FlowOut}},
)  # fmt: skip
async def get_flow(request: Request, name: NamePath, times: TimesQuery = False) -> Response:
    """Get how a flow stands, stage by stage.

    A flow may have jobs in any topic, so it takes a token for all topics and groups. The state of each job that has not
    ended is read: of a flow with 10,000 jobs that takes about 20 calls to Redis. With `times`, so are the rows that
    its topics' history has since it began, at most 10,000 and four for each of its jobs.
    """
    found = await (await backend_of(request).queue()).flow_status(name, times=times)
    if found is None:
        raise no_flow()
    return _response(found)


@operation(
    router, "POST", _FLOW + "/cancel", roles=(Role.PRODUCER,), tag="Flows", notable=True, every_group=True,
    problems=["no-flow"], responses={200: {"description": "It is cancelled; how it stands.", "model": FlowOut}},
)  # fmt: skip
async def cancel_flow(request: Request, name: NamePath) -> Response:
    """Cancel a flow.

    Its jobs that wait are cancelled, and attempts that run are aborted. Dead letters stay. From the answer on, no job
    of it starts. Safe to repeat, also if the answer was lost. A flow that is being built is withdrawn.
    """
    queue = await backend_of(request).queue()
    if not await queue.cancel_flow(name):
        raise no_flow()
    return _response(await queue.flow_status(name) or FlowStatus(name, FlowState.CANCELLED, ()))
