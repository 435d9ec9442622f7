"""Work on a text grows with its length, and not faster: texts come from anybody, and may be long."""

from __future__ import annotations

import ast
import contextlib
import importlib
import logging
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from streamdq import NewJob
from streamdq.errors import StreamdqError
from streamdq.link import address
from streamdq.operations.attempts import error_text
from streamdq.operations.find import conditions
from streamdq.process import logs
from streamdq.process.logs import Log
from streamdq.times import durations
from tests.linear_regexes import trouble
from tests.unit.steps import steps

ROOT = Path(__file__).parents[2]
PACKAGES = {"streamdq": ROOT, "spark/streamdq_spark": ROOT / "spark"}
FILES = [(path, base) for folder, base in PACKAGES.items() for path in sorted((ROOT / folder).rglob("*.py"))]
ANYWHERE = {"search", "sub", "subn", "findall", "finditer", "split"}
AT_ONCE = {"match", "fullmatch"}
TRUSTED = {
    ("spark/streamdq_spark/engines/spark.py", "_PERCENTILE"): "reads the analysis's own SQL",
    ("streamdq/cli/wording.py", "_ARGUMENT"): "reads streamdq's own errors, which quote little of what was given",
    ("streamdq/cli/wording.py", "_GROUPS"): "as _ARGUMENT",
    ("streamdq/cli/wording.py", "_HEAD"): "as _ARGUMENT",
    ("streamdq/http/auth.py", "_LINE"): "reads the file of tokens, which the operator writes",
    ("streamdq/times/durations.py", "_PART"): "looks at what _TEXT has matched, of at most a hundred characters",
}


def calls_of_re(tree: ast.Module) -> list[ast.Call]:
    """``re.compile(...)``, ``re.search(...)``, …"""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in {"compile", *ANYWHERE, *AT_ONCE}
    ]


def uses_of(name: str, tree: ast.Module) -> set[str]:
    """The methods that a module calls of one of its expressions; also where it is one of several in a table."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    }


def patterns_in(names: dict[str, Any]) -> dict[str, re.Pattern[Any]]:
    """A module's expressions, also those in a table."""
    found = {name: value for name, value in names.items() if isinstance(value, re.Pattern)}
    for name, value in names.items():
        if isinstance(value, dict):
            found |= {f"{name}[{place}]": key for place, key in enumerate(value) if isinstance(key, re.Pattern)}
    return found


@cache
def expressions() -> dict[tuple[str, str], tuple[re.Pattern[Any], bool]]:
    """All regular expressions: by file, and name or text; whether it may begin anywhere in a text."""
    found: dict[tuple[str, str], tuple[re.Pattern[Any], bool]] = {}
    for path, base in FILES:
        text = path.read_text(encoding="utf-8")
        if not re.search(r"\bre\.", text):  # to parse all files takes a second
            continue
        tree = ast.parse(text)
        calls = calls_of_re(tree)
        if not calls:
            continue
        file, module = str(path.relative_to(ROOT)), ".".join(path.relative_to(base).with_suffix("").parts)
        loaded = importlib.import_module(module.removesuffix(".__init__"))
        named = patterns_in(vars(loaded))
        for name, pattern in named.items():
            uses = uses_of(name, tree) & (ANYWHERE | AT_ONCE)
            found[file, name] = pattern, not uses or bool(uses & ANYWHERE)
        compiled = {(each.pattern, each.flags) for each in named.values()}
        for call in calls:
            made = call.func
            assert isinstance(made, ast.Attribute)
            pattern = eval(compile(ast.Expression(call.args[0]), file, "eval"), vars(loaded))
            if made.attr == "compile":
                assert any(text == pattern for text, _ in compiled), f"{file}: {pattern} has no name of its own"
            else:
                found[file, str(pattern)] = re.compile(pattern), made.attr in ANYWHERE
    return found


@pytest.mark.thorough
def test_all_are_found() -> None:
    assert ("streamdq/process/logs.py", "_DATABASE") in expressions()
    assert len(expressions()) > 50


def test_every_regular_expression_takes_linear_time() -> None:
    found = {
        (file, name): trouble(pattern, searched=searched)
        for (file, name), (pattern, searched) in expressions().items()
        if (file, name) not in TRUSTED
    }
    assert {where: why for where, why in found.items() if why} == {}


