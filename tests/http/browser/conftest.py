"""One browser, one server and one worker for a module: while the browser is open, its event loop runs in here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamdq import Queue
from tests.children import child
from tests.conftest import BINARIES
from tests.http.browser.window import ADMIN, CHROMIUM, VIEWER, WAIT_MS, Page
from tests.http.live import Live
from tests.servers import Pool, Server

WORKER = """
from streamdq import Bury, Worker
worker = Worker()

@worker.handler("notify", retry="none")
async def notify(order: dict) -> None:
    if order.get("fails"):
        raise Bury(order["fails"])
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None or not BINARIES:
        pytest.skip("no Chromium, or no Redis server, here")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=WAIT_MS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def server(servers: Pool) -> Server:
    return servers[BINARIES[-1]]


@pytest.fixture(scope="module")
def live(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """With tokens, and a worker process of its own."""
    server.flush()
    directory: Path = tmp_path_factory.mktemp("browser")
    (directory / "tokens").write_text(f"{ADMIN[1]}\n{VIEWER[1]}\n")
    (directory / "shop.py").write_text(WORKER)
    command = [sys.executable, "-c", "import sys; from streamdq.cli import main; sys.exit(main())"]
    worker = [*command, "--url", server.url, "worker", "shop:worker"]
    with (
        Live(server.url, "--tokens-file", str(directory / "tokens")) as running,
        child(worker, cwd=directory, stderr=subprocess.DEVNULL),
    ):
        yield running


@pytest.fixture
def queue(live: Live, server: Server) -> Iterator[Queue]:  # noqa: ARG001 - the worker runs
    with Queue(server.url) as opened:
        for topic in opened.stats().topics:
            opened.purge(topic, all=True)
            opened.resume(topic)
        for one in opened.schedules():
            opened.unschedule(one.topic, one.id)
        yield opened


@pytest.fixture
def ann(browser: Any, live: Live) -> Iterator[Page]:
    """An admin."""
    page = Page(browser, live)
    yield page
    page.close()


@pytest.fixture
def watching(browser: Any, live: Live) -> Iterator[Page]:
    """An admin whose page is live."""
    page = Page(browser, live, still=False)
    yield page
    page.close()
