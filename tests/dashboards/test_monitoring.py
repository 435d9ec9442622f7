"""docs/monitoring.md: its configuration is what the real programs take, and finds what the page starts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dashboards.__main__ import built
from dashboards.alerts import alerts
from dashboards.promql import Scale
from tests.conftest import BINARIES
from tests.dashboards.live import Prometheus
from tests.dashboards.tools import needs_prometheus, needs_promtool
from tests.docs.reader import ROOT, Reader, blocks, commands
from tests.docs.test_console import WORKER
from tests.servers import Server
from tests.waiting import HANG_S

PAGE = ROOT / "docs" / "monitoring.md"
RUNBOOK = "https://wiki.example.com/streamdq"


def config(name: str) -> str:
    (text,) = (block.text for block in blocks(PAGE) if block.file == name)
    return text


def test_each_alert_has_its_place_among_those_that_fire_together() -> None:
    table = PAGE.read_text().partition("## When several fire")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"#(streamdq\w+)", table)) == sorted(alert.anchor for alert in alerts(Scale()))


@needs_promtool
def test_prometheus_takes_its_configuration_with_the_rules_that_it_says_to_build(tmp_path: Path) -> None:
    make = next(one.line for block in blocks(PAGE) for one in commands(block) if one.line.startswith("make dashboards"))
    assert make.partition("PAGES=")[2] == RUNBOOK
    (rules,) = (text for path, text in built(RUNBOOK).items() if path.name == "streamdq.rules.yml")
    (tmp_path / "streamdq.rules.yml").write_text(rules)
    (tmp_path / "prometheus.yml").write_text(config("prometheus.yml"))
    done = subprocess.run(
        ["promtool", "check", "config", "prometheus.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    linked = {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for group in yaml.safe_load(rules)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert linked == {alert.name: f"{RUNBOOK}/{alert.page}#{alert.anchor}" for alert in alerts(Scale())}


@pytest.mark.skipif(
    shutil.which("amtool") is None, reason="no amtool (Debian: apt-get install prometheus-alertmanager)"
)
def test_alertmanager_takes_its_routes(tmp_path: Path) -> None:
    (tmp_path / "alertmanager.yml").write_text(config("alertmanager.yml"))
    for severity, receiver in (("page", "on-call"), ("ticket", "tickets")):
        words = ["config", "routes", "test", "--config.file=alertmanager.yml", f"severity={severity}"]
        done = subprocess.run(["amtool", *words], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S)
        assert done.stdout.strip() == receiver, done.stderr


@pytest.mark.thorough  # what the page's commands print is compared by tests/docs/test_console.py
@needs_prometheus
@pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine")
def test_prometheus_finds_what_the_page_starts(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/jobs.py").write_text(WORKER)
    (start,) = (block for block in blocks(PAGE) if "streamdq exporter" in block.text and block.language == "console")
    with Server(BINARIES[-1]) as server:
        reader = Reader(tmp_path, server.url)
        try:
            for command in commands(start):
                reader.type(command.line)
            scraped = yaml.safe_load(reader.here(config("prometheus.yml")))["scrape_configs"]
            targets = {one["job_name"]: one["static_configs"][0]["targets"][0] for one in scraped}
            with Prometheus(tmp_path, targets) as prometheus:
                prometheus.awaits(lambda: {*targets} - {*prometheus.values("up == 1", "job")}, "not scraped")
                prometheus.awaits(lambda: [] if prometheus.query("streamdq_up == 1") else ["Redis"], "not read")
                served = 'streamdq_consumers{topic="order.close"} > 0'
                prometheus.awaits(lambda: [] if prometheus.query(served) else ["worker"], "not known")
        finally:
            if sys.exc_info()[0] is not None:
                sys.stderr.write(reader.seen)
                reader.kill()
        reader.stop()
