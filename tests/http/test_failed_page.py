"""What failed, across topics: the lists with their filter, and what is done to all letters that match."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from streamdq import NewJob, Queue
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from streamdq.keys import NamespaceKeys
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api
from tests.http.site import EVIL, FORM, TOKENS, VIEWER, post, see, work
from tests.servers import Server


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look reads all topics, and waits for that."""
    monkeypatch.setattr("streamdq.http.topic_cache.EVERY_S", 0.0)


async def look(site: Api, path: str) -> str:
    site.app.state.streamdq.topic_cache._found = None
    return await see(site, path)


def ids(page: str) -> list[str]:
    return re.findall(r'<th scope="row" class="name"><a href="/topics/[^"]*/jobs/([^"]*)"', page)


async def walk(site: Api, path: str) -> list[str]:
    found: list[str] = []
    while True:
        page = await look(site, path)
        found += ids(page)
        more = re.search(r'href="([^"]*)" rel="next"', page)
        if more is None:
            return found
        path = html.unescape(more[1])


async def bury(queue: Queue, server: Server, topic: str, count: int, error: str, prefix: str = "j") -> list[str]:
    names = [f"{prefix}{n:03}" for n in range(count)]
    queue.enqueue_many(topic, (NewJob(1, id=name) for name in names))
    await work(server, topic=topic, error=error)
    return names


