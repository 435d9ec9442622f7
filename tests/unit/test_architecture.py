"""What docs/architecture.md, docs/rooms.md, docs/way.md and docs/reference/keys.md list is what the code has."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from streamdq.keys import NamespaceKeys
from tests.cases import each

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = (ROOT / "docs" / "rooms.md").read_text()
WAY = (ROOT / "docs" / "way.md").read_text()
KEYS = (ROOT / "docs" / "reference" / "keys.md").read_text()


def test_the_key_table_is_that_of_the_code() -> None:
    names = NamespaceKeys("NS")
    shard = names.shard("topic", 0)
    built = {
        names.topics,
        names.mover,
        names.standbys,
        names.mover_stopped,
        names.wake,
        names.aborts,
        names.secret,
        names.probe,
        names.dumps,
        names.heartbeats,
        names.hung("CONSUMER"),
        names.session("HASH"),
        names.sessions("HASH"),
    }
    built |= {shard.ready_of("GROUP"), shard.dead_of("GROUP"), shard.ranked_of("GROUP"), shard.result_of("GROUP", "ID")}
    built |= {getattr(shard, name) for name in shard.__slots__ if name not in ("namespace", "topic", "shard", "prefix")}
    listed = set(re.findall(r"^\| `(\{?NS[^`]+)` \|", KEYS, re.MULTILINE))
    assert listed == {key.replace("{topic:0}", "{topic:shard}") for key in built}


def test_the_scripts_it_names_exist() -> None:
    steps = PAGE.partition("## One job's way")[2].partition("\n## ")[0]
    named = {
        script
        for row in re.findall(r"^\| [^|]+\| [^|]+\| ([^|]+)\|", steps, re.MULTILINE)
        for script in re.findall(r"`(\w+)`", row)
    }
    assert len(named) > 7
    assert named <= {path.stem for path in (ROOT / "lua").glob("*.lua")}


# -- rooms


def rooms() -> list[tuple[int, str]]:
    """Floor and room, as the page lists them."""
    return [(int(floor), room) for floor, room in re.findall(r"^\| (\d+) \| `(\w+)` \|", ROOMS, re.MULTILINE)]


def test_the_rooms_are_those_that_the_linter_checks() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (floors,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["streamdq"])
    assert rooms() == [
        (len(floors) - i, room) for i, floor in enumerate(floors) for room in sorted(floor.replace("|", " ").split())
    ]


# -- a job's way through the files


def way() -> list[tuple[str, list[str]]]:
    """Files and the functions named in each."""
    rows = re.findall(r"^\| \d+ \| `(\w[\w/]*\.py)` \| ([^|]+) \|", WAY, re.MULTILINE)
    return [(file, re.findall(r"`(\w+)`", functions)) for file, functions in rows]


@cache
def functions_in(file: str) -> dict[str, int]:
    """How many lines each has; of several with the same name, together."""
    lines: Counter[str] = Counter()
    for node in ast.walk(ast.parse((ROOT / "streamdq" / file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines[node.name] += (node.end_lineno or node.lineno) - node.lineno + 1
    return lines


def test_a_job_passes_at_most_twelve_files_and_few_lines_of_each() -> None:
    assert 8 <= len(way()) <= 12
    lines = sum(functions_in(file)[name] for file, names in way() for name in names)
    (named,) = re.findall(r"functions have about (\d+) lines together", WAY)
    assert abs(lines - int(named)) <= 50
    assert lines <= 800


@pytest.mark.parametrize(("file", "functions"), way(), ids=lambda value: value if isinstance(value, str) else "")
def test_the_files_on_its_way_have_the_functions_named(file: str, functions: list[str]) -> None:
    assert functions
    assert set(functions) <= functions_in(file).keys()


def test_the_functions_to_look_at_are_there() -> None:
    questions = PAGE.partition("### Where to look")[2].partition("\n### ")[0]
    named = re.findall(r"`([\w/]+\.py)` \(`(\w+)`\)", questions)
    assert len(named) > 5
    assert [(file, name) for file, name in named if name not in functions_in(file)] == []


# -- files that pages name

PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_OURS = {
    "callback.toml", "shop/jobs.py", "manifest.json", "analysis.json", "measured.json",
}  # fmt: skip
"""Files that a page tells its readers to write, or that a command writes."""


@each("page", PAGES)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """Paths in code style, from the root or within streamdq/, and targets of links."""
    text = page.read_text()
    paths = set(re.findall(r"`(?!/)((?:[\w.-]+/)+|[\w./-]+\.(?:py|lua|md|toml|json|yml))`", text)) - NOT_OURS
    paths -= set(re.findall(r"^```\w+\n# ([\w./-]+)$", text, re.MULTILINE))  # files that its readers write
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)", text))
    missing = {path for path in paths if not any((root / path).exists() for root in (ROOT, ROOT / "streamdq"))}
    missing |= {link for link in links if not (page.parent / link).exists()}
    assert {path for path in missing if "NAME" not in path} == set()


def test_every_page_that_code_names_exists() -> None:
    code = [*(ROOT / "lua").rglob("*.lua"), *(ROOT / "streamdq").rglob("*.py"), *(ROOT / "spark").rglob("*.py")]
    named = {page for path in code for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))}
    assert len(named) > 8
    assert [page for page in sorted(named) if not (ROOT / page).is_file()] == []


def test_the_sample_of_a_script_is_a_script() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (name,) = re.findall(r"This is the one of `lua/(\w+)\.lua`", text)
    (sample,) = re.findall(r"^   ```lua\n(.*?)^   ```$", text, re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("   ") for line in sample.splitlines()]
    assert len(lines) > 5
    assert (ROOT / "lua" / f"{name}.lua").read_text().splitlines()[: len(lines)] == lines


# -- functions

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case)

_PLACES = (*_BRANCHES, ast.BoolOp)


def branches(function: ast.AST) -> int:
    """One, and one more for each place where the code may go two ways."""
    nodes = [node for node in ast.walk(function) if isinstance(node, _PLACES)]
    return 1 + sum(len(node.values) - 1 if isinstance(node, ast.BoolOp) else 1 for node in nodes)


@pytest.mark.parametrize("folder", ["streamdq", "spark"])
def test_no_function_has_more_than_ten_branches(folder: str) -> None:
    functions = [
        (f"{path.relative_to(ROOT)}: {node.name}", branches(node))
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > 200
    assert [name for name, count in functions if count > 10] == []


def test_every_branch_is_counted() -> None:
    text = "def f(a):\n if a and a or not a:\n  return [b for b in a] if a else a\n match a:\n  case 1:\n   pass"
    assert branches(ast.parse(text).body[0]) == 7
