"""A real Prometheus that scrapes real processes."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from dashboards.promql import Scale
from dashboards.rules import rules
from tests.servers import free_port
from tests.waiting import HANG_S, until

ROOT = Path(__file__).parents[2]
SCRAPE_S = 0.5
SCRAPE = f"{SCRAPE_S * 1000:.0f}ms"
SCALE = Scale(1 / 300, shortest_s=3)
"""Five minutes become three seconds, an hour twelve: enough for a few scrapes each."""

Series = list[dict[str, Any]]


class Prometheus:
    """Runs in a directory of its own until it is closed. ``targets``: {job: address}."""

    def __init__(self, directory: Path, targets: Mapping[str, str]) -> None:
        self.port = free_port()
        (directory / "scaled.rules.yml").write_text(rules(SCALE, interval=SCRAPE))
        config = {
            "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE},
            "rule_files": [str(directory / "scaled.rules.yml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [address]}]} for job, address in targets.items()
            ],
        }
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.log = directory / "prometheus.log"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--log.level=warn",
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def ready(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"prometheus ended: {self.log.read_text()}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            return bool(self._get("/-/ready"))
        return False

    def query(self, expr: str) -> Series:
        """The query's result now; an error in the query raises."""
        reply = json.loads(self._get("/api/v1/query?" + urllib.parse.urlencode({"query": expr})))
        assert reply["data"]["resultType"] == "vector", expr
        found: Series = reply["data"]["result"]
        return found

    def values(self, expr: str, label: str) -> dict[str, float]:
        """{the label: value}"""
        return {one["metric"].get(label, ""): float(one["value"][1]) for one in self.query(expr)}

    def firing(self) -> set[str]:
        return set(self.values('ALERTS{alertstate="firing"}', "alertname"))

    def awaits(self, missing: Callable[[], Collection[str]], what: str, within_s: float = HANG_S) -> None:
        """Checks after each scrape until nothing is missing; fails with the names that still are."""
        deadline = time.monotonic() + within_s
        while left := missing():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}, after {within_s} s: {left}")
            time.sleep(SCRAPE_S)  # real time: Prometheus has nothing new to say before, and no way to tell

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=HANG_S) as reply:
            return str(reply.read().decode())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        try:
            until(self.ready, "prometheus is ready")
        except BaseException:  # then no __exit__ ends it
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Shop:
    """The processes of a shop on one Redis, with the addresses at which they are scraped."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.targets: dict[str, str] = {}

    def start(self, name: str, *words: str) -> None:
        """``words``: the command line, with PORT for the port of its metrics."""
        port = free_port()
        with (self._directory / f"{name}.log").open("wb") as output:
            self._processes[name] = subprocess.Popen(
                [sys.executable, *(str(port) if word == "PORT" else word for word in words)],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "STREAMDQ_URL": self._url},
            )
        self.targets[f"streamdq-{name}"] = f"127.0.0.1:{port}"

    def kill(self, name: str) -> None:
        """With -9."""
        self._processes[name].kill()
        self._processes[name].wait()

    def logs(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self._directory.glob("*.log"))

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
