"""The page of a flow: what it shows, its buttons, and the ways to it."""

from __future__ import annotations

import asyncio
import re

import pytest

from streamdq import NewJob, Queue, Worker
from streamdq.http import Tokens
from streamdq.http.auth import Role, new_token
from streamdq.http.pages.flow_chart import MOST_BOXES, by_kind, chart_of, facts_of
from streamdq.http.pages.flow_path import MOST_STEPS, path_of
from streamdq.job.flow import FlowStage, FlowStep, FlowTimes
from tests.http.conftest import Open
from tests.http.harness import NAMESPACE, Api
from tests.http.site import post, see
from tests.servers import Server
from tests.waiting import eventually

PAGE = "/flows/report-7"


def build(queue: Queue, name: str = "report-7", parts: int = 3) -> None:
    with queue.flow(name) as flow:
        made = flow.enqueue_many("part", (NewJob({"n": n}, id=f"p{n}", retry="none") for n in range(parts)))
        join = flow.enqueue("join", {"x": 1}, id="join", after=made)
        flow.enqueue("mail", {"x": 1}, after=join, on_failure="run", delay="10m")


async def served(server: Server, queue: Queue, name: str, state: str) -> None:
    """A worker runs until the flow is in this state: the part 1 fails, unless it was kicked."""
    worker = Worker(server.url, NAMESPACE)
    failed = set[int]()

    @worker.handler("part")
    async def part(body: dict[str, int]) -> None:
        if body["n"] == 1 and 1 not in failed:
            failed.add(1)
            raise ValueError("as told")

    for topic in ("join", "mail"):
        worker.handler(topic)(nothing)
    serving = asyncio.create_task(worker.serve())
    await eventually(lambda: (found := queue.flow_status(name)) and found.state.value == state, state)
    worker.stop()
    await serving


async def nothing(_: dict[str, int]) -> None: ...


async def test_what_it_shows_of_a_flow_that_has_begun(site: Api, queue: Queue) -> None:
    build(queue, parts=1200)
    page = await see(site, PAGE)
    assert "1,202 jobs in 3 stages" in page
    assert page.count('<rect class="box"') == 3
    assert page.count('class="edge critical"') == 2
    assert page.count('class="open"') == 1  # the first job of the path may begin
    assert "before these jobs have ended, one after the other" in page
    assert "1,200 waiting" in page
    assert "not refreshed by itself" in page
    assert "hx-get" not in page
    assert "Cancel the flow" in page
    assert "Retry" not in page
    assert '<td data-label="on failure">run</td>' in page


async def test_a_blocked_flow_is_retried(site: Api, queue: Queue, redis_server: Server) -> None:
    build(queue)
    await served(redis_server, queue, "report-7", "blocked")
    page = await see(site, PAGE)
    assert "waits for jobs that have failed" in page
    assert "2 done · 1 dead" in page
    assert "1 dead letter of this flow is sent back" in page
    assert 'hx-get="/flows/report-7"' in page
    done = await post(site, f"{PAGE}/retry")
    assert "Sent back: 1." in await see(site, done.headers["location"])
    job = queue.get("part", "p1")
    assert job
    assert job.state.value == "ready"


async def test_a_flow_is_cancelled(site: Api, queue: Queue) -> None:
    build(queue)
    done = await post(site, f"{PAGE}/cancel")
    assert "none of its jobs starts any more" in await see(site, done.headers["location"])
    assert list(queue.find("part")) == []


async def test_one_that_has_ended(site: Api, queue: Queue, redis_server: Server) -> None:
    with queue.flow("report-7") as flow:
        flow.enqueue("join", {"x": 1}, after=flow.enqueue("mail", {"x": 1}))
    await served(redis_server, queue, "report-7", "done")
    page = await see(site, PAGE)
    assert re.search(r"<span>ended <time .*?</time>, after \d+", page)
    assert "These jobs decided when the flow ended." in page
    assert len(re.findall(r"waited [\dms.]+, ran [\dms.]+</p>", page)) == 2
    assert len(re.findall(r">waited [\dms.]+ · ran [\dms.]+</text>", page)) == 2
    assert "Cancel the flow" not in page
    assert "refreshed by itself" not in page
    assert "Nothing comes due within 1w." in await see(site, "/?horizon=1w")  # it is forgotten then, and starts nothing
    assert queue.upcoming(windows=["7d"]) == {"7d": 0}


