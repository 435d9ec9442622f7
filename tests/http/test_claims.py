"""Workers' operations over HTTP: the claim is the caller's, whichever server it talks to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from streamdq import Queue
from streamdq.cli import app as cli
from streamdq.http.signing import seal, unseal
from streamdq.link.command import Command
from streamdq.link.connection import LinkError
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api, altered, kind
from tests.servers import Server
from tests.waiting import HANG_S, eventually


async def test_take_and_finish(api: Api) -> None:
    await api.put("a", {"n": 1})
    taken = (await api.take()).json()
    assert (taken["job"]["id"], taken["job"]["body"], taken["job"]["attempt"]) == ("a", {"n": 1}, 1)
    assert (taken["group"], taken["ttr_ms"], taken["job"]["state"]) == ("default", 60_000, "running")
    assert (await api.take()).status_code == 204
    assert (await api.end("finish", taken["claim"])).status_code == 204
    assert kind(await api.get("a")) == "no-job"


async def test_the_ways_an_attempt_ends(api: Api, redis_server: Server) -> None:
    await api.put("a", retry="0")
    first = (await api.take()).json()["claim"]
    assert (await api.end("fail", first, error="KeyError: \x00\u2028")).status_code == 204
    second = (await api.take(timeout="60s")).json()
    assert (second["job"]["attempt"], second["job"]["step"]) == (2, 1)
    assert (await api.end("fail", second["claim"], error="still", delay=0)).status_code == 204
    third = (await api.take(timeout="60s")).json()
    assert (third["job"]["attempt"], third["job"]["step"]) == (3, 1)  # a delay of its own uses up no step
    assert (await api.end("release", third["claim"])).status_code == 204
    fourth = (await api.take(timeout="60s")).json()
    assert fourth["job"]["attempt"] == 3  # what was handed back does not count
    assert (await api.end("touch", fourth["claim"], ttr="1h")).status_code == 204
    progress = (await api.get("a")).json()["groups"]["default"]
    assert progress["deadline_ms"] - progress["started_ms"] > 3_000_000
    assert (await api.end("bury", fourth["claim"], reason="never")).status_code == 204
    dead = (await api.get("a")).json()
    assert (dead["state"], dead["groups"]["default"]["error"]) == ("dead", "never")
    assert kind(await api.end("touch", fourth["claim"])) == "stale-claim"
    with Queue(redis_server.url, NAMESPACE) as queue:
        events = [(row.event, row.attempt, row.body_bytes) for row in queue.history("t").rows]
        assert events == [("retry", 1, 1), ("retry", 2, 1), ("released", 3, 1), ("dead", 3, 1)]
        assert len({row.consumer for row in queue.history("t").rows}) == 1
        assert queue.audit().balanced


async def test_a_claim_that_was_taken_over_is_refused(api: Api, redis_server: Server) -> None:
    with Queue(redis_server.url, NAMESPACE) as queue:
        queue.configure("t", ttr="100ms")
    await api.put("a")
    first = (await api.take(timeout="60s")).json()
    late = first["claim"]
    await api.client.patch("/v1/topics/t", json={"ttr": "1h"})
    taken = (await api.take(timeout="60s")).json()  # as its TTR has passed
    assert taken["job"]["attempt"] == first["job"]["attempt"] + 1
    for how, more, _ in [("finish", {}, ""), *ENDS]:
        assert kind(await api.end(how, late, **more)) == "stale-claim", how
    assert (await api.end("finish", taken["claim"])).status_code == 204
    for how, more, _ in [("finish", {}, ""), *ENDS]:
        assert kind(await api.end(how, late, **more)) == "stale-claim", how


async def test_an_aborted_job(api: Api, redis_server: Server) -> None:
    async def abort(id: str, **query: str) -> Any:
        return await api.client.post(api.job("t", id) + "/abort", params=query)

    assert kind(await abort("a")) == "unknown-topic"
    await api.put("a")
    claim = (await api.take(timeout="60s")).json()["claim"]
    assert (await abort("a")).json() == {"result": "aborting"}
    group = (await api.get("a")).json()["groups"]["default"]
    assert (group["aborted"], group["progress"]) == (True, None)
    assert (await abort("a", group="default")).json() == {"result": "aborting"}
    assert kind(await api.end("touch", claim)) == "job-aborted"
    assert kind(await api.end("finish", claim)) == "job-aborted"
    assert kind(await api.end("finish", claim)) == "stale-claim"
    assert kind(await abort("a")) == "no-job"
    await api.put("b", delay="1h")
    assert (await abort("b")).json() == {"result": "cancelled"}
    await api.put("c")
    claim = (await api.take(timeout="60s")).json()["claim"]
    await abort("c")
    assert (await api.end("fail", claim, error="stopped")).status_code == 204
    await api.put("d")
    await api.end("bury", (await api.take(timeout="60s")).json()["claim"], reason="no")
    assert kind(await abort("d")) == "job-busy"
    with Queue(redis_server.url, NAMESPACE) as queue:
        queue.configure("t", groups=["default", "other"])
        await api.put("e", delay="1h")
        assert kind(await abort("e", group="other")) == "job-busy"
        assert queue.audit().balanced


async def test_finish_may_be_repeated(api: Api, open_api: Open, redis_server: Server) -> None:
    """Its answer may have been lost; whichever server is asked. What else is asked with it is refused."""
    await api.put("a")
    claim = (await api.take()).json()["claim"]
    assert (await api.end("finish", claim)).status_code == 204
    await api.put("a")  # the id is free: another job
    for other in (api, await open_api()):
        again = await other.end("finish", claim)
        assert (again.status_code, again.json()) == (200, {"state": "done"})
    for how, more in (("fail", {"error": "x"}), ("bury", {"reason": "x"}), ("release", {}), ("touch", {})):
        assert kind(await api.end(how, claim, **more)) == "stale-claim", how
    with Queue(redis_server.url, NAMESPACE) as queue:
        (balance,) = queue.audit("t").balances
        assert (balance.done, balance.ready, balance.imbalance) == (1, 1, 0)
    with redis_server.client() as client:
        assert 0 < client.pttl("streamdq:{t:0}:receipts") <= 600_000


ENDS: list[tuple[str, dict[str, Any], str]] = [
    ("fail", {"error": "x"}, "delayed"),
    ("fail", {"error": "x", "delay": "2h"}, "delayed"),
    ("snooze", {"delay": "1h"}, "delayed"),
    ("bury", {"reason": "x"}, "dead"),
    ("release", {}, "ready"),
]


@pytest.mark.parametrize(("how", "more", "state"), ENDS)
async def test_each_end_may_be_repeated(
    api: Api, open_api: Open, redis_server: Server, how: str, more: dict[str, Any], state: str
) -> None:
    """It changes nothing the second time, whichever server is asked. Another end is refused."""
    await api.put("a", retry="1h")
    claim = (await api.take()).json()["claim"]
    assert (await api.end(how, claim, **more)).status_code == 204
    before = (await api.get("a")).json()
    assert before["groups"]["default"]["state"] == state
    for other in (api, await open_api()):
        again = await other.end(how, claim, **more)
        assert (again.status_code, again.json()) == (200, {"state": state})
    assert (await api.get("a")).json() == before
    for otherwise, given, _ in [*ENDS, ("finish", {}, ""), ("touch", {}, "")]:
        if otherwise != how and (how, otherwise) != ("bury", "fail"):  # a failure may have buried it as well
            assert kind(await api.end(otherwise, claim, **given)) == "stale-claim", otherwise
    with Queue(redis_server.url, NAMESPACE) as queue:
        assert len(queue.history("t").rows) == 1
        assert queue.audit("t").balanced


async def test_past_attempts_and_what_failed_in_each(api: Api, queue: Queue) -> None:
    await api.put("a", retry="0")
    for error, traceback in (("KeyError: 'x'", "at shop.ts:7\n" * 1000), ("no answer", "")):
        taken = (await api.take(timeout="60s")).json()
        assert (await api.end("fail", taken["claim"], error=error, traceback=traceback)).status_code == 204
    queue.kick("t", "a")
    answer = (await api.client.get(api.job("t", "a") + "/history")).json()
    assert answer["complete"]
    assert [(one["event"], one["attempt"], one["error"], one["message"]) for one in answer["events"]] == [
        ("retry", 1, "KeyError", "KeyError: 'x'"), ("dead", 2, None, "no answer"), ("kicked", 2, None, None),
    ]  # fmt: skip
    first, second, third = answer["events"]
    assert (len(first["traceback"]) <= 4000, first["traceback"][-14:]) == (True, "\nat shop.ts:7\n")
    assert (second["reason"], second["traceback"], third["started_ms"]) == ("exhausted", None, None)
    assert first["due_ms"] <= first["started_ms"] <= first["finished_ms"]


async def test_the_history_of_a_job_that_never_was(api: Api) -> None:
    assert kind(await api.client.get(api.job("t", "a") + "/history")) == "unknown-topic"
    await api.put("b")
    assert kind(await api.client.get(api.job("t", "a") + "/history")) == "no-job"


async def test_a_job_that_is_put_off(api: Api) -> None:
    await api.put("a")
    claim = (await api.take()).json()["claim"]
    for wrong in ({}, {"delay": None}, {"delay": -1}, {"delay": "soon"}):
        assert kind(await api.end("snooze", claim, **wrong)) == "invalid-input", wrong
    assert (await api.end("snooze", claim, delay="50ms", reason="the bank is closed")).status_code == 204
    job = (await api.get("a")).json()["groups"]["default"]
    assert (job["attempt"], job["step"], job["snoozed"]) == (0, 0, 1)
    assert job["error"] == "Snooze: the bank is closed"
    assert (await api.take(timeout="60s")).json()["job"]["attempt"] == 1


async def test_a_finish_whose_reply_from_redis_is_lost(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is repeated, and refused as its claim has ended: by itself."""
    await api.put("a")
    claim = (await api.take()).json()["claim"]
    link = (await api.app.state.streamdq.queue())._link
    send, finished = link.send, 0

    async def losing(commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        nonlocal finished
        replies: list[Any] = await send(commands, timeout_s, blocking)
        if "streamdq:{t:0}:receipts" in commands[0].args and not isinstance(replies[0], Exception):
            finished += 1
            if finished == 1:
                raise LinkError(ConnectionResetError("the reply is lost"), sent=True)
        return replies

    monkeypatch.setattr(link, "send", losing)
    assert (await api.end("finish", claim)).status_code == 200
    assert finished > 1
    assert kind(await api.get("a")) == "no-job"


async def test_a_claim_that_was_changed_is_refused(api: Api) -> None:
    await api.put("a")
    claim = (await api.take()).json()["claim"]
    version, body, mac = claim.split(".")
    forged = seal(b"guess", "claim", ["t", 0, "default", "a", "1-0", "", 0, 0, 0, 0, 1, 0, 0, 1, None, "x"])
    other = seal((await api.app.state.streamdq.claims.secrets()).known[0], "session", ["t"])
    for text in ("", "x", "v1..", f"{version}.{body}x.{mac}", altered(claim), forged, other, "é.é.é"):
        assert kind(await api.end("finish", text)) == "invalid-input", text
    assert (await api.end("finish", claim)).status_code == 204


def test_a_seal_is_for_one_purpose() -> None:
    text = seal(b"secret", "claim", [1, "ä"])
    assert unseal(b"secret", "claim", text) == [1, "ä"]
    assert unseal(b"secret", "session", text) is None
    assert unseal(b"other", "claim", text) is None


async def test_servers_agree_on_a_secret_after_a_flush(open_api: Open, redis_server: Server) -> None:
    one, other = await open_api(), await open_api()
    await one.take()
    redis_server.flush()
    for api in (other, one):
        await api.put("a")
        claim = (await api.take(timeout="60s")).json()["claim"]
        assert (await (one if api is other else other).end("finish", claim)).status_code == 204


async def test_a_rotated_secret(open_api: Open, redis_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims of before are good until the previous secret is dropped; servers hear of both within seconds."""
    monkeypatch.setattr("streamdq.http.signing_secrets.KNOWN_FOR_S", 0.0)
    api = await open_api()
    claims = []
    for id in ("before", "after", "last"):
        await api.put(id)
        claims.append((await api.take(timeout="60s")).json()["claim"])
        if id != "last":  # the second time there still is a previous one
            assert cli.run(["--url", redis_server.url, "secret", "rotate"]) == int(id == "after")
    first, second, third = claims
    assert (await api.end("touch", first)).status_code == 204
    assert cli.run(["--url", redis_server.url, "secret", "drop"]) == 0
    assert kind(await api.end("finish", first)) == "invalid-input"
    assert (await api.end("finish", second)).status_code == 204
    assert (await (await open_api()).end("finish", third)).status_code == 204


async def test_a_server_looks_for_another_secret_now_and_then(open_api: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("streamdq.http.signing_secrets.time.monotonic", lambda: now)
    api, other = await open_api(), await open_api()
    signing = api.app.state.streamdq.claims
    before = (await signing.secrets()).known[0]
    store = await other.app.state.streamdq.store()
    await other.app.state.streamdq.do(store.scripts.rotate_secret("ab" * 32))
    assert (await signing.secrets()).known == [before]
    now += 10.1
    assert (await signing.secrets()).known == [bytes.fromhex("ab" * 32), before]
    sealed = await other.app.state.streamdq.claims.seal(["x"])
    assert await signing.unseal(sealed) == ["x"]


async def test_a_long_poll_gets_a_job_that_comes_later(api: Api) -> None:
    await api.client.patch("/v1/topics/t", json={})
    taking = asyncio.create_task(api.take(timeout="60s"))
    await eventually(lambda: api.app.state.streamdq.takes == 1, "it waits")
    await api.put("a", delay="50ms")
    assert (await taking).json()["job"]["id"] == "a"
    assert api.app.state.streamdq.takes == 0


async def test_only_so_many_wait(open_api: Open) -> None:
    from streamdq.config import HttpSettings

    api = await open_api(http=HttpSettings(max_takes=1))
    await api.client.patch("/v1/topics/t", json={})
    taking = asyncio.create_task(api.take(timeout="60s"))
    await eventually(lambda: api.app.state.streamdq.takes == 1, "it waits")
    refused = await api.take(timeout="60s")
    assert (refused.status_code, kind(refused)) == (503, "too-busy")
    api.app.state.streamdq.stopping.set()  # and a server that ends keeps no one waiting
    assert (await taking).status_code == 204


@pytest.mark.parametrize("query", [{"timeout": "61s"}, {"timeout": "soon"}, {"group": "a b"}])
async def test_takes_that_are_refused(api: Api, query: dict[str, str]) -> None:
    assert kind(await api.take(**query)) == "invalid-input"


def ask_until(api: Api, gone: asyncio.Event) -> asyncio.Task[None]:
    """A take whose caller hangs up, as the server tells it: the app hears http.disconnect while it waits."""

    async def receive() -> dict[str, Any]:
        if not gone.is_set():
            await asyncio.wait_for(gone.wait(), HANG_S)
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        pass  # nobody hears it

    path = "/v1/topics/t/take"
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"timeout=60s",
        "headers": [(b"host", b"localhost")], "root_path": "", "scheme": "http", "http_version": "1.1",
        "server": ("localhost", 80), "client": ("localhost", 1), "asgi": {"version": "3.0"},
    }  # fmt: skip
    return asyncio.create_task(api.app(scope, receive, send))


@pytest.mark.parametrize("claiming", [False, True])
async def test_a_caller_that_leaves_as_its_job_comes(api: Api, monkeypatch: pytest.MonkeyPatch, claiming: bool) -> None:
    """Redis has given the job out and its answer is on the way, or the claim is, when the caller hangs up: the job goes
    back at once.
    """
    await api.client.patch("/v1/topics/t", json={})
    gone, came = asyncio.Event(), asyncio.Event()
    link = (await api.app.state.streamdq.queue())._link
    send = link.send

    async def hung_up(commands: Sequence[Command], timeout_s: float, blocking: bool = False) -> list[Any]:
        replies: list[Any] = await send(commands, timeout_s, blocking)
        if blocking and isinstance(replies[0], list):
            came.set()
        if came.is_set() and not gone.is_set() and blocking is not claiming:
            gone.set()
            for _ in range(10):
                await asyncio.sleep(0)  # the app hears of it first
        return replies

    monkeypatch.setattr(link, "send", hung_up)
    asking = ask_until(api, gone)
    await eventually(lambda: api.app.state.streamdq.takes == 1, "it waits")
    with Queue(api.app.state.streamdq.url, NAMESPACE) as queue:
        queue.enqueue("t", 1, id="a", delay="200ms")
    await asyncio.wait_for(asking, HANG_S)
    assert gone.is_set()
    taken = (await api.take(timeout="60s")).json()
    assert (taken["job"]["id"], taken["job"]["attempt"]) == ("a", 1)
    await eventually(lambda: api.app.state.streamdq.takes == 0, "neither waits any more")


async def test_a_caller_that_leaves_while_the_topic_is_paused(api: Api) -> None:
    await api.put("a")
    await api.client.post("/v1/topics/t/pause")
    gone = asyncio.Event()
    asking = ask_until(api, gone)
    await eventually(lambda: api.app.state.streamdq.takes == 1, "it waits")
    gone.set()
    await asyncio.wait_for(asking, HANG_S)
