"""Takes the picture of the web page, docs/images/web-page.webp: a shop that runs here for some seconds on a Redis of
its own, after a made-up day. Needs a Chromium. `make picture`.
"""

from __future__ import annotations

import base64
import math
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from streamdq import NewJob, Queue
from streamdq.link.command import Command
from streamdq.link.session import run
from streamdq.queue import store_of
from streamdq.store import namespace

ROOT = Path(__file__).parents[2]
PICTURE = Path(__file__).with_name("web-page.webp")
_WIDTH, _HEIGHT = 1180, 1130
_DAY_MS = 86_400_000
_SEED = 7
_COMMAND = "import sys; from streamdq.cli import main; sys.exit(main())"
_WORKER = """
import asyncio
from streamdq import Bury, Worker
worker = Worker()

@worker.handler("mail.send")
async def send(mail: dict) -> None:
    if mail["to"].startswith("nobody"):
        raise Bury("ConnectionError: smtp.example.com refused the connection")

@worker.handler("order.close", ttr="10m")
async def close(order: dict) -> None:
    await asyncio.sleep(600 if order.get("slow") else 0)
"""
# Chromium takes pictures as PNG, and draws them as WebP.
_AS_WEBP = """async png => {
    const picture = await createImageBitmap(await (await fetch(png)).blob())
    const canvas = Object.assign(document.createElement('canvas'), {width: picture.width, height: picture.height})
    canvas.getContext('2d').drawImage(picture, 0, 0)
    return canvas.toDataURL('image/webp', 0.9)
}"""


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url, chance = f"embedded://{directory}", random.Random(_SEED)  # noqa: S311 - the same shop each time
        (Path(directory) / "shop.py").write_text(_WORKER, encoding="utf-8")
        with Queue(url) as queue, socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
            probe.close()
            _shop(queue, chance)
            with _process(url, directory, "worker", "shop:worker"), _process(url, directory, "serve", "--port", port):
                _until(lambda: queue.stats().dead == 9 and queue.stats("order.close").running == 3)
                _until(lambda: _listens(int(port)))
                PICTURE.write_bytes(_picture(f"http://127.0.0.1:{port}/"))
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}\n")


def _shop(queue: Queue, chance: random.Random) -> None:
    queue.configure("order.close", groups=["default", "audit"], create=True)
    for topic, jobs in (("mail.send", 40_000), ("order.close", 25_000)):
        queue.configure(topic, create=True)
        _made_up_day(queue, topic, jobs, chance)
    queue.enqueue_many(
        "order.close", (NewJob({"order": n}, delay=chance.expovariate(1 / 1500) + 60) for n in range(800))
    )
    queue.enqueue_many("mail.send", (NewJob({"to": f"user{n}"}, delay=chance.uniform(60, 7200)) for n in range(900)))
    queue.enqueue_many("mail.send", (NewJob({"to": f"nobody{n}"}) for n in range(9)))
    queue.enqueue_many("order.close", (NewJob({"order": n, "slow": True}) for n in range(3)))
    queue.configure("report.mail", create=True)
    queue.pause("report.mail")
    queue.enqueue_many("report.mail", (NewJob({"customer": n}, delay="10ms") for n in range(80)))


def _made_up_day(queue: Queue, topic: str, jobs: int, chance: random.Random) -> None:
    """Attempts of the last day, as workers would have noted them."""
    store = store_of(queue)
    shard, now_ms = store.session.keys.shard(topic, 0), run(queue._link, namespace.now_ms(store.session))
    commands = []
    for n in range(jobs):
        at = now_ms - _DAY_MS + int(_DAY_MS * (n + chance.random()) / (jobs + 1))
        late, ran = int(chance.lognormvariate(2, 0.8)), int(chance.lognormvariate(4, 1))
        failed = chance.random() < 0.02 + 0.1 * max(0.0, math.sin(n / jobs * 9)) ** 8
        row = ("retry" if failed else "done", f"job-{n}", "default", 1, 0, "", at - 60_000, at - late - ran, at - ran,
               at - ran, "TimeoutError" if failed else "", "", 60, at)  # fmt: skip
        commands.append((at, Command(shard.history, ("XADD", shard.history, "*", "e", "\x1f".join(map(str, row))))))
    commands.sort(key=lambda one: one[0])
    dated = [
        Command(shard.history, ("XADD", shard.history, f"{at}-{n}", *command.args[3:]))
        for n, (at, command) in enumerate(commands)
    ]
    for first in range(0, len(dated), 500):
        run(queue._link, store.session.call(dated[first : first + 500]))
    first_row = f"{commands[0][0]}-0"
    run(
        queue._link, store.session.call([Command(shard.settings, ("HSET", shard.settings, "history_since", first_row))])
    )


@contextmanager
def _process(url: str, directory: str, *words: str) -> Iterator[None]:
    command = [sys.executable, "-c", _COMMAND, "--url", url, *words, "--log-level", "error"]
    process = subprocess.Popen(command, cwd=directory, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(15)


def _until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not done():
        if time.monotonic() > until:
            raise TimeoutError("the shop does not get to where its picture is taken")
        time.sleep(0.1)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _picture(url: str) -> bytes:
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
        page.goto(url)
        page.locator(".health .dying").wait_for(timeout=30_000)  # the page refreshes itself
        page.locator(".chart.ran .done").first.wait_for(timeout=30_000)
        page.wait_for_timeout(4_000)
        png = base64.b64encode(page.screenshot(clip={"x": 0, "y": 0, "width": _WIDTH, "height": _HEIGHT})).decode()
        drawn: str = browser.new_page().evaluate(_AS_WEBP, f"data:image/png;base64,{png}")
        browser.close()
    return base64.b64decode(drawn.partition(",")[2])


if __name__ == "__main__":
    main()
