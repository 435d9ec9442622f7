"""The web page's buttons: what they do, and for whom they do nothing."""

from __future__ import annotations

import re
from typing import Any

from streamdq import NewJob, Queue, Settings, Worker
from streamdq.http.problems import MEDIA
from streamdq.keys import NamespaceKeys
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


async def test_abort(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1, id="a")
    claim = queue.take("t")
    assert claim
    claim.progress(0.4, "page <12>")
    page = await see(site, "/topics/t/jobs/a")
    assert "Abort the job" in page
    assert '<progress max="1" value="0.4">40 %</progress> 40 % page &lt;12&gt;' in page
    done = await post(site, "/topics/t/jobs/a/abort")
    page = await see(site, done.headers["location"])
    assert "told to stop; however it ends, the job is cancelled" in page
    assert "running, told to stop" in page
    claim.fail("stopped")
    page = await see(site, "/topics/t/jobs/a")
    assert "Attempt 1" in page
    assert "aborted" in page
    assert (await post(site, "/topics/t/jobs/a/abort")).status_code == 409
    queue.enqueue("t", 1, id="b", delay="1h")
    assert "Abort the job" not in await see(site, "/topics/t/jobs/b")
    done = await post(site, "/topics/t/jobs/b/abort")  # from a page that was opened while it ran
    assert "The job is cancelled." in await see(site, done.headers["location"])


async def test_what_is_wrong_with_a_delay_is_said_beside_its_field(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1, id="a/b", delay="1h")
    answer = await post(site, "/topics/t/jobs/a%2Fb/reschedule", delay="<soon>")
    assert answer.status_code == 422
    (field,) = re.findall(r'<form[^>]*class="inline"><label for="delay">.*?</form>', answer.text, re.DOTALL)
    assert 'value="&lt;soon&gt;"' in field
    assert 'aria-invalid="true"' in field
    assert re.search(r'role="alert">[^<]*soon', field)
    assert 'hx-get="/topics/t/jobs/a%2Fb"' in answer.text, "what refreshes it is the page, not the form's target"


async def test_a_job_runs_now(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1, id="a", delay="1h")
    assert "Run now" in await see(site, "/topics/t/jobs/a")
    done = await post(site, "/topics/t/jobs/a/run")
    assert "The job is due now." in await see(site, done.headers["location"])
    claim = queue.take("t", timeout=60)
    assert claim
    assert claim.job.id == "a"
    assert (await post(site, "/topics/t/jobs/a/run")).status_code == 409


SETTINGS: dict[str, Any] = {
    "ttr": "30s", "retry": "15s 3m", "max_deliveries": "7", "rate": "2.5", "shards": "2", "durable": "memory",
    "dead_for": "90d",
    "key_concurrency": "3", "key_rate": "5/s", "key_order": "pass",
}  # fmt: skip


async def test_the_settings_are_changed(site: Api, queue: Queue) -> None:
    queue.configure("t", create=True)
    done = await post(site, "/topics/t/settings", **SETTINGS)
    assert "The settings are changed." in await see(site, done.headers["location"])
    page = await see(site, "/topics/t/settings")
    for name, value in SETTINGS.items():
        assert re.search(rf'name="{name}" value="{value}"|<option value="{value}" selected', page), name
    found = queue.configure("t")
    assert (found.ttr_ms, found.rate, found.shards, found.key_order) == (30_000, 2.5, 2, "pass")
    none: dict[str, Any] = {
        "rate": "",
        "durable": "",
        "key_rate": "",
        "key_order": "",
        "key_concurrency": "",
        "retry": "",
    }
    assert (await post(site, "/topics/t/settings", **none)).status_code == 303
    found = queue.configure("t")
    assert (found.rate, found.durable, found.key_rate, found.key_concurrency) == (None, None, None, None)
    assert found.ttr_ms == 30_000
    again = await post(site, "/topics/t/settings")
    assert "Nothing was changed." in await see(site, again.headers["location"])


