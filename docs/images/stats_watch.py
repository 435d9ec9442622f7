"""Takes the picture docs/images/stats-watch.svg: what `streamdq stats --watch` shows of the compose example's
shop, which runs here for some seconds on a Redis of its own. `make picture`.
"""

from __future__ import annotations

import io
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from examples.compose.customers import order
from streamdq import NewJob, Queue
from streamdq.terminal import stats_view

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "compose"
PICTURE = Path(__file__).with_name("stats-watch.svg")
_WIDTH = 108
_CUSTOMERS = 1500
_UNPAID_AFTER = "8s"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded://{directory}"
        with Queue(url) as queue:
            command = "import sys; from streamdq.cli import main; sys.exit(main())"
            words = ["--url", url, "worker", "shop:worker", "--log-level", "error"]
            worker = subprocess.Popen([sys.executable, "-c", command, *words], cwd=EXAMPLE)
            try:
                _trade(queue)
                PICTURE.write_text(_picture(queue), encoding="utf-8")
            finally:
                worker.send_signal(signal.SIGTERM)
                worker.wait(15)
    sys.stdout.write(f"{PICTURE.relative_to(ROOT)}\n")


def _trade(queue: Queue) -> None:
    """As the example's customers do, faster: until orders have come due, and payments failed into each step."""
    chance = random.Random(4)  # noqa: S311 - the same shop each time
    queue.enqueue_many("sms.remind", (NewJob(body={"slot": slot}, delay="14h") for slot in range(1200)))
    queue.enqueue_many("report.mail", (NewJob(body={"customer": number}) for number in range(80)))
    queue.pause("report.mail")
    for number in range(1000, 1000 + _CUSTOMERS):
        order(queue, number, chance, _UNPAID_AFTER)
        time.sleep(0.01)


def _picture(queue: Queue) -> str:
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ streamdq stats --watch", "bold"))
    console.print(stats_view(queue.stats()))
    svg = console.export_svg(title="streamdq stats --watch")
    # No fonts from elsewhere: the reader's own will do, at the widths that the picture states.
    svg = re.sub(r"\s*@font-face \{.*?\}\n", "\n", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


if __name__ == "__main__":
    main()
