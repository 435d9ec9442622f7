"""The web page in a browser: Chromium; more in test_pages_in_a_browser.py."""

from __future__ import annotations

import re

from streamdq import Queue
from tests.http.browser.window import Page

# Programs that read a page give fields a style. No script may copy it to what is new: the page's policy allows none.
REFRESHED_BESIDE_A_STYLE = """() => {
  document.getElementById("delay").style.caretColor = "transparent";
  return new Promise((done) => document.addEventListener("htmx:afterSettle", () => done(true), { once: true }));
}"""


def test_a_job_from_its_making_to_its_end(watching: Page, queue: Queue) -> None:
    queue.enqueue("notify", {"n": 1}, id="order/7", delay="1h")
    watching.go("/topics/notify")
    watching.page.keyboard.press("/")  # goes to the search field
    watching.page.keyboard.type("order/7")
    watching.page.keyboard.press("Enter")
    watching.sees("order/7", "h1")
    watching.sees("Attempt 1 to come")
    watching.sees('"n": 1', "pre")
    watching.page.evaluate(REFRESHED_BESIDE_A_STYLE)
    watching.page.fill("#delay", "2h")
    watching.click("Reschedule")
    watching.sees("new due time", ".note")
    watching.sees(re.compile(r"Due in 1h5\dm"))
    watching.page.fill("#delay", "0")
    watching.click("Reschedule")
    watching.sees("done", ".timeline")  # the worker ran it, and the page shows it by itself
    watching.sees(re.compile(r"On time: it started .* after it was due\.|Late by .*: it waited"), ".timeline")
    watching.sees("The job has ended")
    assert watching.page.locator("svg.gantt rect").count() == 3
