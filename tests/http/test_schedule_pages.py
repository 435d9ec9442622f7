"""The web page of schedules: what it shows, its buttons, and what it reads."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from streamdq import Bury, Queue, Worker
from streamdq.config import Settings
from streamdq.http.pages import schedules
from streamdq.http.pages.schedules import line_of
from tests.http.harness import NAMESPACE, Api
from tests.http.site import EVIL, post, see
from tests.servers import Server


async def work(server: Server, *topics: str) -> None:
    """Runs what is due, as the jobs' bodies say."""
    worker = Worker(server.url, NAMESPACE, settings=Settings(url="memory://unused"))
    for topic in topics:

        @worker.handler(topic, retry="1h")
        async def handler(body: str) -> None:
            if body == "bury":
                raise Bury("gone")

    await worker.serve(burst=True)


def rows_of(page: str) -> list[str]:
    """Each schedule's row as text, without tags."""
    return [
        " ".join(html.unescape(re.sub(r"<[^>]+>", " ", row)).split())
        for row in re.findall(r'<tr class="[^"]*">.*?</tr>', page, re.DOTALL)
    ]


async def test_schedules_with_their_next_times(site: Api, queue: Queue) -> None:
    assert "No schedules. Add one:" in await see(site, "/schedules")
    queue.schedule("report.send", {}, id="acme", cron="0 9 1 1 *", tz="Asia/Tokyo", overlap="skip")
    queue.schedule("refund.check", {}, id="refunds", every="10m", jitter="30s", until=4_000_000_000_000)
    queue.schedule("refund.check", {}, id=EVIL, every="10m")
    queue.pause_schedule("refund.check", EVIL)

    evil, refunds, acme = rows_of(page := await see(site, "/schedules"))

    assert EVIL in evil
    assert "paused" in evil
    assert "Every 10m up to 30s later · until 2096-10-02 07:06:40 in 9m" in refunds
    assert "0 runs" in refunds
    assert acme.startswith(
        "acme report.send At 09:00 on January 1 0 9 1 1 * Asia/Tokyo · skips if the last has not ended"
    )
    assert len(re.findall(r"\w{3} 01 Jan \d{4}, 09:00 JST 00:00 UTC", acme)) == 5
    assert '<a href="/topics/report.send" class="name">' in page
    assert len(rows_of(await see(site, "/schedules?topic=report.send"))) == 1
    assert len(rows_of(await see(site, "/schedules?q=REFUND"))) == 2
    assert "No schedule matches" in await see(site, "/schedules?q=none")
    assert '<a href="/schedules?topic=report.send">schedules</a>' in await see(site, "/topics/report.send")


async def test_the_last_run_and_its_result(site: Api, queue: Queue, redis_server: Server) -> None:
    for id, body in (("good", "fine"), ("bad", "bury"), ("never", "fine")):
        queue.schedule("t", body, id=id, every="1h")
    ran = {id: queue.trigger("t", id).id for id in ("good", "bad")}
    await work(redis_server, "t")

    page = await see(site, "/schedules")

    bad, good, never = rows_of(page)
    assert re.search(r"ago dead ran \d+\S+ buried: Bury ", bad)
    assert re.search(r"ago done ran \d+\S+ 0 runs", good)
    assert "not yet" in never
    assert f'<a href="/topics/t/jobs/{ran["good"].replace("@", "%40").replace(":", "%3A")}"' in page


async def test_a_run_without_a_result_does_not_hide_the_one_before(queue: Queue) -> None:
    made = queue.schedule("t", {}, id="s", every="1h")
    known = schedules.Run("s@2027-01-01T00:00:00Z", 1_798_761_600_000, "done")
    made = replace(made, previous="s@2027-01-02T00:00:00Z")
    line = line_of(made, known, made.next_ms[0])
    assert line.last is not None
    assert (line.last.time_ms, line.last.outcome, line.known) == (1_798_848_000_000, "", known)
    assert line_of(made, None, 0).known is None


async def test_the_worst_of_several_groups_is_shown(site: Api, queue: Queue) -> None:
    queue.configure("t", groups=["a", "b"])
    queue.schedule("t", {}, id="s", every="1h")
    queue.trigger("t", "s")
    for group in ("a", "b"):
        claim = queue.take("t", group)
        assert claim
        claim.bury("no") if group == "a" else claim.finish()
    assert " dead " in rows_of(await see(site, "/schedules"))[0]


async def test_a_page_costs_one_read_of_history_for_each_topic(
    site: Api, queue: Queue, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "_PAGE", 30)
    for n in range(60):
        queue.schedule(f"t{n % 2}", {}, id=f"s{n:02}", every="1h")
    with redis_server.client() as client:

        def calls() -> dict[str, int]:
            stats = client.info("commandstats")
            return {name: figures["calls"] for name, figures in stats.items()}

        await see(site, "/schedules")
        before = calls()
        first = await see(site, "/schedules")
        after = calls()
    assert len(rows_of(first)) == 30
    spent = {name: count - before.get(name, 0) for name, count in after.items() if name != "cmdstat_info"}
    assert spent["cmdstat_xrevrange"] == 1, "the page has schedules of one topic"
    assert sum(spent.values()) < 12
    following = html.unescape(re.findall(r'href="([^"]*)" rel="next"', first)[0])
    assert len(rows_of(await see(site, following))) == 30


async def test_buttons(site: Api, queue: Queue) -> None:
    queue.schedule("a/b", {}, id="x y", every="1h")
    url = "/topics/a%2Fb/schedules/x%20y"
    assert f'action="{url}/pause"' in await see(site, "/schedules")
    done = await post(site, f"{url}/pause", q="x", topic="a/b", after="")
    assert done.headers["location"] == "/schedules?topic=a%2Fb&q=x&did=schedule-paused"
    page = await see(site, done.headers["location"])
    assert "The schedule is paused." in page
    assert f'action="{url}/resume"' in page
    assert "is resumed" in await see(site, (await post(site, f"{url}/resume")).headers["location"])
    assert "A job is enqueued" in await see(site, (await post(site, f"{url}/trigger")).headers["location"])
    assert queue.stats("a/b").ready == 1
    assert "is removed" in await see(site, (await post(site, f"{url}/remove")).headers["location"])
    assert queue.schedules() == []
    assert (await post(site, f"{url}/pause")).status_code == 404
