"""The web page's buttons: what they do, and for whom they do nothing."""

from __future__ import annotations

import pytest

from streamdq import NewJob, Queue
from streamdq.keys import NamespaceKeys
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api
from tests.http.site import FORM, check_headers, post, see, work
from tests.servers import Server


async def test_pause_and_resume(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1)
    done = await post(site, "/topics/t/pause")
    assert done.status_code == 303
    page = await see(site, done.headers["location"])
    assert "The topic is paused." in page
    assert 'action="/topics/t/resume"' in page
    assert queue.stats("t").topics["t"].paused
    await post(site, "/topics/t/resume")
    assert not queue.stats("t").topics["t"].paused


async def test_reschedule_and_cancel(site: Api, queue: Queue) -> None:
    before = queue.enqueue("t", 1, id="a", delay="1h").due_ms
    moved = await post(site, "/topics/t/jobs/a/reschedule", delay=" 3h ")
    assert "new due time" in await see(site, moved.headers["location"])
    job = queue.get("t", "a")
    assert job
    assert job.due_ms > before
    for delay in ("", "soon", "-1"):
        assert (await post(site, "/topics/t/jobs/a/reschedule", delay=delay)).status_code == 422
    done = await post(site, "/topics/t/jobs/a/cancel")
    assert "The job is cancelled." in await see(site, done.headers["location"])
    assert queue.get("t", "a") is None
    assert "Cancelled" in await see(site, "/topics/t/jobs/a")
    assert (await post(site, "/topics/t/jobs/a/cancel")).status_code == 409
    assert (await post(site, "/topics/t/jobs/a/reschedule", delay="1h")).status_code == 409


async def test_dead_letters_are_kicked_and_purged(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue_many("t", (NewJob(n, id=f"j{n}") for n in range(8)))
    await work(redis_server, error="boom")
    page = await see(site, "/topics/t?state=dead")
    assert page.count('name="id" value="j') == 8
    done = await post(site, "/topics/t/dead", do="kick", id=["j0", "j1"], group="default")
    assert "Sent back: 2." in await see(site, done.headers["location"])
    again = await post(site, "/topics/t/dead", do="kick", id=["j0", "j1"], group="default")
    assert "Nothing was changed" in await see(site, again.headers["location"])
    assert "Deleted for good: 1." in await see(
        site, (await post(site, "/topics/t/dead", do="purge", id="j2")).headers["location"]
    )
    assert "Sent back: 1." in await see(site, (await post(site, "/topics/t/jobs/j3/kick")).headers["location"])
    assert "Deleted for good: 1." in await see(site, (await post(site, "/topics/t/jobs/j4/purge")).headers["location"])
    assert "Sent back: 3." in await see(
        site, (await post(site, "/topics/t/dead", do="kick", all="1")).headers["location"]
    )
    assert (await post(site, "/topics/t/dead", do="burn", id="j5")).status_code == 422
    assert (await post(site, "/topics/t/dead", do="kick", all="1", group="x")).status_code == 404
    assert queue.audit().balanced
    assert queue.stats("t").ready == 6


async def test_a_dead_letter_that_goes_while_it_is_listed(site: Api, queue: Queue, redis_server: Server) -> None:
    """Its id was read, and another operator purged it before its progress was."""
    queue.enqueue("t", 1, id="order-42")
    await work(redis_server, error="no such order")
    with redis_server.client() as client:
        client.delete(NamespaceKeys(NAMESPACE).shard("t", 0).progress)
    assert "order-42" in await see(site, "/topics/t?state=dead")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "same-site"},
    ],
)
async def test_forms_of_other_sites_are_refused(open_api: Open, queue: Queue, headers: dict[str, str]) -> None:
    site = await open_api()
    queue.enqueue("t", 1)
    refused = await post(site, "/topics/t/pause", {**headers, "Content-Type": FORM["Content-Type"]})
    assert refused.status_code == 403
    check_headers(refused)
    assert not queue.stats("t").topics["t"].paused
