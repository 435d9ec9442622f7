"""What Sentry gets of failed attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from streamdq import Job, Retry, Snooze
from streamdq.codec import Encrypt
from streamdq.codec.encrypt import new_key
from streamdq.telemetry.sentry import SentryMiddleware
from streamdq.testing import drain
from streamdq.times.clock import ManualClock
from tests.redis.harness import NAMESPACE, Space


class Kept(Transport):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(dict(event))


@pytest.fixture
def kept() -> Iterator[Kept]:
    kept = Kept()
    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=kept, auto_enabling_integrations=False)
    yield kept
    sentry_sdk.get_client().close()
    sentry_sdk.init(auto_enabling_integrations=False)  # which would change other libraries for all later tests


async def test_one_issue_for_each_topic_and_error(space: Space, clock: ManualClock, kept: Kept) -> None:
    worker = space.worker()
    worker.middleware(SentryMiddleware())

    async def handler(body: str, job: Job) -> None:
        if job.attempt == 1 and body == "asks":
            raise Retry(delay="1s")
        if job.attempt == 2 and body == "asks":
            raise Snooze("1s")
        if body != "asks":
            raise {"key": KeyError, "value": ValueError}[body](f"{job.id}")

    for topic in ("mail", "pay"):
        worker.handler(topic, retry="1s")(handler)
        for body in ("key", "value", "asks"):
            space.queue.enqueue(topic, body)
    await drain(worker, clock, "1m")

    issues: dict[tuple[str, ...], int] = {}
    for event in kept.events:
        issues[tuple(event["fingerprint"])] = issues.get(tuple(event["fingerprint"]), 0) + 1
        assert event["exception"]["values"][0]["stacktrace"]["frames"][-1]["function"] == "handler"
        assert event["tags"]["streamdq.topic"] == event["fingerprint"][1]
        assert event["transaction"] == f"process {event['fingerprint'][1]}"
        assert event["contexts"]["job"]["id"] in event["exception"]["values"][0]["value"]
    assert issues == {("streamdq", topic, kind): 2 for topic in ("mail", "pay") for kind in ("KeyError", "ValueError")}
    assert sorted({event["tags"]["streamdq.attempt"] for event in kept.events}) == [1, 2]


@pytest.mark.thorough
async def test_of_an_encrypted_job_only_the_class(space: Space, kept: Kept) -> None:
    from streamdq import Queue, Worker

    codec = [Encrypt(new_key("k"))]
    with Queue(space.url, NAMESPACE, codec=codec, settings=space.settings, clock=space.clock) as queue:
        queue.enqueue("t", {"card": "visa of Ada"}, retry="none")
    worker = Worker(space.url, NAMESPACE, codec=codec, settings=space.settings, clock=space.clock)
    worker.middleware(SentryMiddleware())

    @worker.handler("t")
    async def handler(body: dict[str, str]) -> None:
        raise ValueError(body["card"])

    await space.burst(worker)
    (event,) = kept.events
    assert event["message"] == "ValueError"
    assert "visa of Ada" not in str(event)
