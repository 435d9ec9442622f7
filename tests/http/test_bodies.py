"""Encoded bodies over HTTP: the server shows them if it has the key; otherwise it tells why it does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamdq import Queue
from streamdq.codec.encrypt import new_key
from streamdq.config import Settings
from streamdq.keys import NamespaceKeys
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api, kind
from tests.http.site import see
from tests.servers import Server

NDJSON = {"Content-Type": "application/x-ndjson"}
KEY = new_key("k1")
SECRET = "4111-1111-1111-1111"
WHY = "it is encrypted with the key 'k1', which is not configured here; see STREAMDQ_BODY_KEYS"


def settings(**values: Any) -> Settings:
    return Settings(url="memory://unused").model_copy(update=values)


async def test_a_server_with_the_key_encrypts_and_shows(open_api: Open, redis_server: Server) -> None:
    api: Api = await open_api(settings=settings(codec="encrypt", body_keys=KEY))
    made = await api.put("j", {"card": SECRET}, delay="1h", version=2)
    assert (made.status_code, made.json()["body"], made.json()["version"]) == (201, {"card": SECRET}, 2)
    assert (await api.put("j", {"card": SECRET}, delay="1h", version=2)).status_code == 200
    assert (await api.put("j", {"card": "other"}, delay="1h", version=2)).status_code == 409
    assert (await api.put("j", {"card": SECRET}, delay="1h")).status_code == 409
    assert (await api.get("j")).json()["body"] == {"card": SECRET}
    assert SECRET in await see(api, "/topics/t/jobs/j")
    with Queue(redis_server.url, NAMESPACE, settings=settings()) as queue:
        assert SECRET.encode() not in queue.get("t", "j").raw_body  # type: ignore[union-attr]


async def test_who_takes_a_job_learns_whether_its_body_is_encrypted(open_api: Open, queue: Queue) -> None:
    """A worker over HTTP gets it in the clear, and must not send an error that quotes it."""
    api: Api = await open_api(settings=settings(codec="zstd encrypt", body_keys=KEY))
    for encrypted in (True, False):
        if encrypted:
            await api.put("j", {"card": SECRET})
        else:
            queue.enqueue("t", {"card": SECRET}, id="k")
        taken = (await api.client.post("/v1/topics/t/take", params={"timeout": "0s"})).json()
        assert (taken["encrypted"], taken["job"]["body"]) == (encrypted, {"card": SECRET})
        assert (await api.client.post("/v1/claims/finish", json={"claim": taken["claim"]})).status_code == 204


async def test_a_server_without_the_key_tells_why(open_api: Open, redis_server: Server) -> None:
    with Queue(redis_server.url, NAMESPACE, settings=settings(codec="encrypt", body_keys=KEY)) as queue:
        queue.enqueue("t", {"card": SECRET}, id="j", delay="1h")
        queue.enqueue("t", {"card": SECRET}, id="dead")
        claim = queue.take("t")
        assert claim
        claim.bury("no")
        queue.enqueue("t", {"card": SECRET}, id="ready")
    api: Api = await open_api(settings=settings())
    job = await api.get("j")
    assert (job.status_code, job.json()["body"], job.json()["body_unreadable"]) == (200, None, WHY)
    dead = await api.client.get("/v1/topics/t/dead")
    assert [one["body_unreadable"] for one in dead.json()["jobs"]] == [WHY]
    page = await see(api, "/topics/t/jobs/j")
    assert "it is encrypted with the key" in page
    taken = await api.client.post("/v1/topics/t/take", params={"timeout": "0s"})
    assert taken.status_code == 204
    conflict = await api.put("j", {"card": SECRET}, delay="1h")
    assert conflict.status_code == 409
    for answer in (job, dead, taken, conflict):
        assert SECRET not in answer.text
    assert SECRET not in page


@pytest.mark.parametrize("damage", [lambda record: record[:-1], lambda record: record.replace(b"[1]", b"[NaN]")])
async def test_a_body_that_is_no_json_spoils_no_answer(
    api: Api, queue: Queue, redis_server: Server, damage: Callable[[bytes], bytes]
) -> None:
    await api.put("j", {"a": [1]}, delay="1h")
    with redis_server.client() as client:
        (jobs,) = client.keys(f"{NAMESPACE}:*:jobs")
        client.hset(jobs, "j", damage(client.hget(jobs, "j")))
    job = (await api.get("j")).json()
    assert (job["body"], job["body_unreadable"]) == (None, "it is not JSON")
    found = (await api.client.get("/v1/topics/t/find")).text
    assert "NaN" not in found
    assert "it is not JSON" in await see(api, "/topics/t/jobs/j")
    assert (await api.put("j", {"a": [1]}, delay="1h")).status_code == 409
    queue.cancel("t", "j")


async def test_a_schedules_body_that_is_no_json_spoils_no_answer(api: Api, queue: Queue, redis_server: Server) -> None:
    queue.schedule("t", {"a": [1]}, id="s", every="1h")
    key = NamespaceKeys(NAMESPACE).shard("t", 0).schedules
    with redis_server.client() as client:
        record = client.hget(key, "s")
        assert isinstance(record, bytes)
        client.hset(key, "s", record.replace(b"[1]", b"[NaN]"))
    answer = await api.client.get("/v1/topics/t/schedules/s")
    assert (answer.status_code, answer.json()["body"]) == (200, None)
    assert (await api.client.get("/v1/schedules")).json()["schedules"][0]["body"] is None


async def test_a_version_must_be_a_number(api: Api) -> None:
    for version in (0, "2", 1.5, True, 10**9):
        assert (await api.put("j", 1, version=version)).status_code == 422, version


async def test_a_large_body_goes_to_its_storage(open_api: Open, queue: Queue, tmp_path: Path) -> None:
    where = tmp_path / "bodies"
    api: Api = await open_api(settings=settings(codec="offload", offload=f"file://{where}", offload_over_bytes=1000))
    large = "x" * 5000
    assert (await api.put("j", large, delay="1h")).json()["body"] == large
    assert (await api.put("j", large, delay="1h")).status_code == 200
    assert len([path for path in where.rglob("*") if path.is_file()]) == 1
    assert (await api.get("j")).json()["body"] == large
    assert large in await see(api, "/topics/t/jobs/j")
    queue.enqueue("t", 1, id="small", delay="1h")
    shutil.rmtree(where)
    where.write_text("no folder")
    for answer in (
        await api.put("k", large),
        await api.client.post("/v1/topics/t/bulk", content=f'{{"body":"{large}"}}\n', headers=NDJSON),
    ):
        assert (answer.status_code, kind(answer)) == (503, "storage-unavailable")
        assert str(tmp_path) not in answer.text
    assert (await api.get("j")).json()["body_unreadable"].startswith("its ")