async def test_one_that_is_being_built(site: Api, queue: Queue) -> None:
    queue.flow("report-7").__enter__()
    assert "nothing of it has started" in await see(site, PAGE)


async def test_one_that_never_was(site: Api) -> None:
    assert (await site.client.get("/flows/none")).status_code == 404
    for what in ("cancel", "retry"):
        assert (await post(site, f"/flows/none/{what}")).status_code == 404


async def test_the_ways_to_it(site: Api, queue: Queue) -> None:
    build(queue, "a/b <c>")
    page = await see(site, "/topics/part/jobs/p1")
    assert '<a href="/flows/a%2Fb%20%3Cc%3E">a/b &lt;c&gt;</a>' in page
    assert "1 job waits for it" in page  # the join; not the flow itself
    found = await site.client.get("/job", params={"id": "a/b <c>"})
    assert found.headers["location"] == "/topics/streamdq.flows/jobs/a%2Fb%20%3Cc%3E"
    led = await site.client.get(found.headers["location"])
    assert (led.status_code, led.headers["location"]) == (303, "/flows/a%2Fb%20%3Cc%3E")
    assert '<h1 class="name">a/b &lt;c&gt;</h1>' in await see(site, led.headers["location"])


async def test_a_job_s_page_shows_first_what_has_not_been_done(site: Api, queue: Queue, redis_server: Server) -> None:
    build(queue, parts=30)
    await served(redis_server, queue, "report-7", "blocked")
    page = await see(site, "/topics/join/jobs/join")
    assert "Waits for 30 jobs" in page
    assert "29 done, 1 failed" in page
    shown = re.findall(r"part / (p\d+)</a>", page)
    assert (shown[0], len(shown)) == ("p1", 10)
    assert "And 20 more." in page
    assert "Waits for" not in await see(site, "/topics/part/jobs/p1")


async def test_who_may(open_api: Open, queue: Queue) -> None:
    build(queue)
    made = {
        "viewer": new_token("viewer", [Role.VIEWER]),
        "both": new_token("both", [Role.VIEWER, Role.PRODUCER]),
        "topics": new_token("topics", list(Role), topics="part,join,mail"),
    }
    tokens = Tokens.parse("\n".join(line for _, line in made.values()))
    found = {}
    for name, (token, _) in made.items():
        api = await open_api(tokens=tokens)
        await api.client.post("/login", data={"token": token}, headers={"Origin": "http://localhost"})
        codes = [(await api.client.get(PAGE)).status_code]
        codes += [(await post(api, f"{PAGE}/{what}")).status_code for what in ("retry", "cancel")]
        job = await see(api, "/topics/part/jobs/p1") if name != "both" else ""
        found[name] = [*codes, "/flows/" in job]
    assert found == {
        "viewer": [200, 403, 403, True], "both": [200, 403, 303, False], "topics": [403, 403, 403, False],
    }  # fmt: skip


async def test_forms_of_other_sites_are_refused(site: Api, queue: Queue) -> None:
    build(queue)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://elsewhere.example"}
    assert (await site.client.post(f"{PAGE}/cancel", headers=headers)).status_code == 403


# -- the chart


def test_a_path_is_drawn_along_the_time_that_the_flow_took() -> None:
    steps = (
        FlowStep("a", "1", 0, "done", 0, 250, 250, 500),
        FlowStep("b", "2", 1, "done", 500, 0, 400, 900),
        FlowStep("c", "3", 2, "done", 900, 50, 50, 1000),
    )
    path = path_of(FlowTimes(0, 1000, (), steps), 9000)
    assert (path.took_ms, path.waited_ms, path.ran_ms, path.left_out) == (1000, 300, 700, 0)
    assert [[(one.kind, one.x, one.width) for one in step.bar] for step in path.steps] == [
        [("worker", 0, 150), ("ran", 150, 150)],
        [("worker", 300, 0), ("ran", 300, 240)],
        [("worker", 540, 30), ("ran", 570, 30)],
    ]


