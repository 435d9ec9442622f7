"""Workers' operations over HTTP: take a job, and end or extend its claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic_core import to_json

from ...errors import InvalidInput
from ...job.retry import Snooze
from ...link.session import Op
from ...operations.attempts import take as engine
from ...operations.attempts.claimed import ClaimedJob
from ...operations.attempts.ends import AttemptResult
from ...process.loop import cancel_and_wait
from ...queue import held_by
from ...store.redis_store import RedisStore
from ...times.durations import to_ms
from ..audit_log import about
from ..auth import Role
from ..backend import Backend, left
from ..problems import ProblemError
from ..signing import pack, unpack
from .jobs import job_bytes
from .models.claims import BuryIn, ClaimIn, ClaimOut, EndedOut, FailIn, FinishIn, SnoozeIn, TouchIn
from .route import JSON, Route, TopicPath, backend_of, check_group_scope, may_still, operation, who_asks

router = APIRouter(route_class=Route)
MAX_WAIT_S = 60
_WORKER = (Role.WORKER,)


@operation(
    router, "POST", "/v1/topics/{topic:segment}/take", roles=_WORKER, tag="Claims",
    problems=["unknown-topic", "unknown-group", "too-busy"],
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
    """Claim one job, and wait for it if necessary.

    The answer comes as soon as a job is ready. Finish, fail, bury or release the job within its TTR, or it is delivered
    again. If the caller disconnects while it waits, no job is lost.
    """
    backend = backend_of(request)
    check_group_scope(who_asks(request), group)
    wait_ms = to_ms(timeout, "timeout")
    if wait_ms > MAX_WAIT_S * 1000:
        raise InvalidInput(f"timeout: at most {MAX_WAIT_S}s; repeat the request to wait longer")
    await backend.claims.secrets()  # a server that can't sign takes no job
    held = await _take(request, backend, topic, group, wait_ms / 1000)
    if held is None:
        return Response(status_code=204)
    about(request, id=held.job.id, group=group)
    consumer = (await backend.store()).session.consumer
    claim = await backend.claims.seal(pack(held, consumer))
    rest = {"claim": claim, "group": group, "ttr_ms": held.ttr_ms, "encrypted": held.job.is_hidden}
    return Response(to_json(rest)[:-1] + b',"job":' + job_bytes(held.job) + b"}", media_type=JSON)


async def _take(request: Request, backend: Backend, topic: str, group: str, wait_s: float) -> ClaimedJob | None:
    """Like Queue.take, but ends early if the caller leaves or the server stops. If the token is revoked or expires
    meanwhile, the caller gets no job.
    """
    claim = await (await backend.queue()).take(topic, group, 0)
    if claim or wait_s == 0:
        return held_by(claim) if claim else None
    if backend.takes >= backend.http.max_takes:
        raise ProblemError("too-busy", f"{backend.takes} requests wait for a job already")
    ends = [asyncio.create_task(left(request)), asyncio.create_task(backend.stopping.wait())]

    def wanted() -> bool:
        return not any(end.done() for end in ends) and may_still(request)

    taking = backend.begin(_claim(backend, topic, group, wait_s, wanted))
    try:
        await asyncio.wait([taking, *ends], return_when=asyncio.FIRST_COMPLETED)
        return taking.result() if taking.done() else None
    finally:
        await cancel_and_wait(ends)


async def _claim(
    backend: Backend, topic: str, group: str, wait_s: float, wanted: Callable[[], bool]
) -> ClaimedJob | None:
    """Claims a job; hands it back if it is not wanted any more. When the caller leaves, a read under way still runs to
    its end, 5 s at most: if it were cut off, a job that Redis delivers at that moment would be stuck until its TTR has
    passed.
    """
    store = await backend.store()
    held = await backend.do(engine.take(store, topic, group, wait_s, wanted))
    if held is not None and not wanted():
        await backend.do(engine.release(store, held))
        return None
    return held


async def _held(backend: Backend, token: str) -> ClaimedJob:
    values = await backend.claims.unseal(token)
    if values is None:
        why = "`take` did not give it out, or the secret that signed it was removed; the job is delivered again"
        raise InvalidInput(f"claim: {why}")
    return unpack(await backend.store(), values)


async def _own(request: Request, backend: Backend, claim: ClaimIn) -> ClaimedJob:
    """The claim, if the token allows it."""
    held, who = await _held(backend, claim.claim), who_asks(request)
    about(request, topic=held.job.topic, id=held.job.id, group=held.group)
    if not who.topics.holds(held.job.topic):
        raise ProblemError("forbidden", f"this token is for other topics: {who.topics}")
    check_group_scope(who, held.group)
    return held


_ending = partial(operation, router, "POST", roles=_WORKER, takes=JSON, tag="Claims", sifts=True, status=204)
_ENDED: dict[int, dict[str, Any]] = {
    204: {"description": "Done."},
    200: {"description": "This claim has ended like that before.", "model": EndedOut},
}
_STALE, _STALE_OR_UNKNOWN = ["stale-claim"], ["stale-claim", "unknown-topic"]
_OR_ABORTED = [*_STALE, "job-aborted"]


async def _end(
    request: Request, claim: ClaimIn, how: Callable[[RedisStore, ClaimedJob], Op[None]], *ends: AttemptResult
) -> Response:
    """Ends a claim. A caller that has lost the answer may ask again."""
    backend = backend_of(request)
    held, store = await _own(request, backend, claim), await backend.store()
    state = await backend.do(engine.repeatable(store, held, how(store, held), *ends))
    return Response(status_code=204) if state is None else Response(to_json({"state": state}), media_type=JSON)


@_ending("/v1/claims/finish", problems=[*_OR_ABORTED, "unknown-topic", "storage-unavailable"], responses=_ENDED)
async def finish_claim(request: Request, claim: FinishIn) -> Response:
    """End the attempt as done, for this group.

    Safe to repeat if the answer was lost, like every other way to end a claim: for ten minutes, the same request gets
    a 200. A claim that was taken over gets a 409, whatever happened to the job. If the job was aborted, it ends as
    cancelled, and the answer is a 409, too. A result that can't be kept, as it is too large or the topic keeps none,
    gets a 422, and the claim goes on.
    """
    given = (claim.result,) if "result" in claim.model_fields_set else ()
    return await _end(request, claim, lambda store, held: engine.finish(store, held, *given), AttemptResult.DONE)


@_ending("/v1/claims/fail", problems=_STALE_OR_UNKNOWN, responses=_ENDED)
async def fail_claim(request: Request, claim: FailIn) -> Response:
    """End the attempt as failed; the job takes the next step of its retry schedule.

    If no step is left, the job is buried: it becomes a dead letter.
    """
    return await _end(
        request,
        claim,
        lambda store, held: engine.fail(store, held, claim.error, claim.delay, claim.traceback),
        AttemptResult.RETRY,
        AttemptResult.DEAD,
    )


@_ending("/v1/claims/snooze", problems=_STALE_OR_UNKNOWN, responses=_ENDED)
async def snooze_claim(request: Request, claim: SnoozeIn) -> Response:
    """Run the job again after the delay. Neither an attempt nor a step is used up."""
    later = Snooze(claim.delay, claim.reason)
    return await _end(request, claim, lambda store, held: engine.fail(store, held, later, None), AttemptResult.SNOOZED)


@_ending("/v1/claims/bury", problems=_STALE_OR_UNKNOWN, responses=_ENDED)
async def bury_claim(request: Request, claim: BuryIn) -> Response:
    """Give the job up: it is a dead letter until it is kicked or purged."""
    return await _end(request, claim, lambda store, held: engine.bury(store, held, claim.reason), AttemptResult.DEAD)


@_ending("/v1/claims/release", problems=_STALE, responses=_ENDED)
async def release_claim(request: Request, claim: ClaimIn) -> Response:
    """Hand the job back unfinished; the attempt does not count."""
    return await _end(request, claim, engine.release, AttemptResult.RELEASED)


@_ending("/v1/claims/touch", problems=[*_OR_ABORTED, "unknown-topic"], responses={204: {"description": "Done."}})
async def touch_claim(request: Request, claim: TouchIn) -> Response:
    """Start the claim's TTR again (a heartbeat), or set another one.

    A 409 `job-aborted` means that somebody has aborted the job: stop, and end the claim in any way; the job is then
    cancelled.
    """
    backend = backend_of(request)
    held = await _own(request, backend, claim)
    await backend.do(engine.touch(await backend.store(), held, claim.ttr))
    return Response(status_code=204)
