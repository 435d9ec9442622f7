from __future__ import annotations

from streamdq import JobState, Queue
from tests.mcp.conftest import Open, called
from tests.mcp.test_reads import BODY, READS, bury

CHANGES = {"enqueue_job", "cancel_job", "abort_job", "reschedule_job", "kick_dead", "pause_topic", "resume_topic"}


async def test_changes_are_marked(connect: Open) -> None:
    async with connect(allow_changes=True) as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    assert tools.keys() == READS | CHANGES
    marked = {name for name, hints in tools.items() if hints and hints.read_only_hint is False}
    assert marked == CHANGES
    assert {name for name in marked if (hints := tools[name]) and hints.destructive_hint} == {"cancel_job", "abort_job"}


async def test_a_server_that_only_looks_changes_nothing(connect: Open, queue: Queue) -> None:
    queue.enqueue("order.close", BODY, id="order-1", delay="1h")
    async with connect() as client:
        assert "Unknown tool" in await called(client, "cancel_job", topic="order.close", id="order-1")
    job = queue.get("order.close", "order-1")
    assert job is not None
    assert job.state is JobState.DELAYED


async def test_a_job_from_enqueue_to_cancel(connect: Open, queue: Queue) -> None:
    where = {"topic": "order.close", "id": "order-1"}
    async with connect(allow_changes=True) as client:
        made = await called(client, "enqueue_job", **where, body=BODY, delay="1h")
        again = await called(client, "enqueue_job", **where, body=BODY, delay="1h")
        other = await called(client, "enqueue_job", **where, body={"order_id": 43}, delay="1h")
        later = await called(client, "reschedule_job", **where, delay="2h")
        gone = await called(client, "cancel_job", **where)
        gone_again = await called(client, "cancel_job", **where)

    assert (made["state"], made["body"]) == ("delayed", None)
    assert again["created_ms"] == made["created_ms"]
    assert "get_job shows the job that has the id" in other
    assert later["due_ms"] > made["due_ms"]
    assert gone["count"] == 1
    assert "job_history" in gone_again
    assert queue.get("order.close", "order-1") is None


async def test_names_of_any_characters(connect: Open, queue: Queue) -> None:
    names = [
        ("order:close", "user@x"),
        ("a/b", "a/b"),
        ("*", "✓"),
        ("a%2Fb", "%25"),
        ("a?b#c", "a b"),
        ("..a", "a/../b"),
    ]
    async with connect(allow_changes=True) as client:
        for topic, id in names:
            where = {"topic": topic, "id": id}
            await called(client, "enqueue_job", **where, body=BODY, delay="1h")
            assert queue.get(topic, id) is not None
            assert (await called(client, "get_job", **where))["id"] == id
            assert (await called(client, "find_jobs", topic=topic))["jobs"][0]["id"] == id
            assert (await called(client, "pause_topic", topic=topic))["count"] == 1
            assert (await called(client, "cancel_job", **where))["count"] == 1
    assert sorted(queue.stats().topics) == sorted(topic for topic, _ in names)


async def test_a_running_job_is_aborted(connect: Open, queue: Queue) -> None:
    queue.enqueue("order.close", BODY, id="order-1")
    claim = queue.take("order.close", timeout=30)
    assert claim
    async with connect(allow_changes=True) as client:
        busy = await called(client, "cancel_job", topic="order.close", id="order-1")
        aborted = await called(client, "abort_job", topic="order.close", id="order-1")
    assert "abort_job stops a running job" in busy
    assert aborted["done"] == "order-1 is told to stop; it ends as cancelled"
    claim.fail("stopped")


async def test_dead_letters_are_kicked(connect: Open, queue: Queue) -> None:
    bury(queue, "order-1")
    async with connect(allow_changes=True) as client:
        kicked = await called(client, "kick_dead", topic="order.close", ids=["order-1", "gone"])
    assert kicked == {"done": "1 of 2 run again", "count": 1}


async def test_a_topic_is_paused_and_resumed(connect: Open, queue: Queue) -> None:
    queue.configure("order.close", create=True)
    async with connect(allow_changes=True) as client:
        await called(client, "pause_topic", topic="order.close")
        paused = await called(client, "stats")
        await called(client, "resume_topic", topic="order.close")
        resumed = await called(client, "stats")
    assert [page["topics"][0]["paused"] for page in (paused, resumed)] == [True, False]