@pytest.mark.parametrize(
    ("pattern", "searched"),
    [
        (r"(a+)+b", False),
        (r"(a|aa)+b", False),
        (r"a*a*b", False),
        (r"\s*([^=]+?)\s*(=)", False),
        (r"redis://\S*@", True),
        (r"\[[^]]*\]", True),
        (r"x.*y", True),
        (r"(\w+\s?)*;", False),
        (r"(?:ab?a?)*c", False),
        (r"\d+\d{1,100}x", False),
        (r"([a-z]{1,3})*x", False),
    ],
)
def test_one_that_does_not_is_found(pattern: str, searched: bool) -> None:
    assert trouble(re.compile(pattern), searched=searched)


@pytest.mark.parametrize(
    ("pattern", "searched"),
    [
        (r"\S+", True),
        (r"(?<=://)[^/\s]*@", True),
        (r"(?:\.[a-z]+)*", False),
        (r"\[[^][]*\]", True),
        (r"(.*\.)?([0-9]+)", False),
        (r"[a-z]+=\S+", False),
        (r"(?:ab)*c", False),
        (r"password=[^ ]+", True),
        (r"x{0,30}y", True),
        (r"(?<!\s)\s+x", True),
        (r"(?:\.[a-z]{1,63})*x", False),
    ],
)
def test_one_that_does_is_not(pattern: str, searched: bool) -> None:
    assert trouble(re.compile(pattern), searched=searched) == ""


# -- functions

SIZE = 2_000
"""Large enough that what a function does once does not count."""


def _tried(function: Callable[..., Any], *arguments: Any) -> None:
    with contextlib.suppress(StreamdqError, ValueError, RecursionError):  # hostile texts are refused
        function(*arguments)


def nested(count: int) -> Any:
    made: Any = "x"
    for _ in range(count):
        made = [made]
    return made


def raised(text: str) -> BaseException:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def chained(count: int) -> BaseException:
    error = raised("first")
    for _ in range(count):
        later = ValueError("later")
        later.__context__, error = error, later
    return error


class _Line(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()


def logged(value: Any) -> None:
    Log("tested.linear").warning("said", value=value)


TEXTS: dict[str, Callable[[int], str]] = {
    "urls": lambda count: "redis://" * count,
    "logins": lambda count: "a://b@" * count,
    "words": lambda count: "password='x' " * count,
    "lines": lambda count: "\n" * count,
    "control": lambda count: "\x9b\u202e" * count,
    "numbers": lambda count: "1" * count,
    "conditions": lambda count: "x =" + " " * count,
}
OF_TEXT: dict[str, Callable[[str], Any]] = {
    "hide_credentials": logs.hide_credentials,
    "visible": logs.visible,
    "visible_json": logs.visible_json,
    "a line of the log": logged,
    "what": lambda text: logs.what(OSError(text)),
    "an error's text": lambda text: error_text.text_of(raised(text)),
    "a traceback": lambda text: error_text.traceback_of(raised(text), hidden=False),
    "without_password": address.without_password,
    "parse_url": lambda text: _tried(address.parse_url, f"redis+cluster://{text}"),
    "to_ms": lambda text: _tried(durations.to_ms, text),
    "moment_ms": lambda text: _tried(durations.moment_ms, text),
    "conditions": lambda text: _tried(conditions.condition_in, text),
    "a job": lambda text: _tried(lambda: NewJob({"a": text}, id=text, key=text)),
}
OF_VALUES: dict[str, Callable[[int], Callable[[], Any]]] = {
    "a line with many values": lambda count: lambda: logged({str(one): ["x"] for one in range(count)}),
    "a line with a deep value": lambda count: lambda: logged(nested(count // 20)),
    "exceptions in a row": lambda count: partial(error_text.traceback_of, chained(count // 4), hidden=False),
}


@pytest.fixture(autouse=True)
def log_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("tested.linear")
    monkeypatch.setattr(logger, "handlers", [_Line()])
    monkeypatch.setattr(logger, "propagate", False)


@pytest.mark.thorough
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("function", OF_TEXT)
def test_twice_the_text_takes_at_most_three_times_the_steps(function: str, text: str) -> None:
    once, twice = (steps(partial(OF_TEXT[function], TEXTS[text](size))) for size in (SIZE, 2 * SIZE))
    assert twice <= 3 * once + 1000


@pytest.mark.thorough
@pytest.mark.parametrize("name", OF_VALUES)
def test_twice_the_values_take_at_most_three_times_the_steps(name: str) -> None:
    once, twice = (steps(OF_VALUES[name](size)) for size in (SIZE, 2 * SIZE))
    assert twice <= 3 * once + 1000


def test_a_function_that_takes_more_is_found() -> None:
    def quadratic(count: int) -> int:
        return sum(1 for one in range(count) for _ in range(one))

    once, twice = (steps(partial(quadratic, size)) for size in (200, 400))
    assert twice > 3 * once
