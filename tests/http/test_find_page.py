"""The page that searches jobs, and its buttons."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import pytest

from streamdq import NewJob, Queue
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from tests.http.conftest import Open
from tests.http.harness import Api
from tests.http.site import post, see, work
from tests.servers import Server

SEARCH = "/topics/t/search"


def ticked(page: str) -> list[str]:
    """What the checkboxes would send."""
    return [html.unescape(value) for value in re.findall(r'name="job" value="([^"]*)"', page)]


async def search(site: Api, status: int = 200, **query: str) -> str:
    return await see(site, f"{SEARCH}?{urlencode(query)}", status)


async def test_the_topics_field_takes_an_id_or_a_condition(site: Api, queue: Queue) -> None:
    queue.enqueue("t", {"user": 7}, id="a", delay="1h")
    page = await see(site, "/topics/t")
    assert f'href="{SEARCH}"' in page
    response = await site.client.get("/topics/t/find", params={"id": " body.user=7 "})
    assert response.headers["location"] == f"{SEARCH}?where=body.user%3D7"
    assert ticked(await see(site, response.headers["location"]))[0].endswith(" a")
    for id in ("a", "user=7", "body.a"):
        response = await site.client.get("/topics/t/find", params={"id": id})
        assert response.headers["location"].startswith("/topics/t/jobs/")


async def test_nothing_is_searched_before_something_is_asked(site: Api, queue: Queue) -> None:
    queue.enqueue("t", 1, id="a", delay="1h")
    assert "job found" not in await see(site, SEARCH)
    assert "1 job found" in await search(site, where="")
    assert "No job matches." in await search(site, state="dead")
    await see(site, "/topics/none/search", 404)


async def test_the_form_has_the_words_of_the_command_line(site: Api, queue: Queue) -> None:
    queue.configure("t", groups=["default", "audit"])
    queue.enqueue_many("t", (NewJob({"n": n}, id=f"j{n}", delay=60 * (n + 1)) for n in range(9)))
    page = await search(site, state="delayed", group="audit", due_until="5m30s", where="body.n>1\r\n\r\nbody.n!=3")
    assert {value.partition(" ")[2] for value in ticked(page)} == {"j2", "j4"}
    assert "<option selected>delayed</option>" in page
    assert "body.n&gt;1" in page
    assert {value.partition(" ")[2] for value in ticked(await search(site, id_prefix="j5"))} == {"j5"}


@pytest.mark.parametrize(
    "query", [{"where": "user=1"}, {"due_from": "soon"}, {"state": "gone"}, {"after": "x", "key": ""}]
)
async def test_what_cannot_be_read_is_reported_beside_the_form(site: Api, queue: Queue, query: dict[str, str]) -> None:
    queue.enqueue("t", 1, delay="1h")
    page = await search(site, 422, **query)
    assert 'role="alert"' in page
    assert 'name="where"' in page


async def test_a_long_search_goes_on(site: Api, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.http.pages.find._MOST", 1)
    queue.enqueue_many("t", (NewJob(n, id=f"j{n}", delay="1h") for n in range(1200)))
    page, ids = await search(site, where=""), set[str]()
    for _ in range(20):
        ids |= {value.partition(" ")[2] for value in ticked(page)}
        following = re.search(r'href="([^"]*)" rel="next"', page)
        if following is None:
            break
        page = await see(site, html.unescape(following[1]))
    assert ids == {f"j{n}" for n in range(1200)}


async def test_the_buttons_act_on_exactly_what_was_shown(site: Api, queue: Queue, redis_server: Server) -> None:
    queue.enqueue_many("t", (NewJob(n, id=f"dead-{n}") for n in range(3)))
    await work(redis_server, error="boom")
    queue.enqueue_many("t", (NewJob(n, id=f"j {n}", delay="1h") for n in range(4)))
    shown = ticked(await search(site, id_prefix="j"))
    queue.reschedule("t", "j 1", delay="2h")
    done = await post(site, f"{SEARCH}/cancel", job=shown, id_prefix="j", state="", where="")
    page = await see(site, done.headers["location"])
    assert "Cancelled: 3. Left alone: 1" in page
    (left,) = ticked(page)
    assert left.endswith(" j 1")
    for delay in (" ", "<soon>"):
        wrong = await post(site, f"{SEARCH}/reschedule", job=left, delay=delay, id_prefix="j")
        assert wrong.status_code == 422
        assert re.search(r'name="delay"[^>]*aria-invalid="true".*?role="alert">[^<]+<', wrong.text)
        assert ticked(wrong.text), "the search is shown again"
    assert "Rescheduled: 1." in await see(
        site, (await post(site, f"{SEARCH}/reschedule", job=left, delay="3h")).headers["location"]
    )
    dead = sorted(ticked(await search(site, state="dead")))
    assert "Sent back: 1." in await see(
        site, (await post(site, f"{SEARCH}/kick", job=dead[0], group="default")).headers["location"]
    )
    purged = (await post(site, f"{SEARCH}/purge", job=dead)).headers["location"]
    assert "Deleted permanently: 2. Left alone: 1" in await see(site, purged)
    assert (await post(site, f"{SEARCH}/kick", job="made-up")).status_code == 422
    assert queue.audit().balanced


async def test_who_sees_which_buttons(open_api: Open, queue: Queue) -> None:
    queue.enqueue("t", 1, id="a", delay="1h")
    names = {"viewer": [Role.VIEWER], "clerk": [Role.VIEWER, Role.PRODUCER], "admin": [Role.ADMIN]}
    tokens = {name: new_token(name, roles) for name, roles in names.items()}
    tokens["partly"] = new_token("partly", [Role.ADMIN], groups="default")
    site = await open_api(tokens=Tokens.parse("\n".join(line for _, line in tokens.values())))
    site.client.headers["Origin"] = "http://localhost"
    buttons = {"viewer": [], "clerk": ["Cancel", "Reschedule"], "admin": ["Cancel", "Reschedule", "Retry", "Purge"]}
    shown = ["0.0123456789abcdef a"]
    for name, (token, _) in tokens.items():
        await post(site, "/login", token=token)
        if name == "partly":
            assert SEARCH not in await see(site, "/topics/t")
            await see(site, SEARCH, 403)
            continue
        page = await search(site, where="")
        assert [how for how in buttons["admin"] if f"{how} selected…" in page] == buttons[name]
        for how in buttons["admin"]:
            response = await post(site, f"{SEARCH}/{'kick' if how == 'Retry' else how.lower()}", job=shown, delay="1h")
            assert (response.status_code == 403) is (how not in buttons[name])
