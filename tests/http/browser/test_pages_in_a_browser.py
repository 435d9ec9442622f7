"""The web page in a browser: Chromium, against the server, Redis and workers as they really are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streamdq import NewJob, Queue
from tests.http.browser.window import Page, bury
from tests.http.live import Live

pytestmark = [pytest.mark.thorough]
EVIL = "<img src=x onerror=alert(1)>"
READ_OUT = """() => {
  window.readOut = 0;
  new MutationObserver((found) => { window.readOut += found.length; })
    .observe(document.getElementById("live-state"), { childList: true, characterData: true, subtree: true });
}"""


def test_the_topics_live(watching: Page, queue: Queue) -> None:
    watching.go("/")
    watching.sees("live", "#live-state")
    watching.page.evaluate(READ_OUT)
    queue.enqueue_many("orders", (NewJob(n, delay=30 * n + 600) for n in range(40)))
    watching.sees("orders", "table")  # without a reload
    watching.sees("40 due within 1h")
    assert watching.page.evaluate("window.readOut") == 0, "what did not change is not read out again"
    watching.click("1w", "link")
    watching.sees("40 due within 1w")
    assert watching.page.locator("svg.chart .bar").count() == 1
    watching.click("orders", "link")
    watching.sees("orders", "h1")
    watching.sees("Delayed jobs")


def test_cancel_asks_first(ann: Page, queue: Queue) -> None:
    queue.enqueue("notify", {"n": 1}, id="a", delay="1h")
    ann.go("/topics/notify/jobs/a")
    ann.page.locator("summary", has_text="Cancel").click()
    ann.page.keyboard.press("Escape")
    assert not ann.page.get_by_role("button", name="Cancel the job").is_visible()
    ann.page.locator("summary", has_text="Cancel").click()
    ann.click("Cancel the job")
    ann.sees("The job is cancelled.", ".note")
    assert queue.get("notify", "a") is None


def test_what_a_search_shows_is_acted_on(ann: Page, queue: Queue) -> None:
    queue.enqueue_many("orders", (NewJob({"user": n % 2}, id=f"s-{n}", delay="1h") for n in range(4)))
    ann.go("/topics/orders")
    ann.page.keyboard.press("/")
    ann.page.keyboard.type("body.user=1")
    ann.page.keyboard.press("Enter")
    ann.sees("2 jobs found")
    ann.page.get_by_label("Select s-3", exact=True).uncheck()
    ann.page.get_by_text("Reschedule selected…").click()
    ann.page.fill('input[name="delay"]', "5h")
    ann.page.keyboard.press("Enter")  # it reschedules: no other button may be pressed by this
    ann.sees("Rescheduled: 1.")
    ann.page.get_by_label("Select all that are shown").uncheck()
    ann.page.get_by_text("Cancel selected…").click()
    assert ann.page.get_by_role("button", name="Cancel selected", exact=True).is_disabled()
    dues = {id: job.due_ms for id in ("s-1", "s-3") if (job := queue.get("orders", id))}
    assert dues["s-1"] > dues["s-3"]


def test_dead_letters(watching: Page, queue: Queue) -> None:
    bury(queue, *(f"j{n}" for n in range(5)), error=f"{EVIL} refused")
    watching.go("/topics/notify?state=dead")
    watching.sees(f"{EVIL} refused", "table")
    assert watching.page.get_by_role("button", name="Retry selected").is_disabled()
    queue.pause("notify")  # kicked jobs should stay where it can be counted
    watching.page.check('input[value="j0"]')
    watching.sees("paused while you use the page", "#live-state")
    watching.page.check('input[value="j1"]')
    watching.click("Retry selected")
    watching.sees("Sent back: 2.", ".note")
    assert queue.stats("notify").dead == 3
    watching.page.check('input[value="j2"]')
    watching.page.locator("summary", has_text="Purge selected").click()
    watching.page.locator(".confirm-box").get_by_role("button", name="Purge selected").click()
    watching.sees("Deleted permanently: 1.", ".note")
    watching.page.locator("summary", has_text="Retry or purge all 2").click()
    watching.click("Retry all")
    watching.sees("Sent back: 2.", ".note")
    watching.sees("No dead letters.")
    assert queue.audit().balanced


def test_pause_and_resume_by_keyboard(ann: Page, queue: Queue) -> None:
    queue.enqueue("notify", {"n": 1}, delay="1h")
    ann.go("/topics/notify")
    for name, badges in (("Pause", 1), ("Resume", 0)):
        for _ in range(40):
            ann.page.keyboard.press("Tab")
            if ann.page.evaluate("document.activeElement.textContent") == name:
                break
        ann.page.keyboard.press("Enter")
        ann.page.wait_for_url(re.compile(name.lower()))
        assert ann.page.locator(".page-head .badge.paused").count() == badges
    assert not queue.stats("notify").topics["notify"].paused


def test_a_schedule_runs_now_and_is_removed(watching: Page, queue: Queue) -> None:
    queue.schedule("notify", {"n": 1}, id="nightly", cron="0 3 * * *", tz="Europe/Paris")
    watching.go("/")
    watching.click("Schedules", "link")
    watching.sees("At 03:00 every day", "table")
    watching.page.locator("summary", has_text="Actions").click()
    watching.click("Run now")
    watching.sees("A job is enqueued", ".note")
    watching.sees("done", "table")  # the worker ran it, and the page shows it by itself
    watching.page.locator("td[data-label='last run'] a").click()
    watching.sees("nightly@", "h1")
    watching.go("/schedules")
    watching.page.locator("summary", has_text="Actions").click()
    watching.page.keyboard.press("Escape")
    assert not watching.page.get_by_role("button", name="Remove").is_visible()
    watching.page.locator("summary", has_text="Actions").click()
    watching.click("Remove")
    watching.sees("The schedule is removed.", ".note")
    assert queue.schedules() == []


def test_two_browsers_kick_the_same_job_once(browser: Any, live: Live, ann: Page, queue: Queue) -> None:
    bury(queue, "both")
    queue.pause("notify")
    other = Page(browser, live)
    for page in (ann, other):
        page.go("/topics/notify?state=dead")
        page.page.check('input[value="both"]')
    ann.click("Retry selected")
    ann.sees("Sent back: 1.", ".note")
    other.click("Retry selected")
    other.sees("Nothing was changed", ".note")
    assert [row.event for row in queue.history("notify").rows if row.id == "both"] == ["dead", "kicked"]
    assert queue.audit().balanced
    other.close()


def test_what_others_wrote_is_text(ann: Page, queue: Queue) -> None:
    queue.enqueue(EVIL.replace(" ", "/"), {"a": EVIL}, id=EVIL, delay="1h")
    for path in ("/", "/topics/%3Cimg%2Fsrc=x%2Fonerror=alert(1)%3E"):
        ann.go(path)
        ann.sees("onerror")
    ann.page.get_by_role("link", name=EVIL).click()
    ann.sees(EVIL, "h1")
    ann.sees(EVIL, "pre")
    assert ann.page.locator("img[src=x]").count() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390), ("light", 360), ("dark", 1180)])
def test_pages_fit_and_can_be_read(browser: Any, live: Live, queue: Queue, scheme: str, width: int) -> None:
    queue.schedule(
        "notify", {}, id="x" * 120, cron="*/15 8-18 * * MON#1", tz="America/Argentina/Buenos_Aires", jitter="5m"
    )
    queue.trigger("notify", "x" * 120)
    bury(queue, "x" * 120, error="ConnectionError: " + "merchant.example/" * 12)
    name = f"{'x' * 100}-{scheme}-{width}"
    with queue.flow(name) as flow:
        parts = [flow.enqueue("notify", {"n": n}, delay="1h") for n in range(3)]
        flow.enqueue("notify", {"n": 4}, after=parts)
        flow.enqueue("notify", {"n": 5}, after=parts[:1])
    page = Page(browser, live, color_scheme=scheme, viewport={"width": width, "height": 800})
    job = f"/topics/notify/jobs/{'x' * 120}"
    still = {"/topics/notify/search?where=": "Search jobs", "/topics/notify/settings": "Settings",
             "/failed/plan?do=purge": "Purge", "/job?id=none": "none"}  # fmt: skip
    for path in ("/", "/schedules", "/workers", "/failed", "/topics/notify?state=dead", job, f"/flows/{name}", *still):
        page.go(path)
        page.sees(*((still[path], "h1") if path in still else ("live", "#live-state")))
        for folded in page.page.locator(".times-after summary, .actions summary").all():
            folded.click()
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.page.evaluate(CONTRAST) > 4.5, path
    queue.cancel_flow(name)
    page.complaints = [text for text in page.complaints if "404" not in text]  # of /job?id=none
    page.close()


NAMELESS = """() => [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary")]
  .filter((one) => one.getClientRects().length && !one.labels?.length && !one.getAttribute("aria-label")
    && !one.textContent.trim() && !one.querySelector("img[alt]:not([alt=''])"))
  .map((one) => one.outerHTML)"""


def test_all_can_be_reached_and_is_named_and_the_focus_is_seen(ann: Page, queue: Queue) -> None:
    bury(queue, "j0", "j1")
    for path in ("/", "/failed", "/workers", "/topics/notify?state=dead", "/topics/notify/settings"):
        ann.go(path)
        assert ann.page.evaluate(NAMELESS) == [], path
        ann.page.evaluate("document.body.focus()")
        reached = set()
        for _ in range(80):
            ann.page.keyboard.press("Tab")
            found = ann.page.evaluate(FOCUSED)
            if found["id"] in reached:
                break
            assert found["seen"], (path, found["id"])
            reached.add(found["id"])
        assert ann.page.evaluate(UNREACHED) == [], path


# What has the focus, and whether one sees that.
FOCUSED = """() => {
  const one = document.activeElement;
  window.tabbed = window.tabbed || [];
  if (!window.tabbed.includes(one)) window.tabbed.push(one);
  const style = getComputedStyle(one);
  return {id: window.tabbed.indexOf(one) + " " + one.outerHTML.slice(0, 80),
          seen: one === document.body || style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2};
}"""
UNREACHED = """() => [
  ...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")
].filter((one) => one.checkVisibility() && !one.disabled && !window.tabbed.includes(one)).map((one) => one.outerHTML)"""


def test_tables_are_sorted_by_keyboard_and_stay_so(watching: Page, queue: Queue) -> None:
    bury(queue, "b", "c", "a")
    watching.go("/failed")
    watching.sees("no such order", "table")
    ids = watching.page.locator("tbody th a")
    watching.page.get_by_role("button", name="id", exact=True).focus()
    watching.page.keyboard.press("Enter")
    assert ids.all_text_contents() == ["a", "b", "c"]
    assert watching.page.locator("th[aria-sort='ascending']").count() == 1
    watching.page.keyboard.press("Enter")
    assert ids.all_text_contents() == ["c", "b", "a"]
    with watching.page.expect_response(lambda answer: "/failed" in answer.url):
        pass
    watching.page.wait_for_function("document.querySelector('th[aria-sort=descending] .sort') !== null")
    assert ids.all_text_contents() == ["c", "b", "a"], "what was refreshed is sorted likewise"


def test_times_in_the_reader_s_zone(browser: Any, live: Live, queue: Queue) -> None:
    queue.enqueue("notify", {}, id="at", at=1_900_000_000_000)
    page = Page(browser, live, timezone_id="Asia/Kolkata")
    page.go("/topics/notify")
    page.sees("2030-03-17 17:46:40.000", "table")
    page.click("Show local times")
    page.sees("2030-03-17 23:16:40.000", "table")
    page.sees("Asia/Calcutta" if page.page.evaluate(ZONE) == "Asia/Calcutta" else "Asia/Kolkata", "footer")
    page.go("/topics/notify")
    page.sees("2030-03-17 23:16:40.000", "table")
    page.click("Show UTC")
    page.sees("2030-03-17 17:46:40.000", "table")
    page.close()


ZONE = "Intl.DateTimeFormat().resolvedOptions().timeZone"


def test_without_a_script_everything_can_be_read(browser: Any, live: Live, queue: Queue) -> None:
    bury(queue, "j0")
    page = Page(browser, live, java_script_enabled=False)
    for path, text in {"/": "notify", "/workers": "worker", "/topics/notify?state=dead": "no such order",
                       "/topics/notify/jobs/j0": "Timeline", "/topics/notify/settings": "TTR"}.items():  # fmt: skip
        page.go(path)
        page.sees(text, "main")
        assert not page.page.get_by_role("button", name="Show local times").is_visible()
    page.close()


# The least contrast (WCAG) of any text to the first background behind it; disabled buttons aside.
CONTRAST = """() => {
  const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return {r, g, b, a}; };
  const light = ({r, g, b}) => {
    const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  let least = 99;
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    if (element.closest("button:disabled, svg, .hidden, .skip") || element.getClientRects().length === 0) continue;
    let behind = element;
    while (behind && parse(getComputedStyle(behind).backgroundColor).a === 0) behind = behind.parentElement;
    if (!behind) continue;
    const a = light(parse(getComputedStyle(element).color)), b = light(parse(getComputedStyle(behind).backgroundColor));
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
}"""
