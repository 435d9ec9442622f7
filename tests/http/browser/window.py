"""The web page in a browser: Chromium, against the server, Redis and workers as they really are."""

from __future__ import annotations

import re
import shutil
from typing import Any

from streamdq import NewJob, Queue
from streamdq.http.auth import Role, new_token
from tests.http.live import Live
from tests.waiting import HANG_S, until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

WAIT_MS = HANG_S * 1000
STILL = """addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id === "live") { event.preventDefault(); event.stopImmediatePropagation(); }
}, true)"""
ADMIN, VIEWER = (new_token(name, [role]) for name, role in (("ann", Role.ADMIN), ("vic", Role.VIEWER)))


class Page:
    """A browser window of someone who is signed in. What its scripts complain of is kept. ``still``: what it shows is
    replaced by no news.
    """

    def __init__(
        self, browser: Any, live: Live, token: str | None = ADMIN[0], *, still: bool = True, **options: Any
    ) -> None:
        self.context = browser.new_context(base_url=live.url, **options)
        if still:
            self.context.add_init_script(STILL)
        self.context.set_default_timeout(WAIT_MS)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self._note_message(message))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        if token:
            self.go("/")
            assert "/login" in self.page.url
            self.page.fill("#token", token)
            self.page.keyboard.press("Enter")
            self.sees("Topics", "h1")

    def _note_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def go(self, path: str) -> None:
        self.page.goto(path)

    def sees(self, text: str | re.Pattern[str], selector: str = "body") -> None:
        """Waits for it: pages are live."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector).first).to_contain_text(text, timeout=WAIT_MS)

    def click(self, name: str, role: str = "button") -> None:
        self.page.get_by_role(role, name=name, exact=True).click()

    def close(self) -> None:
        self.context.close()
        assert self.complaints == []


def bury(queue: Queue, *ids: str, error: str = "no such order") -> None:
    """By the worker: they are dead when this returns."""
    queue.enqueue_many("notify", (NewJob({"fails": error}, id=id) for id in ids))
    until(lambda: queue.stats("notify").dead >= len(ids), "the worker has buried them")
