"""The callback worker: a Worker whose handler POSTs the job's body to the job's url."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json
from yarl import URL

from ..codec.trace import traceparent_now
from ..config import DEFAULT_GROUP, Settings
from ..job.job import Job
from ..job.retry import Bury, Retry, Snooze
from ..metrics import declared
from ..process.logs import log
from ..times.clock import RedisClock, wall_s
from ..worker.running_job import RunningJob
from ..worker.serving import Burst
from ..worker.worker import Worker
from .breaker import Endpoints, NotNow
from .client import CallbackFailed, Client, Reply
from .settings import CallbackSettings
from .signing import Signer
from .target import TargetRefused, Targets
from .unproven import Calls

CONCURRENCY = 200
_TTR_SHARE = 0.9  # of the time that is left: a missing answer is reported as such, before the TTR is over
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 30.0  # for a busy receiver; doubles each time
_SNOOZES = 10  # per step of a job whose receiver does not answer
_NO_STATUS = "none"
_USUAL = (
    ("delivered", "2xx"), ("failed", _NO_STATUS), ("failed", "3xx"), ("failed", "4xx"), ("failed", "5xx"),
    ("gone", "4xx"), ("refused", _NO_STATUS), ("snoozed", _NO_STATUS),
)  # fmt: skip


class CallbackRejected(CallbackFailed):
    """An answer other than 2xx."""


class CallbackNotMade(CallbackFailed):
    """The receiver's breaker has been open for so long that the step counts as used up."""


class CallbackSnoozed(Snooze):
    """The receiver can't be called now: the job waits, and neither an attempt nor a step is used up."""


class CallbackWorker(Worker):
    """Calls the URLs of jobs of ``topics``, or of every topic that has the ``group``, including later ones.

    2xx finishes the job, 410 and a URL that is refused bury it, anything else takes its next retry step. ``callback``
    None: settings from the environment.
    """

    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        group: str = DEFAULT_GROUP,
        concurrency: int = CONCURRENCY,
        *,
        topics: Iterable[str] | None = None,
        callback: CallbackSettings | None = None,
        settings: Settings | None = None,
        clock: RedisClock | None = None,
    ) -> None:
        super().__init__(url, namespace, group, concurrency, settings=settings, clock=clock)
        self._callback = callback or CallbackSettings.load()
        self._targets = Targets(self._callback.allow, self._callback.deny)
        self._signer = Signer(self._callback.plain_secrets())
        self._calls = Calls(concurrency)
        self._endpoints = Endpoints(min(self._callback.per_host, self._calls.half), self._now_s, self.namespace)
        for outcome, status_class in _USUAL:  # exist from the start: a rate needs a 0 to start from
            declared.CALLBACKS.labels(self.namespace, outcome, status_class)
        if topics is None:
            self.every_topic(self._deliver)
        else:
            for topic in topics:
                self.handler(topic)(self._deliver)

    async def serve(self, burst: Burst = False, *, signals: bool = False) -> None:
        async with Client(self._targets, self._callback, self.concurrency) as self._client:
            await super().serve(burst, signals=signals)

    def _now_s(self) -> float:
        """The breakers' clock, in seconds. In tests it follows the manual clock."""
        return int(self._clock.argument()) / 1000 if self._clock and self._clock.manual else time.monotonic()

    async def _deliver(self, _body: Any, job: RunningJob) -> Any:
        url = self._check(job)
        try:
            reply = await self._post(url, job)
        except NotNow as busy:
            raise self._put_off(job, url, busy) from None
        self._judge(job, url, reply)
        return self._result_in(job, reply)

    def _result_in(self, job: Job, reply: Reply) -> Any:
        """What the receiver has answered, if it is JSON and the topic keeps results."""
        if not reply.json:
            return None
        try:
            return from_json(reply.json)
        except ValueError:
            log.warning("callback: the answer is no JSON, and no result", topic=job.topic, id=job.id)
            return None

    async def _post(self, url: URL, job: RunningJob) -> Reply:
        """Raises:
        NotNow: the receiver has no room for this call.
        CallbackFailed: it has not answered.
        """
        endpoint = self._endpoints.at(url)
        with self._calls.slot(endpoint, url) as call:
            ticket = await endpoint.enter()
            alive: bool | None = None
            answered = False
            try:
                call.begin()
                reply = await self._call(url, job)
                alive, answered = reply.alive, True
            except CallbackFailed as failed:
                if call.no_room:
                    raise NotNow from None
                alive = False
                self._tell("failed", job, str(failed), url)
                raise
            finally:
                endpoint.leave(ticket, alive, answered=answered)
        return reply

    def _check(self, job: Job) -> URL:
        try:
            if job.url is None:
                raise TargetRefused("the job has no url to call")
            return self._targets.check(job.url)
        except TargetRefused as refused:
            self._tell("refused", job, str(refused))
            raise Bury(str(refused)) from None

    async def _call(self, url: URL, job: RunningJob) -> Reply:
        timeout_s = min(self._callback.timeout_s, job.time_left_s() * _TTR_SHARE)
        headers = self._signer.headers(url, job.id, job.json.decode(), wall_s())
        if trace := traceparent_now() or job.trace:
            headers["traceparent"] = trace
        wanted = self._run is not None and self._run.keeps_results(job.topic)
        return await self._client.post(url, headers, job.json, timeout_s, wanted=wanted)

    def _judge(self, job: Job, url: URL, reply: Reply) -> None:
        if reply.status // 100 == 2:
            declared.CALLBACKS.labels(self.namespace, "delivered", "2xx").inc()
            return
        gone = reply.status == 410
        text = f"HTTP {reply.status} from {url.raw_host}"
        self._tell("gone" if gone else "failed", job, text, url, reply.status)
        if gone:
            raise Bury(text)
        raise CallbackRejected(text, reply.retry_after_s)

    def _put_off(self, job: Job, url: URL, busy: NotNow) -> Retry | Snooze:
        text = f"{url.raw_host}: {busy}"
        if busy.wait_s is not None and job.snoozed >= _SNOOZES * (job.step + 1):
            self._tell("failed", job, text, url)
            return CallbackNotMade(text)
        declared.CALLBACKS.labels(self.namespace, "snoozed", _NO_STATUS).inc()
        # Random, so that the jobs do not all come back at once.
        if busy.wait_s is not None:
            delay_s = busy.wait_s * random.uniform(1, 1.5)  # noqa: S311
        else:
            delay_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(job.snoozed, 20)) * random.uniform(0.5, 1)  # noqa: S311
        return CallbackSnoozed(delay_s, text)

    def _tell(self, outcome: str, job: Job, text: str, url: URL | None = None, status: int | None = None) -> None:
        """Logs and counts a callback that was not delivered. The URL's path and query are left out: they may be
        secret.
        """
        declared.CALLBACKS.labels(self.namespace, outcome, f"{status // 100}xx" if status else _NO_STATUS).inc()
        log.warning(
            f"callback {outcome}", topic=job.topic, id=job.id, group=self.group, attempt=job.attempt,
            consumer=self.name, host=url.raw_host if url else None, error=text,
        )  # fmt: skip