async def test_an_address_that_is_none_is_a_page_for_browsers(site: Api) -> None:
    browser = {"accept": "text/html,application/xhtml+xml"}
    for path, accept, media in (
        ("/xyz", browser, "text/html; charset=utf-8"),
        ("/v1/nothing", browser, MEDIA),
        ("/xyz", {"accept": "application/json"}, MEDIA),
        ("/v1/topics/t/jobs/none", browser, MEDIA),
    ):
        response = await site.client.get(path, headers=accept)
        assert (response.status_code, response.headers["content-type"]) == (404, media), path


async def test_the_settings_tell_what_applies_to_a_group(site: Api, queue: Queue, redis_server: Server) -> None:
    worker = Worker(redis_server.url, NAMESPACE, settings=Settings(url="memory://unused"))
    worker.handler("t", ttr="30s")(lambda: None)
    await worker.serve(burst=True)
    page = await see(site, "/topics/t/settings")
    assert "<title>Settings of t, group default · streamdq</title>" in page
    assert re.search(r"<h1>Settings of <span[^>]*>t</span></h1>", page)
    assert "<b>No group uses this now: default has 30s.</b>" in page
    queue.configure("t", groups=["default", "audit"])
    assert "<b>Not for group default: it has 30s.</b>" in await see(site, "/topics/t/settings")
    applying = dict(re.findall(r"<dt>(\w+)</dt><dd>(.*?) <", page))
    assert applying == {"TTR": "30s", "Retries": str(queue.configure("t").retry)}
    assert page.index("its own") < page.index("as the topic")


def fields(page: str) -> dict[str, Any]:
    """What a browser sends of the form."""
    return dict(re.findall(r'name="(\w+)" value="([^"]*)"', page))


async def test_a_form_that_is_sent_again_undoes_nothing(site: Api, queue: Queue) -> None:
    """Something in it could not be read; meanwhile another operator has changed a setting that was not edited."""
    queue.configure("t", ttr="30s", create=True)
    shown = await see(site, "/topics/t/settings")
    queue.configure("t", ttr="5m")
    again = await post(site, "/topics/t/settings", **{**fields(shown), "rate": "1_0"})
    assert again.status_code == 422
    assert (await post(site, "/topics/t/settings", **{**fields(again.text), "rate": "9"})).status_code == 303
    assert (queue.configure("t").ttr_ms, queue.configure("t").rate) == (300_000, 9)


async def test_what_another_has_set_is_replaced_only_after_it_was_shown(site: Api, queue: Queue) -> None:
    queue.configure("t", ttr="30s", rate=3, create=True)
    form = fields(await see(site, "/topics/t/settings"))
    queue.configure("t", ttr="5m", rate=0)
    answer = await post(site, "/topics/t/settings", **{**form, "ttr": "1m"})
    assert answer.status_code == 409
    assert "it was set to “5m” meanwhile" in answer.text
    assert queue.configure("t").ttr_ms == 300_000
    assert "it was removed meanwhile" in (await post(site, "/topics/t/settings", **{**form, "rate": "4"})).text
    assert (await post(site, "/topics/t/settings", **{**form, "ttr": "5m"})).status_code == 303, "both want the same"
    assert (await post(site, "/topics/t/settings", **fields(answer.text))).status_code == 303
    assert (queue.configure("t").ttr_ms, queue.configure("t").rate) == (60_000, None)


async def test_a_setting_that_can_t_be_is_reported_at_its_field(site: Api, queue: Queue) -> None:
    queue.configure("t", create=True)
    before = queue.configure("t")
    for name, value in (
        ("ttr", "soon"), ("retry", "x y"), ("max_deliveries", "many"), ("rate", "-1"), ("rate", "x"), ("shards", "0"),
        ("durable", "paper"), ("key_concurrency", "-1"), ("key_rate", "fast"), ("max_deliveries", "0"), ("shards", "٣"),
        ("max_deliveries", "1_0"), ("dead_for", "ages"),
    ):  # fmt: skip
        answer = await post(site, "/topics/t/settings", None, **{name: value})
        assert answer.status_code == 422, (name, value)
        (field,) = re.findall(rf'<div class="setting"><label for="set-{name}">.*?</div>', answer.text, re.DOTALL)
        assert 'role="alert"' in field
        assert f'value="{value}"' in field
        assert answer.text.count('role="alert"') == 1
        assert queue.configure("t") == before