async def test_dead_letters_of_all_topics_the_last_first(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.configure("b", shards=3, create=True)
    first = await bury(queue, redis_server, "a", 70, "boom", "a")
    last = await bury(queue, redis_server, "b", 70, "timeout", "b")
    found = await walk(site, "/failed")
    assert sorted(found) == sorted(first + last)
    assert found[0].startswith("b")
    assert found[-1].startswith("a")
    assert 'Dead <span class="quiet">140<' in await look(site, "/failed")


async def test_many_that_died_in_one_millisecond_are_each_shown_once(
    site: Api, queue: Queue, redis_server: Server
) -> None:
    queue.configure("t", shards=2, create=True)
    names = await bury(queue, redis_server, "t", 230, "boom")
    with redis_server.client() as client:
        for number in range(2):
            dead = NamespaceKeys(NAMESPACE).shard("t", number).dead_of("default")
            members = client.zrange(dead, 0, -1)
            client.zadd(dead, dict.fromkeys(members, 1_800_000_000_000))
    found = await walk(site, "/failed")
    assert sorted(found) == names


async def test_the_filter(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.configure("b", groups=["default", "audit"], create=True)
    await bury(queue, redis_server, "a", 3, "Timeout: no answer", "x")
    await bury(queue, redis_server, "b", 3, "KeyError: <b>", "y")
    for query, count in {
        "error=TIMEOUT": 3, "error=%3Cb%3E": 3, "in_topic=b": 3, "id=x00": 3, "id=x001": 1, "error=none": 0,
        "in_group=audit": 0, "in_group=default&in_topic=A": 3, "error=timeout&id=y": 0,
    }.items():  # fmt: skip
        assert len(await walk(site, f"/failed?{query}")) == count, query
    assert "Nothing matches" in await look(site, "/failed?error=none")
    assert "KeyError: &lt;b&gt;" in await look(site, "/failed")
    for bad in ("from=x", "from=1", "state=done"):
        await see(site, f"/failed?{bad}", 422)


async def test_jobs_that_wait_for_a_retry_the_next_first(site: Api, queue: Queue) -> None:
    queue.enqueue_many("t", (NewJob(1, id=f"first{n}", delay="10m") for n in range(150)))
    for n, retry in enumerate(("2h", "1h", "3h")):
        queue.enqueue("t", 1, id=f"r{n}", retry=retry)
        claim = queue.take("t", timeout=60)
        assert claim
        claim.fail(f"OSError: {EVIL}")
    assert await walk(site, "/failed?state=retrying") == ["r1", "r0", "r2"]
    assert queue.stats("t").topics["t"].groups["default"].retrying == 3
    page = await look(site, "/failed?state=retrying&id=r1")
    assert ids(page) == ["r1"]
    assert "OSError: &lt;script&gt;" in page
    assert "Retry all" not in page


async def test_a_list_looks_at_so_many_at_once(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamdq.operations.dead_letters.failed.MOST_LOOKED", 100)
    await bury(queue, redis_server, "t", 1, "rare", "z")
    await bury(queue, redis_server, "t", 250, "boom")
    page = await look(site, "/failed?error=rare")
    assert "No match among 100" in page
    assert await walk(site, "/failed?error=rare") == ["z000"]


def hidden(page: str) -> dict[str, Any]:
    return {html.unescape(name): html.unescape(value)
            for name, value in re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', page)}  # fmt: skip


@pytest.mark.parametrize(("action", "ready", "dead"), [("kick", 120, 40), ("purge", 0, 40)])
async def test_first_how_many_then_the_deed(
    site: Api, queue: Queue, redis_server: Server, action: str, ready: int, dead: int
) -> None:
    await bury(queue, redis_server, "a", 80, "Timeout", "x")
    await bury(queue, redis_server, "b", 40, "timeout", "y")
    await bury(queue, redis_server, "b", 40, "boom", "z")
    plan = await see(site, f"/failed/plan?do={action}&error=timeout")
    assert "120 dead letters?" in plan
    assert queue.stats().dead == 160, "nothing was done yet"
    done = await post(site, "/failed/act", **hidden(plan))
    assert done.status_code == 303
    page = await look(site, done.headers["location"])
    assert f"{'Sent back' if action == 'kick' else 'Deleted permanently'}: 120." in page
    assert (queue.stats().ready, queue.stats().dead) == (ready, dead)
    assert queue.audit().balanced
    again = await post(site, "/failed/act", **hidden(plan))
    assert "did=failed" in again.headers["location"]
    assert queue.stats().dead == dead


async def test_what_dies_after_the_plan_is_left_alone(site: Api, queue: Queue, redis_server: Server) -> None:
    await bury(queue, redis_server, "t", 5, "boom", "x")
    plan = await see(site, "/failed/plan?do=purge")
    await bury(queue, redis_server, "t", 5, "boom", "y")
    with redis_server.client() as client:  # later, whatever the clock's millisecond
        dead = NamespaceKeys(NAMESPACE).shard("t", 0).dead_of("default")
        for n in range(5):
            client.zadd(dead, {f"y{n:03}": int(hidden(plan)["until"]) + 1})
    await post(site, "/failed/act", **hidden(plan))
    assert sorted(job.id for job in queue.dead("t")) == [f"y{n:03}" for n in range(5)]


async def test_a_letter_that_has_changed_since_it_was_read_is_left_alone(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading and the deed, another operator kicks it, and it dies again."""
    from streamdq.operations.dead_letters import failed as module

    await bury(queue, redis_server, "t", 2, "boom")
    plan = await see(site, "/failed/plan?do=purge")
    slices = module._slices

    def meanwhile(found: list[module.Failed]) -> object:
        queue.kick("t", "j000")
        claim = queue.take("t", timeout=60)
        assert claim
        claim.bury("again")
        return slices(found)

    monkeypatch.setattr(module, "_slices", meanwhile)
    done = await post(site, "/failed/act", **hidden(plan))
    assert "n=1&left=1" in done.headers["location"]
    assert [job.id for job in queue.dead("t")] == ["j000"]


async def test_what_others_take_out_meanwhile_hides_nothing(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the letters are read, another operator purges some that were read already."""
    from streamdq.operations.dead_letters import failed as module

    names = await bury(queue, redis_server, "t", 350, "boom")
    dead = NamespaceKeys(NAMESPACE).shard("t", 0).dead_of("default")
    with redis_server.client() as client:
        client.zadd(dead, {name: 1_700_000_000_000 + n // 3 for n, name in enumerate(names)})
    plan = await see(site, "/failed/plan?do=purge")
    matches, others = module._matches, names[-99:]

    def meanwhile(*args: Any) -> Any:
        while others:
            queue.purge("t", others.pop())
        return (yield from matches(*args))

    monkeypatch.setattr(module, "_matches", meanwhile)
    done = await post(site, "/failed/act", **hidden(plan))
    assert "n=251" in done.headers["location"]
    assert queue.stats().dead == 0


async def test_a_list_goes_on_where_it_ended_although_numbers_change(
    site: Api, queue: Queue, redis_server: Server
) -> None:
    """Letters of two topics that died in one millisecond: the topic with most letters becomes the one with fewer."""
    for topic, count in (("a", 60), ("b", 40)):
        await bury(queue, redis_server, topic, count, "boom", topic)
        with redis_server.client() as client:
            dead = NamespaceKeys(NAMESPACE).shard(topic, 0).dead_of("default")
            client.zadd(dead, {f"{topic}{n:03}": 1_700_000_000_000 for n in range(count)})
    first = await look(site, "/failed")
    more = re.search(r'href="([^"]*)" rel="next"', first)
    assert more
    await bury(queue, redis_server, "b", 50, "boom", "later")
    shown = ids(first) + ids(await look(site, html.unescape(more[1])))
    assert sorted(shown) == sorted([f"a{n:03}" for n in range(60)] + [f"b{n:03}" for n in range(40)])


async def test_who_may(open_api: Open, queue: Queue, redis_server: Server) -> None:
    await bury(queue, redis_server, "mine", 2, "boom")
    await bury(queue, redis_server, "theirs", 2, "boom")
    site = await open_api(tokens=TOKENS)
    site.client.headers["Origin"] = "http://localhost"
    await post(site, "/login", token=VIEWER[0])
    assert "Retry all" not in await look(site, "/failed")
    await see(site, "/failed/plan?do=kick", 403)
    assert (await post(site, "/failed/act", do="kick", until="9" * 13)).status_code == 403

    token, line = new_token("m", [Role.ADMIN], topics="mine")
    site = await open_api(tokens=Tokens.parse(line))
    site.client.headers["Origin"] = "http://localhost"
    await post(site, "/login", token=token)
    assert "theirs" not in await look(site, "/failed")
    assert len(ids(await look(site, "/failed?in_topic=min&in_group=&error=&id="))) == 2, "as the form asks"
    plan = await see(site, "/failed/plan?do=purge&in_topic=&in_group=&error=&id=")
    assert "2 dead letters?" in plan
    await post(site, "/failed/act", **hidden(plan))
    assert (queue.stats("mine").dead, queue.stats("theirs").dead) == (0, 2)
    assert (
        await site.client.post("/failed/act", data=hidden(plan), headers={**FORM, "Origin": "http://x"})
    ).status_code == 403


@pytest.mark.parametrize("form", [{"do": "burn", "until": "1"}, {"do": "kick", "until": "x"}, {"do": "kick"}])
async def test_forms_that_no_page_has(site: Api, form: dict[str, str]) -> None:
    assert (await post(site, "/failed/act", None, **form)).status_code == 422


async def test_a_job_is_found_by_its_id_in_any_topic(site: Api, queue: Queue) -> None:
    queue.configure("keyed", shards=4, key_concurrency=1, create=True)
    for n in range(5):
        queue.enqueue(f"t{n}", 1, id=f"only-{n}", delay="1h")
    queue.enqueue("keyed", 1, id="with/key", key="k", delay="1h")
    assert (await site.client.get("/job?id=only-3")).headers["location"] == "/topics/t3/jobs/only-3"
    assert (await site.client.get("/job?id=+with%2Fkey+")).headers["location"] == "/topics/keyed/jobs/with%2Fkey"
    queue.enqueue("t1", 1, id="only-3", delay="1h")
    page = await see(site, "/job?id=only-3")
    assert ('href="/topics/t1/jobs/only-3"' in page, 'href="/topics/t3/jobs/only-3"' in page) == (True, True)
    assert "None of 6 topics" in await see(site, "/job?id=none", 404)
    await see(site, "/job?id=", 422)


async def test_no_topic_of_others_is_reported(open_api: Open, queue: Queue) -> None:
    queue.enqueue("theirs", 1, id="x", delay="1h")
    token, line = new_token("m", [Role.VIEWER], topics="mine")
    site = await open_api(tokens=Tokens.parse(line))
    site.client.headers["Origin"] = "http://localhost"
    await post(site, "/login", token=token)
    assert "theirs" not in await see(site, "/job?id=x", 404)
