"""What becomes of a job whose url is called."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import pairwise

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from streamdq.metrics import declared
from streamdq.testing import drain
from streamdq.times.clock import ManualClock
from tests.callback.conftest import caller
from tests.callback.receiver import Receiver, Request, answer, receiving
from tests.redis.harness import NAMESPACE, Space
from tests.waiting import HANG_S, eventually

SCHEDULE = "15s 3m 10m 30m 30m 1h 2h 6h 15h"
SECONDS = (15, 180, 600, 1800, 1800, 3600, 7200, 21_600, 54_000)


def new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


# -- what is sent


async def test_the_body_is_posted_and_2xx_finishes_the_job(space: Space, receiver: Receiver) -> None:
    receiver.reply = answer(204)
    space.queue.enqueue("t", {"order": 42, "note": "für"}, id="j1", url=receiver.url + "?token=x#part")
    await space.burst(caller(space, "t"))
    (request,) = receiver.requests
    assert (request.method, request.path) == ("POST", "/hook?token=x")
    assert request.body == '{"order":42,"note":"für"}'.encode()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["webhook-id"] == "j1"
    assert "webhook-signature" not in request.headers
    assert not {"cookie", "authorization", "referer"} & request.headers.keys()
    assert space.state("j1") == "gone"


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        (answer(200, "Content-Type: application/json", body='{"paid": true}'), {"paid": True}),
        (answer(201, "Content-Type: application/problem+json; charset=utf-8", body="[1]"), [1]),
        (answer(200, "Content-Type: application/json", body="{"), None),
        (answer(200, "Content-Type: text/html", body="1"), None),
        (answer(204), None),
    ],
)
async def test_a_json_answer_is_the_result_if_the_topic_keeps_results(
    space: Space, receiver: Receiver, reply: bytes, result: object
) -> None:
    receiver.reply = reply
    space.queue.configure("t", result="1d", create=True)
    space.queue.enqueue("t", 1, id="j1", url=receiver.url)
    await space.burst(caller(space, "t"))
    assert await asyncio.to_thread(space.queue.result, "t", "j1") == result


async def test_callbacks_are_counted_by_outcome_and_answer(space: Space, receiver: Receiver) -> None:
    def counted() -> dict[tuple[str, str], float]:
        (family,) = declared.CALLBACKS.collect()
        return {
            (sample.labels["outcome"], sample.labels["status_class"]): sample.value
            for sample in family.samples
            if sample.name.endswith("_total")
        }

    declared.CALLBACKS.clear()
    worker = caller(space, "t")
    assert list(counted().values()) == [0] * 8, "they are there before the first is counted"
    for path in ("ok", "gone", "down"):
        space.queue.enqueue("t", 1, id=path, url=f"{receiver.url}/{path}", retry="none")
    space.queue.enqueue("t", 1, id="refused", url="http://10.0.0.1/", retry="none")

    async def by_path(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer({"ok": 200, "gone": 410, "down": 503}[request.path.rpartition("/")[2]]))

    receiver.speak = by_path
    await space.burst(worker)
    declared.CALLBACKS.labels(NAMESPACE, "snoozed", "none").reset()  # until the first has been answered

    ends = {("delivered", "2xx"): 1, ("gone", "4xx"): 1, ("failed", "5xx"): 1, ("refused", "none"): 1}
    assert {labels: value for labels, value in counted().items() if value} == ends


async def test_receivers_verify_with_the_old_secret_and_the_new_one(space: Space, receiver: Receiver) -> None:
    new, old = new_secret(), new_secret()
    space.queue.enqueue("t", {"order": "für 42"}, id="Order 42.closed/ü", url=receiver.url)
    await space.burst(caller(space, "t", secrets={"127.0.0.1": [new, old]}))
    (request,) = receiver.requests
    assert request.headers["webhook-id"] == "Order%2042%2Eclosed%2F%C3%BC"
    assert len(request.headers["webhook-signature"].split(" ")) == 2
    for secret in (new, old):
        assert Webhook(secret).verify(request.body, request.headers) == {"order": "für 42"}
    with pytest.raises(WebhookVerificationError):
        Webhook(new_secret()).verify(request.body, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new).verify(request.body + b" ", request.headers)


async def test_the_id_stays_and_the_signature_is_made_anew(space: Space, receiver: Receiver) -> None:
    secret = new_secret()

    async def third_time_lucky(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200 if len(receiver.requests) == 3 else 500))

    receiver.speak = third_time_lucky
    space.queue.enqueue("t", 1, id="j1", url=receiver.url, retry="0 0 0")
    await space.burst(caller(space, "t", secrets={receiver.url: [secret]}))
    assert receiver.ids == ["j1"] * 3
    for request in receiver.requests:
        Webhook(secret).verify(request.body, request.headers)
    assert space.state("j1") == "gone"


# -- how it ends


async def test_anything_but_2xx_takes_the_next_step(space: Space, receiver: Receiver) -> None:
    async with receiving() as elsewhere:

        async def as_asked(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(answer(int(request.path.partition("?")[2]), f"Location: {elsewhere.url}"))

        receiver.speak = as_asked
        statuses = (101, 300, 301, 302, 303, 307, 308, 400, 404, 409, 429, 500, 503)
        async with space.serving(caller(space, "t")):
            for status in statuses:
                space.queue.enqueue("t", 1, id=f"j{status}", url=f"{receiver.url}?{status}", retry="1h")
                await space.becomes(f"j{status}", "delayed")
        for status in statuses:
            progress = space.job(f"j{status}").groups["default"]
            assert (progress.attempt, progress.step) == (1, 1)
            assert f"HTTP {status} from 127.0.0.1" in (progress.error or "")
        assert (len(receiver.requests), elsewhere.connections) == (len(statuses), 0)


async def test_410_buries_at_once(space: Space, receiver: Receiver) -> None:
    receiver.reply = answer(410)
    space.queue.enqueue("t", 1, id="j1", url=receiver.url)
    await space.burst(caller(space, "t"))
    progress = space.job("j1").groups["default"]
    assert (progress.state, progress.reason, progress.error) == ("dead", "buried", "HTTP 410 from 127.0.0.1")
    assert len(receiver.requests) == 1


async def test_a_job_without_a_url_is_buried(space: Space) -> None:
    space.queue.enqueue("t", 1, id="j1")
    await space.burst(caller(space, "t"))
    assert space.job("j1").groups["default"].error == "the job has no url to call"


@pytest.mark.parametrize(
    ("lines", "waits_s"),
    [
        (["Retry-After: 120"], 120),
        (["Retry-After: 5"], 15),  # the step is longer
        (["Retry-After: 999999999999999999999999"], 3600),  # the most that is kept to
        (["Retry-After: soon"], 15),
        (["Retry-After: -5"], 15),
        ([f"Retry-After: {format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)}"], 15),
        (["Date: Wed, 01 Jan 2020 00:00:00 GMT", "Retry-After: Wed, 01 Jan 2020 00:05:00 GMT"], 300),
    ],
)
async def test_retry_after_is_the_least_that_the_step_waits(
    stepped: Space, receiver: Receiver, clock: ManualClock, lines: list[str], waits_s: int
) -> None:
    receiver.reply = answer(503, *lines)
    stepped.queue.enqueue("t", 1, id="j1", url=receiver.url, retry="15s")
    async with stepped.serving(caller(stepped, "t", retry_after_s=3600)):
        await stepped.becomes("j1", "delayed")
    progress = stepped.job("j1").groups["default"]
    assert (progress.step, progress.due_ms) == (1, clock.now_ms + waits_s * 1000)


# -- the schedule


async def test_a_failing_notification_takes_all_nine_steps_to_the_dead_letters(
    stepped: Space, receiver: Receiver, clock: ManualClock
) -> None:
    called_ms: list[int] = []

    async def fail(_request: Request, writer: asyncio.StreamWriter) -> None:
        called_ms.append(clock.now_ms)
        writer.write(answer(500))

    receiver.speak = fail
    stepped.queue.enqueue("t", {"paid": True}, id="j1", url=receiver.url, retry=SCHEDULE)
    await drain(caller(stepped, "t"), clock, "26h")
    waited = [(later - before) / 1000 for before, later in pairwise(called_ms)]
    assert waited == list(SECONDS)
    progress = stepped.job("j1").groups["default"]
    assert (progress.state, progress.reason, progress.attempt) == ("dead", "exhausted", 10)


# -- topics


async def test_topics_made_while_it_serves_are_served(
    space: Space, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.worker.consumer.BLOCK_S", 10 * HANG_S)  # it does not need a read to time out
    space.queue.enqueue("early", 1, id="e1", url=receiver.url)
    async with space.serving(caller(space)):
        await receiver.count(1)
        for n in range(3):
            space.queue.enqueue(f"late-{n}", 1, id=f"l{n}", url=receiver.url)
            await receiver.count(2 + n)
    assert receiver.ids == ["e1", "l0", "l1", "l2"]


async def test_topics_without_the_group_are_left_alone(space: Space, receiver: Receiver) -> None:
    space.queue.configure("others", groups=["audit"])
    space.queue.enqueue("others", 1, id="o1", url=receiver.url)
    async with space.serving(caller(space)):
        space.queue.enqueue("t", 1, id="j1", url=receiver.url)
        await receiver.count(1)
        # Served from the moment that it has the group; what was enqueued before is the group's as well.
        space.queue.configure("others", groups=["audit", "default"])
        await receiver.count(2)
        space.queue.configure("t", groups=["audit"])
        space.queue.enqueue("others", 1, id="o2", url=receiver.url)
        await receiver.count(3)
        await eventually(lambda: space.stats("others").done == 2, "both are done")
    assert receiver.ids == ["j1", "o1", "o2"]
    assert "default" not in space.queue.stats("t").topics["t"].groups


# -- what is written down


async def test_neither_bodies_nor_secrets_nor_paths_are_written_down(
    space: Space, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret, path = new_secret(), "?token=tell-nobody"

    async def echo(request: Request, writer: asyncio.StreamWriter) -> None:
        # Everything comes back, as status line, headers and body, well and ill formed.
        reported = b"body-of-the-job %s" % request.headers["webhook-signature"].encode()
        if request.headers["webhook-id"] == "ill":
            writer.write(b"HTTP/1.1 500 x\r\n" + reported + b"\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 500 %s\r\nX: %s\r\nContent-Length: 0\r\n\r\n" % (reported, reported))

    receiver.speak = echo
    for id in ("well", "ill"):
        space.queue.enqueue("t", "body-of-the-job", id=id, url=receiver.url + path, retry="none")
    space.queue.enqueue("t", "body-of-the-job", id="refused", url="http://10.0.0.1/" + path, retry="none")
    await space.burst(caller(space, "t", secrets={"127.0.0.1": [secret]}))
    reported = caplog.text + "".join(str(space.job(id).groups) for id in ("well", "ill", "refused"))
    for private in ("body-of-the-job", secret, "tell-nobody", "/hook", "v1,"):
        assert private not in reported
    for public in ("id='well'", "host='127.0.0.1'", "group='default'", "attempt=1", "consumer=", "HTTP 500", "no HTTP"):
        assert public in reported
