"""The history: a row for each ended attempt and each rare event, capped."""

from __future__ import annotations

from streamdq import Bury, Job
from streamdq.store.history.rows import FIELDS, SEPARATOR
from tests.redis.harness import Seen, Space
from tests.servers import Server


def rows(server: Server, topic: str = "t") -> list[dict[str, str]]:
    with server.client() as client:
        entries = client.xrange(f"test:{{{topic}:0}}:history")
    found = []
    for _, fields in entries:
        values = fields[b"e"].decode().split(SEPARATOR)
        found.append(dict(zip(FIELDS, values, strict=True)))
    return found


async def test_a_life_in_rows(space: Space, redis_server: Server) -> None:
    worker = space.worker()

    @worker.handler("t", retry="20ms")
    async def handler(_body: dict[str, int], job: Job) -> None:
        if job.attempt == 1:
            raise ValueError("some secret of the body")
        if job.attempt == 2:
            raise Bury("enough")

    made = space.queue.enqueue("t", {"n": 1}, id="a", delay="20ms")
    await space.burst(worker)
    space.queue.kick("t", "a")
    await space.burst(worker)
    life = rows(redis_server)
    assert [row["event"] for row in life] == ["retry", "dead", "kicked", "done"]
    assert [row["attempt"] for row in life] == ["1", "2", "2", "3"]
    assert {row["id"] for row in life} == {"a"}
    assert {row["group"] for row in life} == {"default"}
    assert {row["created_ms"] for row in life} == {str(made.created_ms)}
    assert [row["step"] for row in life] == ["0", "1", "0", "0"]
    assert [(row["error"], row["reason"]) for row in life] == [
        ("ValueError", ""),
        ("Bury", "buried"),
        ("", ""),
        ("", ""),
    ]
    for row in (life[0], life[1], life[3]):
        due, moved, started, finished = (int(row[f"{name}_ms"]) for name in ("due", "moved", "started", "finished"))
        assert due <= moved <= finished
        assert due <= started <= finished
        assert row["consumer"]
    assert {row["body_bytes"] for row in life} == {str(len('{"n":1}'))}
    assert life[2]["due_ms"] == life[2]["finished_ms"]
    assert int(life[1]["due_ms"]) >= int(life[0]["finished_ms"]) + 20


async def test_ids_of_any_text(space: Space, redis_server: Server, seen: Seen) -> None:
    worker = space.recording(seen)
    ids = ["ä|b", "a b,c", "日本", "{x}", "default", "1-0", "*", "a" * 255, "|", "r|1|0|0"]
    for id in ids:
        space.queue.enqueue("t", id, id=id, delay="10ms")
        assert space.job(id).id == id
    await space.burst(worker)
    assert sorted(seen.all) == sorted(ids)
    assert sorted(row["id"] for row in rows(redis_server)) == sorted(ids)
