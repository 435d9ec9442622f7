"""The rules as Prometheus itself sees them."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.alerts import alerts
from dashboards.promql import Scale
from dashboards.rules import rules
from tests.dashboards.tools import needs_promtool
from tests.turns import others_later
from tests.waiting import HANG_S

FOLDER = Path(__file__).parent / "rules"
CASES = sorted(FOLDER.glob("*.yml"))
SCALED = "a_second_for_a_minute.yml"
FROM_CASES = "../../../dashboards/prometheus/streamdq.rules.yml"
RULES = Path(__file__).parents[2] / "dashboards" / "prometheus" / "streamdq.rules.yml"


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_prometheus_takes_the_rules_and_those_for_another_scale(tmp_path: Path) -> None:
    scaled = tmp_path / "scaled.yml"
    scaled.write_text(rules(Scale(1 / 60, shortest_s=2)))
    promtool("check", "rules", RULES, scaled)


@needs_promtool
@pytest.mark.parametrize("case", others_later([case.name for case in CASES], "broken.yml", "on_time.yml"))
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path, case: str) -> None:
    """promtool compacts what is older than three hours while it evaluates, and then misses samples now and then. So
    cases that take longer are about rules in which a second stands for a minute.
    """
    text = (FOLDER / case).read_text()
    scaled = f"[{SCALED}]" in text
    every = rules(Scale(1 / 60), interval="1s") if scaled else RULES.read_text()
    (tmp_path / "needed.yml").write_text(yaml.safe_dump(needed(yaml.safe_load(every), yaml.safe_load(text))))
    (tmp_path / case).write_text(text.replace(f"[{SCALED if scaled else FROM_CASES}]", "[needed.yml]"))
    promtool("test", "rules", tmp_path / case)


def needed(rules: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    """The rules that a case asks for, and the records that those read. promtool looks at no other, and evaluating them
    all is most of its work.
    """
    every = [rule for group in rules["groups"] for rule in group["rules"]]
    kept: list[dict[str, Any]] = []
    read = str(case["tests"])
    while more := [rule for rule in every if rule not in kept and rule.get("alert", rule.get("record")) in read]:
        kept += more
        read += str(more)
    groups = [group | {"rules": [rule for rule in group["rules"] if rule in kept]} for group in rules["groups"]]
    return {"groups": [group for group in groups if group["rules"]]}


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_never_does() -> None:
    fires: set[str] = set()
    quiet: set[str] = set()
    for path in CASES:
        for test in yaml.safe_load(path.read_text())["tests"]:
            asked = test.get("alert_rule_test", [])
            loud = {ask["alertname"] for ask in asked if ask["exp_alerts"]}
            fires |= loud
            quiet |= {ask["alertname"] for ask in asked} - loud
            if 'topic="idle"' in str(test["input_series"]):  # beside the one that fires, which is named exactly
                quiet |= loud
    every = {alert.name for alert in alerts(Scale())}
    assert fires == every
    assert quiet == every
