from __future__ import annotations

from streamdq import Queue
from tests.mcp.conftest import Open, called

READS = {"stats", "find_jobs", "get_flow", "get_job", "job_history", "list_dead", "list_schedules"}
BODY = {"order_id": 42}


def bury(queue: Queue, id: str) -> None:
    queue.enqueue("order.close", BODY, id=id)
    with queue.take("order.close", timeout=30) as claim:
        assert claim
        claim.bury("no stock")


async def test_the_tools_only_look_and_say_what_they_return(connect: Open) -> None:
    async with connect() as client:
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == READS
    for tool in tools:
        assert tool.annotations is not None
        assert (tool.annotations.read_only_hint, bool(tool.description)) == (True, True)
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == "object"


async def test_stats_come_in_pages(connect: Open, queue: Queue) -> None:
    for topic in ("mail.a", "mail.b", "mail.c", "order.close"):
        queue.enqueue(topic, BODY, delay="1h")
    async with connect() as client:
        first = await called(client, "stats", prefix="mail.", limit=2)
        rest = await called(client, "stats", prefix="mail.", limit=2, after=first["next"])

    assert first["delayed"] == 4
    assert [topic["topic"] for topic in first["topics"]] == ["mail.a", "mail.b"]
    assert [topic["topic"] for topic in rest["topics"]] == ["mail.c"]
    assert first["topics"][0]["groups"]["default"]["delayed"] == 1
    assert (first["next"], rest["next"]) == ("mail.b", None)


async def test_a_search_comes_in_pages_however_many_jobs_match(connect: Open, queue: Queue) -> None:
    ids = [f"order-{number}" for number in range(7)]
    queue.enqueue_many("order.close", [{"id": id, "body": {"user": 7}, "delay": "1h"} for id in ids])
    queue.enqueue("order.close", {"user": 8}, delay="1h")
    found = list[str]()
    after: str | None = ""
    async with connect() as client:
        while after is not None:
            page = await called(client, "find_jobs", topic="order.close", where=["body.user=7"], limit=3, after=after)
            assert len(page["jobs"]) <= 3
            found += [job["id"] for job in page["jobs"]]
            after = page["next"]
    assert sorted(found) == ids


async def test_a_job_tells_what_it_waits_for(connect: Open, queue: Queue) -> None:
    first = queue.enqueue("order.close", BODY, id="first", delay="1h")
    queue.enqueue("order.mail", BODY, id="second", after=[first])
    async with connect() as client:
        job = await called(client, "get_job", topic="order.mail", id="second")
    assert job["state"] == "waiting"
    assert job["waits_for"]["jobs"] == [{"topic": "order.close", "id": "first", "outcome": None}]


async def test_a_flow_tells_its_stages(connect: Open, queue: Queue) -> None:
    with queue.flow("report-7") as flow:
        flow.enqueue("mail.send", BODY, after=flow.enqueue("order.close", BODY, delay="1h"))
    async with connect() as client:
        found = await called(client, "get_flow", name="report-7")
        none = await called(client, "get_flow", name="report-8")
    assert (found["state"], found["jobs"]) == ("running", 2)
    assert [(one["topic"], one["after"]) for one in found["stages"]] == [("order.close", []), ("mail.send", [0])]
    assert "No such flow" in none


async def test_why_a_job_is_dead(connect: Open, queue: Queue) -> None:
    bury(queue, "order-1")
    async with connect() as client:
        dead = await called(client, "list_dead", topic="order.close")
        history = await called(client, "job_history", topic="order.close", id="order-1")
    assert [job["id"] for job in dead["jobs"]] == ["order-1"]
    assert dead["jobs"][0]["groups"]["default"]["reason"] == "buried"
    assert [event["event"] for event in history["events"]] == ["dead"]


async def test_schedules_say_in_words_when_they_run(connect: Open, queue: Queue) -> None:
    queue.schedule("report.send", BODY, id="acme", cron="0 9 * * 1-5", tz="Europe/Paris")
    async with connect() as client:
        page = await called(client, "list_schedules")
    assert [schedule["words"] for schedule in page["schedules"]] == ["At 09:00 on Monday through Friday"]
    assert page["schedules"][0]["body"] is None


async def test_bodies_are_hidden_unless_they_are_wanted(connect: Open, queue: Queue) -> None:
    bury(queue, "order-1")
    async with connect() as client:
        hidden = await called(client, "get_job", topic="order.close", id="order-1")
        listed = await called(client, "list_dead", topic="order.close")
        found = await called(client, "find_jobs", topic="order.close")
    for job in (hidden, listed["jobs"][0], found["jobs"][0]):
        assert job["body"] is None
        assert "--show-bodies" in job["body_unreadable"]
    async with connect(show_bodies=True) as client:
        assert (await called(client, "get_job", topic="order.close", id="order-1"))["body"] == BODY


async def test_a_long_body_is_left_out(connect: Open, queue: Queue) -> None:
    queue.enqueue("order.close", {"text": "x" * 5000}, id="long", delay="1h")
    async with connect(show_bodies=True) as client:
        job = await called(client, "get_job", topic="order.close", id="long")
    assert job["body"] is None
    assert "left out" in job["body_unreadable"]


async def test_an_error_says_what_to_do(connect: Open, queue: Queue) -> None:
    queue.enqueue("order.close", BODY, delay="1h")
    async with connect() as client:
        assert "job_history" in await called(client, "get_job", topic="order.close", id="gone")
        assert "stats lists the topics" in await called(client, "find_jobs", topic="nowhere")
        assert "less than or equal to 100" in await called(client, "find_jobs", topic="order.close", limit=101)
        assert "where" in await called(client, "find_jobs", topic="order.close", where=["nonsense"])
        assert await called(client, "find_jobs", topic="order.close", after="7@x") == (
            "Error executing tool find_jobs: A value can't be accepted. after: not where a search ended."
        )


async def test_a_server_for_some_topics_shows_no_others(connect: Open, queue: Queue) -> None:
    queue.enqueue("order.close", BODY, delay="1h")
    queue.enqueue("mail.send", BODY, id="mail-1", delay="1h")
    async with connect(topics="order.*") as client:
        stats = await called(client, "stats")
        refused = await called(client, "get_job", topic="mail.send", id="mail-1")
    assert [topic["topic"] for topic in stats["topics"]] == ["order.close"]
    assert "this token is for other topics: order.*" in refused