def test_a_long_path_shows_what_took_longest() -> None:
    steps = [FlowStep("a", str(n), n, "done", n, 0, n % 2, n + n % 2) for n in range(2 * MOST_STEPS)]
    path = path_of(FlowTimes(0, 100, (), tuple(steps)), 100)
    assert [one.step.stage for one in path.steps] == [*range(1, 2 * MOST_STEPS, 2)]
    assert path.left_out == MOST_STEPS
    assert all(part.x + part.width <= 600 for one in path.steps for part in one.bar)


def test_of_a_path_that_has_not_ended_the_open_time_is_drawn() -> None:
    steps = (
        FlowStep("a", "1", 0, "running", 0, None, None, None),
        FlowStep("b", "2", 1, "waiting", None, None, None, None),
    )
    first, second = path_of(FlowTimes(0, None, (), steps), 1000).steps
    assert ([(one.kind, one.width) for one in first.bar], first.took_ms) == ([("open", 600)], 1000)
    assert (second.bar, second.took_ms) == ((), None)


def stage(topic: str, *after: int, **counts: int) -> FlowStage:
    return FlowStage(topic, sum(counts.values()), after, "block", counts)


def test_each_stage_is_below_those_that_it_waits_for() -> None:
    chart = chart_of([stage("a", done=1), stage("b", done=1), stage("c", 0, 1, done=1), stage("d", 2, 0, waiting=1)])
    places = {box.topic: (box.x, box.y) for box in chart.boxes}
    assert places["a"][1] == places["b"][1] < places["c"][1] < places["d"][1]
    assert places["a"][0] == places["c"][0] == places["d"][0] < places["b"][0]
    assert len(chart.edges) == 4
    assert all(box.x >= 0 and box.x + chart.box_width <= chart.width for box in chart.boxes)
    assert all(box.y >= 0 and box.y + chart.box_height <= chart.height for box in chart.boxes)


def test_a_stage_is_as_near_as_can_be_to_those_that_wait_for_it() -> None:
    chart = chart_of([stage("a", done=1), stage("late", done=1), stage("b", 0, done=1), stage("c", 1, 2, waiting=1)])
    places = {box.topic: box.y for box in chart.boxes}
    assert places["late"] == places["b"]


def test_a_bar_shows_every_state_however_few_jobs_have_it() -> None:
    (box,) = chart_of([stage("a", done=99_990, dead=3, cancelled=2, running=5)]).boxes
    assert [part.kind for part in box.parts] == ["done", "failed", "running"]
    assert min(part.width for part in box.parts) >= 3
    assert box.parts[-1].x + box.parts[-1].width == pytest.approx(250 - 12, abs=0.1)
    assert box.kind == "failed"


def test_many_stages_are_not_all_drawn() -> None:
    chart = chart_of([stage("a", *([n - 1] if n else []), waiting=1) for n in range(MOST_BOXES + 40)])
    assert (len(chart.boxes), chart.left_out) == (MOST_BOXES, 40)
    wide = chart_of([stage("a", waiting=1) for _ in range(MOST_BOXES)])
    assert wide.width < 1180
    assert len({(box.x, box.y) for box in wide.boxes}) == MOST_BOXES
    assert chart_of([]).boxes == []


def test_states_in_words() -> None:
    counts = {"waiting": 1, "dead": 1_000, "done": 2, "lost": 1, "blocked": 0}
    assert facts_of(counts) == "2 done · 1,000 dead · 1 lost · 1 waiting"
    assert by_kind(counts) == {"done": 2, "failed": 1001, "waiting": 1}
    assert re.fullmatch(
        r".{37}…", chart_of([stage("a" * 60, done=1_000_000, dead=1_000_000, lost=1_000_000)]).boxes[0].facts
    )