async def test_dead_letters_are_kicked_and_purged(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue_many("t", (NewJob(n, id=f"j{n}") for n in range(8)))
    await work(redis_server, error="boom")
    page = await see(site, "/topics/t?state=dead")
    assert page.count('name="id" value="j') == 8
    shown = re.findall(r'name="shown" value="([^"]*)"', page)
    done = await post(site, "/topics/t/dead", do="kick", id=["j0", "j1"], group="default", shown=shown)
    assert "Sent back: 2." in await see(site, done.headers["location"])
    again = await post(site, "/topics/t/dead", do="kick", id=["j0", "j1"], group="default", shown=shown)
    assert "Nothing was changed" in await see(site, again.headers["location"])
    assert "Deleted permanently: 1." in await see(
        site, (await post(site, "/topics/t/dead", do="purge", id="j2", shown=shown)).headers["location"]
    )
    assert "Sent back: 1." in await see(site, (await post(site, "/topics/t/jobs/j3/kick")).headers["location"])
    assert "Deleted permanently: 1." in await see(
        site, (await post(site, "/topics/t/jobs/j4/purge")).headers["location"]
    )
    assert "Sent back: 3." in await see(
        site, (await post(site, "/topics/t/dead", do="kick", all="1")).headers["location"]
    )
    assert (await post(site, "/topics/t/dead", do="burn", id="j5")).status_code == 422
    assert (await post(site, "/topics/t/dead", do="kick", all="1", group="x")).status_code == 404
    assert queue.audit().balanced
    assert queue.stats("t").ready == 6


async def test_a_letter_that_has_changed_since_it_was_shown_is_left_alone(site: Api, queue: Queue) -> None:
    """Another operator has sent it back meanwhile, and it died of something else, or waits."""
    queue.configure("t", shards=3, create=True)
    for name in ("again", "waits", "b c"):
        queue.enqueue("t", 1, id=name, key=f"of {name}")
        claim = queue.take("t", timeout=60)
        assert claim
        claim.bury("boom")
    shown = re.findall(r'name="shown" value="([^"]*)"', await see(site, "/topics/t?state=dead"))
    queue.kick("t", "again")
    claim = queue.take("t", timeout=60)
    assert claim
    claim.bury("disk full")
    queue.kick("t", "waits")
    for action, did in (("purge", "Deleted permanently: 1. Left alone: 2,"), ("kick", "Nothing was changed")):
        done = await post(site, "/topics/t/dead", do=action, id=["again", "waits", "b c"], group="default", shown=shown)
        assert did in await see(site, done.headers["location"])
    assert [job.id for job in queue.dead("t")] == ["again"]
    for wrong in ("x", "0.zzz/1 again", f"{shown[0]}\n"):
        assert (await post(site, "/topics/t/dead", do="kick", id="again", shown=wrong)).status_code == 422
    gone = f"77.{shown[0].partition('.')[2]}"
    left = await post(site, "/topics/t/dead", do="kick", id=[gone.partition(" ")[2]], shown=gone)
    assert "n=0" in left.headers["location"]


async def test_a_dead_letter_that_goes_while_it_is_listed(site: Api, queue: Queue, redis_server: Server) -> None:
    """Its id was read, and another operator purged it before its progress was."""
    queue.enqueue("t", 1, id="order-42")
    await work(redis_server, error="no such order")
    with redis_server.client() as client:
        client.delete(NamespaceKeys(NAMESPACE).shard("t", 0).progress)
    assert "order-42" in await see(site, "/topics/t?state=dead")


async def test_forms_of_other_sites_are_refused(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1)
    del site.client.headers["Origin"]
    for headers in (
        {}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "same-site"},
    ):  # fmt: skip
        refused = await post(site, "/topics/t/pause", {**headers, "Content-Type": FORM["Content-Type"]})
        assert refused.status_code == 403, headers
        check_headers(refused)
    assert not queue.stats("t").topics["t"].paused
