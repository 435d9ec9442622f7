"""The committed dashboards and rules are what the sources build, and each panel and alert is complete."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from prometheus_client.utils import floatToGoString

from dashboards import slo
from dashboards.__main__ import built
from dashboards.alerts import PAGES, alerts
from dashboards.promql import Scale, Where, fill
from dashboards.records import AHEAD
from dashboards.slo import ON_TIME_LE
from streamdq.job.job import JobState
from streamdq.link import failures
from streamdq.metrics import declared
from streamdq_spark import measures

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "operations.md"
RUNBOOK = sorted((ROOT / "docs" / "runbook").glob("*.md"))
DASHBOARDS = sorted((ROOT / "dashboards" / "grafana").glob("*.json"))
RULES = ROOT / "dashboards" / "prometheus" / "streamdq.rules.yml"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_TEXT = re.compile(r'"[^"]*"')


ALL = Where('namespace="n"', 'topic="t"', 'group="g"')


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(path.read_text())["panels"] if panel["type"] != "row"]


def every_expr() -> Iterator[str]:
    for path in DASHBOARDS:
        for panel in panels(path):
            for target in panel["targets"]:
                yield target["expr"]
    for rule in rules():
        yield rule["expr"]


def test_the_committed_files_are_what_the_sources_build() -> None:
    stale = [path.name for path, text in built().items() if not path.exists() or path.read_text() != text]
    assert stale == [], "run `make dashboards`"
    assert {*DASHBOARDS, RULES} == set(built())


def test_alerts_can_be_built_to_link_to_a_copy_of_their_page(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
import dashboards.__main__ as build
build.HERE = Path({str(tmp_path)!r})
sys.argv = ["dashboards", "--pages", "https://wiki.example.com/streamdq"]
build.main()
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "prometheus/streamdq.rules.yml" in done.stdout
    text = (tmp_path / "prometheus" / "streamdq.rules.yml").read_text()
    assert "runbook_url: https://wiki.example.com/streamdq/late-jobs#streamdqoverdue" in text
    assert PAGES not in text
    refused = subprocess.run(
        [sys.executable, "-m", "dashboards", "--pages", "wiki/page"], cwd=ROOT, capture_output=True
    )
    assert refused.returncode == 2


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_each_panel_says_what_it_shows(path: Path) -> None:
    for panel in panels(path):
        title, defaults = panel["title"], panel["fieldConfig"]["defaults"]
        assert title, path
        assert panel["description"].endswith("."), title
        assert defaults["unit"], title
        assert panel["datasource"]["uid"] == "${datasource}", title
        assert panel["targets"], title
        assert all(target["legendFormat"] for target in panel["targets"]), title
        if panel["type"] in {"stat", "bargauge"}:
            assert defaults["thresholds"]["steps"][0]["value"] is None, title
            assert defaults["noValue"], title


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_fill_their_rows_and_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(path.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    lines = {y for _, y in taken}
    assert [y for y in lines if sum((x, y) in taken for x in range(24)) != 24] == []


def test_dashboards_have_ids_of_their_own_and_find_each_other() -> None:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == 3
    for board in boards:
        assert board["links"][0]["tags"] == board["tags"] == ["streamdq"]
        assert board["templating"]["list"][0]["type"] == "datasource"
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_lines_of_topics_lead_to_their_dashboard() -> None:
    (topic,) = [json.loads(path.read_text()) for path in DASHBOARDS if path.stem == "topic"]
    variables = {variable["name"] for variable in topic["templating"]["list"]}
    links = [
        link["url"]
        for path in DASHBOARDS
        for each in panels(path)
        for link in each["fieldConfig"]["defaults"].get("links", [])
    ]
    assert len(links) > 5
    for url in links:
        assert url.startswith(f"/d/{topic['uid']}?")
        assert set(re.findall(r"var-(\w+)=", url)) <= variables


def test_a_dashboard_shows_one_namespace() -> None:
    for path in DASHBOARDS:
        names = [variable["name"] for variable in json.loads(path.read_text())["templating"]["list"]]
        assert names[:2] == ["datasource", "namespace"]
        for panel in panels(path):
            for target in panel["targets"]:
                asked = re.findall(r"(?:streamdq_[\w:]+|ALERTS)(?:\{([^}]*)\})?", target["expr"])
                assert asked, panel["title"]
                assert all(re.search(r'namespace=~?"\$namespace\|?"', matchers) for matchers in asked), target["expr"]


def test_rules_tell_namespaces_apart() -> None:
    for rule in rules():
        aggregated = re.findall(r"(?:sum|min|max|count|on) (?:by )?\(([^)]*)\)", rule["expr"])
        assert all(by.startswith("namespace") or by == "window" for by in aggregated), rule["expr"]
        assert not re.search(r"(?<!_)(?:sum|min|max|count)\(", rule["expr"]), rule["expr"]
        if "alert" in rule and rule["alert"] != "StreamdqTargetDown":
            assert "$labels.namespace" in rule["annotations"]["summary"] + rule["annotations"]["description"]


def test_what_is_measured_is_shown() -> None:
    asked = {name for expr in every_expr() for name in _NAME.findall(_TEXT.sub('""', expr))}
    parts = {metric.name: {metric.name, f"{metric.name}_bucket"} for metric in declared.described()}
    assert [name for name, either in parts.items() if not asked & either] == []


def test_what_is_asked_for_is_measured() -> None:
    measured: set[str] = set()
    for metric in declared.described():
        measured |= {metric.name}
        if metric.kind == "histogram":
            measured |= {f"{metric.name}_{part}" for part in ("bucket", "count", "sum")}
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {name for expr in every_expr() for name in _NAME.findall(_TEXT.sub('""', expr)) if "streamdq_" in name}
    assert asked - measured - recorded == set()
    assert recorded - asked == set(), "recorded, and used by nobody"


def test_labels_asked_for_are_there() -> None:
    labels = {metric.name: set(metric.labels) for metric in declared.described()}
    known = set().union(*labels.values()) | {"le", "alertname", "alertstate", "severity", "job", "instance"}
    for expr in every_expr():
        for by in re.findall(r"(?:by|on) \(([^)]*)\)", expr):
            assert set(filter(None, by.split(", "))) <= known, expr
        for name, matchers in re.findall(r"(streamdq_\w+)\{([^}]*)\}", expr):
            family = re.sub(r"_(bucket|count|sum)$", "", name)
            if family in labels:
                asked = set(re.findall(r"(\w+)=", matchers))
                assert asked <= labels[family] | {"le"}, expr


def test_values_of_labels_asked_for_are_those_of_the_code() -> None:
    known = {
        "outcome": {*declared.OUTCOMES, *declared.BECAME},
        "kind": set(failures.KINDS),
        "state": {state.value for state in JobState},
        "window": set(AHEAD),
        "le": {floatToGoString(bound) for bound in declared.LATENESS._upper_bounds},
        "alertstate": {"firing"},
    }
    chosen = {"namespace", "topic", "group", "alertname", "job"}  # by who looks, or a pattern
    for expr in every_expr():
        for label, value in re.findall(r'[{,](\w+)=~?"([^"]*)"', expr):
            assert label in chosen or set(value.split("|")) <= known[label], expr


def test_grafana_s_own_types_take_the_dashboards() -> None:
    for path in DASHBOARDS:
        written = json.loads(path.read_text())
        read = json.loads(json.dumps(models.Dashboard.from_json(written), cls=JSONEncoder))
        for link in read["links"]:
            del link["placement"]  # the types put it in
        assert read == written


def test_the_promised_second_is_a_bucket_of_the_lateness() -> None:
    assert ON_TIME_LE in {floatToGoString(bound) for bound in declared.LATENESS._upper_bounds}


def test_each_alert_has_its_words_and_its_page() -> None:
    index = INDEX.read_text()
    sections = {
        (page, title.lower()): text
        for page in RUNBOOK
        for title, text in re.findall(r"^## (\w+)\n(.*?)(?=^##|\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    }
    found = [rule for rule in rules() if "alert" in rule]
    assert len(found) == len({rule["alert"] for rule in found}) == 26
    for rule in found:
        notes = rule["annotations"]
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert notes["summary"], rule["alert"]
        assert notes["description"].endswith("."), rule["alert"]
        file, _, anchor = notes["runbook"].partition("#")
        section = sections.pop((ROOT / file, anchor))
        parts = re.findall(r"^\*\*(What it means|Look at|Do)\.\*\*\s+\S", section, re.MULTILINE)
        assert parts == ["What it means", "Look at", "Do"], rule["alert"]
        link = f"{file.removeprefix('docs/')}#{anchor}"
        row = rf"^\| \[{rule['alert']}\]\({link}\) \| {rule['labels']['severity']} \| \S"
        assert re.search(row, index, re.MULTILINE), f"{rule['alert']} is missing in the page's table"
    assert sections == {}, "sections of alerts that are no more"


@pytest.mark.parametrize("page", [INDEX, *RUNBOOK], ids=lambda page: page.stem)
def test_the_runbook_links_only_to_what_is_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in anchors | {""}, target


def test_windows_shrink_together_for_tests() -> None:
    scale = Scale(1 / 60, shortest_s=2)
    assert scale.window("1h") == "60000ms"
    assert scale.window("1m") == "2000ms"
    assert Scale().window("3d") == "3d"
    assert [alert.name for alert in alerts(scale)] == [alert.name for alert in alerts(Scale())]


@pytest.mark.parametrize(
    ("query", "by", "where", "expected"),
    [
        ("sum @by (rate(a{@topic}[@window]))", (), Where(), "sum(rate(a[5m]))"),
        ('max(a{b="c",@namespace})', (), ALL, 'max(a{b="c",namespace="n"})'),
        ("max(a{@topic})", (), ALL, 'max(a{namespace="n",topic="t"})'),
        ("max(a{@group})", (), ALL, 'max(a{namespace="n",topic="t",group="g"})'),
        ("sum @by (rate(a{@group}[@window]))", ("topic",), Where(), "sum by (topic) (rate(a[5m]))"),
        ('max(a{b="c",@topic})', (), Where(), 'max(a{b="c"})'),
        ('max(a{b="c",@topic})', (), Where(topic='topic="t"', group='group="g"'), 'max(a{b="c",topic="t"})'),
        ("max(a{@group})", (), Where(topic='topic="t"', group='group="g"'), 'max(a{topic="t",group="g"})'),
    ],
)
def test_blanks_are_filled(query: str, by: tuple[str, ...], where: Where, expected: str) -> None:
    assert fill(query, by=by, window="5m", where=where) == expected


def test_the_analytics_hold_the_same_promise() -> None:
    assert (slo.OBJECTIVE, 1000 * float(slo.ON_TIME_LE)) == (measures.OBJECTIVE, measures.SLO_MS)
