"""What the page says of health: problems come first, each with what to do, and lateness is that of each group."""

from __future__ import annotations

import re

import pytest

from streamdq import NewJob, Queue, Worker
from streamdq.config import Settings
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from streamdq.keys import NamespaceKeys
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api
from tests.http.site import post, see, work
from tests.servers import Server
from tests.waiting import eventually


def needs(page: str) -> list[str]:
    """The lines of what needs attention, as plain text."""
    found = re.search(r'id="health-title".*?</section>', page, re.DOTALL)
    lines = re.findall(r"<li[^>]*>(.*?)</li>", found[0], re.DOTALL) if found else []
    return [" ".join(re.sub(r"<[^>]*>", "", line).split()) for line in lines]


async def test_with_nothing_wrong_it_says_so(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue("t", 1)
    await work(redis_server)
    page = await see(site, "/")
    assert "Nothing needs attention" in page
    assert needs(page) == []
    assert needs(await see(site, "/topics/t")) == []


@pytest.mark.thorough
async def test_a_group_without_a_consumer_is_late_though_the_others_are_not(
    site: Api, queue: Queue, redis_server: Server
) -> None:
    """2 000 ready jobs of one group, whose topic the other group serves in time."""
    queue.configure("t", groups=["default", "audit"], create=True)
    queue.enqueue_many("t", (NewJob(n) for n in range(2_000)))
    await work(redis_server)
    page = await see(site, "/")
    (line,) = needs(page)
    assert line.startswith("2,000 ready, no consumer t / audit: start a worker of the group audit")
    assert 'href="/topics/t?group=audit&amp;state=ready"' in page
    assert re.search(r'class="late bad"[^>]*>\s*<span class="dot"[^>]*></span>audit: <b>no consumers</b>', page)
    own, other = await see(site, "/topics/t?group=default"), await see(site, "/topics/t?group=audit")
    assert "no consumers" not in facts(own)
    assert "p50" in facts(own)
    assert "no consumers" in facts(other)

    served = Worker(redis_server.url, NAMESPACE, group="audit", settings=Settings(url="memory://unused"))
    served.handler("t")(_nothing)
    await served.serve(burst=True)
    assert needs(await see(site, "/topics/t?group=audit")) == []


def facts(page: str) -> str:
    (found,) = re.findall(r'class="facts">(.*?)</p>', page, re.DOTALL)
    return str(found)


async def _nothing(_: object) -> None:
    pass


async def test_a_paused_topic_with_due_jobs(site: Api, queue: Queue, redis_server: Server) -> None:
    with redis_server.client() as client:
        client.set(NamespaceKeys(NAMESPACE).mover, "someone", px=600_000)
    queue.enqueue("t", 1, delay="10ms")
    queue.pause("t")
    await eventually(lambda: queue.stats("t").topics["t"].overdue_ms > 0, "the job is due")
    (line,) = needs(await see(site, "/"))
    assert line.startswith("Paused, with due jobs t has had due jobs for ")
    assert line.endswith("resume it when they may run.")


async def test_overdue_jobs_and_no_mover(site: Api, queue: Queue, redis_server: Server) -> None:
    due_ms = queue.enqueue("t", 1, id="a", delay="1h").due_ms
    with redis_server.client() as client:
        client.zadd(NamespaceKeys(NAMESPACE).shard("t", 0).bucket, {"a": due_ms - 3_607_000})
    first, second = needs(await see(site, "/"))
    assert first.startswith("No mover is active")
    assert re.match(r"Overdue by [.\d]+s Due jobs of t are not moved", second)


async def test_letters_of_the_last_hour(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue_many("t", [NewJob(1), NewJob(2)])
    await work(redis_server, error="boom")
    for path in ("/", "/topics/t"):
        assert needs(await see(site, path)) == [
            "2 died in the last hour t: look at the errors, then retry or purge them."
        ]
    queue.purge("t", all=True)
    assert needs(await see(site, "/topics/t")) == []


async def test_a_token_sees_the_problems_of_its_topics_and_groups(open_api: Open, queue: Queue) -> None:
    queue.configure("mine", groups=["default", "audit"], create=True)
    for topic in ("mine", "theirs"):
        queue.enqueue(topic, 1)
    token, line = new_token("m", [Role.VIEWER], topics="mine", groups="default")
    site = await open_api(tokens=Tokens.parse(line))
    site.client.headers["Origin"] = "http://localhost"
    await post(site, "/login", token=token)
    page = await see(site, "/")
    assert [line.split(": ")[0] for line in needs(page)] == ["1 ready, no consumer mine"]
    assert "theirs" not in page
    assert "audit" not in page
