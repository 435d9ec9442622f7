"""Workers' operations, for languages that have no worker: take a job, and end its attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic_core import to_json

from .. import take as engine
from ..claims import Held
from ..connection import AsyncLink, Command
from ..durations import to_ms
from ..errors import InvalidInput
from ..loop import cancel_and_wait
from ..operations import Operations
from ..session import Op, arun
from .auth import Role
from .backend import Backend
from .jobs import job_bytes
from .models import BuryIn, ClaimIn, ClaimOut, FailIn, TouchIn
from .problems import ProblemError
from .route import JSON, Route, TopicPath, backend_of, operation
from .seal import pack, seal, unpack, unseal

router = APIRouter(route_class=Route)
MAX_WAIT_S = 60
_WORKER = (Role.WORKER,)
_ENDED = {204: {"description": "Done."}}
_PURPOSE = "claim"


@operation(
    router, "POST", "/v1/topics/{topic:segment}/take", roles=_WORKER, tag="Claims",
    problems=["unknown-group", "too-busy"],
    responses={
        200: {"description": "A job, claimed for the caller.", "model": ClaimOut},
        204: {"description": "None was ready in time."},
    },
)  # fmt: skip
async def take_job(
    request: Request,
    topic: TopicPath,
    group: Annotated[str, Query(description="The consumer group.", max_length=64)] = "default",
    timeout: Annotated[
        str, Query(description=f"How long to wait for a job, at most {MAX_WAIT_S}s.", examples=["30s"], max_length=20)
    ] = "0",
) -> Response:
    """Claim one job, waiting for it if need be.

    The answer comes as soon as a job is ready. It must be finished, failed, buried or released within its TTR, or it
    is delivered again. A caller that goes away while it waits loses nothing. A topic that is not there is made.
    """
    backend = backend_of(request)
    wait_ms = to_ms(timeout, "timeout")
    if wait_ms > MAX_WAIT_S * 1000:
        raise InvalidInput(f"timeout: at most {MAX_WAIT_S}s; ask again for more")
    if backend.takes >= backend.http.max_takes:
        raise ProblemError("too-busy", f"{backend.takes} requests wait for a job already")
    secret = await backend.secret()
    backend.takes += 1
    try:
        held = await _take(request, backend, topic, group, wait_ms / 1000)
    finally:
        backend.takes -= 1
    if held is None:
        return Response(status_code=204)
    queue = await backend.queue()
    claim = seal(secret, _PURPOSE, pack(held, queue._operations.session.consumer))
    rest = {"claim": claim, "group": group, "ttr_ms": held.ttr_ms}
    return Response(to_json(rest)[:-1] + b',"job":' + job_bytes(held.job) + b"}", media_type=JSON)


async def _take(request: Request, backend: Backend, topic: str, group: str, wait_s: float) -> Held | None:
    """As Queue.take; ends early when the caller leaves or the server stops, and what was claimed goes back."""
    queue = await backend.queue()
    claim = await queue.take(topic, group, 0)
    if claim is not None or wait_s == 0:
        return None if claim is None else claim._held
    ends = [asyncio.create_task(_left(request)), asyncio.create_task(backend.stopping.wait())]
    link = _Asked(queue._link, ends)
    try:
        held = await arun(link, engine.take(queue._operations, topic, group, wait_s, link.wanted))  # type: ignore[arg-type]
        if held is not None and not link.wanted():
            await backend.do(engine.release(queue._operations, held))
            return None
        return held
    finally:
        await cancel_and_wait(ends)


class _Asked:
    """A link for as long as somebody asks: a read that waits ends with the first of ``ends``, as if nothing had come.
    All else is carried out: a claim whose reply nobody hears would hold its job until the TTR has passed.
    """

    def __init__(self, link: AsyncLink, ends: list[asyncio.Task[Any]]) -> None:
        self._link = link
        self._ends = ends

    def wanted(self) -> bool:
        return not any(end.done() for end in self._ends)

    async def send(self, commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        if not blocking:
            return await self._link.send(commands, timeout_s)
        reading = asyncio.create_task(self._link.send(commands, timeout_s, blocking=True))
        try:
            await asyncio.wait([reading, *self._ends], return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else [None] * len(commands)
        finally:
            await cancel_and_wait([reading])


async def _left(request: Request) -> None:
    """Returns when the caller has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _held(backend: Backend, token: str) -> Held:
    values = unseal(await backend.secret(), _PURPOSE, token)
    if values is None:  # perhaps the secret was lost with Redis's data, and another server made a new one
        values = unseal(await backend.secret(renew=True), _PURPOSE, token)
    if values is None:
        raise InvalidInput("claim: this is none that take gave; send it back unchanged")
    return unpack(await backend.operations(), values)


async def _end(request: Request, claim: ClaimIn, how: Callable[[Operations, Held], Op[None]]) -> Response:
    backend = backend_of(request)
    held = await _held(backend, claim.claim)
    await backend.do(how(await backend.operations(), held))
    return Response(status_code=204)


_ending = partial(operation, router, "POST", roles=_WORKER, takes=JSON, tag="Claims", status=204, responses=_ENDED)
_STALE, _STALE_OR_UNKNOWN = ["stale-claim"], ["stale-claim", "unknown-topic"]


@_ending("/v1/claims/finish", problems=_STALE)
async def finish_claim(request: Request, claim: ClaimIn) -> Response:
    """The job is done, for this group."""
    return await _end(request, claim, engine.finish)


@_ending("/v1/claims/fail", problems=_STALE_OR_UNKNOWN)
async def fail_claim(request: Request, claim: FailIn) -> Response:
    """The attempt failed: the next step of the retry schedule.

    No step left: the job is buried, among the dead letters.
    """
    return await _end(request, claim, lambda ops, held: engine.fail(ops, held, claim.error, claim.delay))


@_ending("/v1/claims/bury", problems=_STALE_OR_UNKNOWN)
async def bury_claim(request: Request, claim: BuryIn) -> Response:
    """The job is given up: among the dead letters until it is kicked or purged."""
    return await _end(request, claim, lambda ops, held: engine.bury(ops, held, claim.reason))


@_ending("/v1/claims/release", problems=_STALE)
async def release_claim(request: Request, claim: ClaimIn) -> Response:
    """Hand the job back unfinished; the attempt does not count."""
    return await _end(request, claim, engine.release)


@_ending("/v1/claims/touch", problems=_STALE_OR_UNKNOWN)
async def touch_claim(request: Request, claim: TouchIn) -> Response:
    """The claim's TTR starts again, or another one does."""
    return await _end(request, claim, lambda ops, held: engine.touch(ops, held, claim.ttr))
