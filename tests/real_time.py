"""Refuses tests that depend on how fast the machine is: ``python -m tests.real_time [FILE or FOLDER ...]``.

Refused are, in ``tests/``:

- ``time.sleep``, and ``asyncio.sleep`` of more than 50 ms or of a variable: await an event, or ``tests.waiting.until``;
- the comparison of how long something took (``monotonic() - began < 2``): a figure belongs in ``benchmarks/``;
- a limit of less than 30 s for what hangs (``asyncio.timeout(5)``, ``process.wait(timeout=5)``).

Free of that is a function under ``@in_virtual_time`` or in the simulation, where time passes only while everything
waits. A line may say ``# real time: REASON`` if real time is what it is about and no assertion depends on its length.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LONGEST_SLEEP_S = 0.05
SHORTEST_LIMIT_S = 30.0
# Time is simulated there; or these are commands of their own, which `make test` does not run.
_FREE = ("tests/simulation/", "tests/waiting.py", "tests/unit/virtual_time.py")
_TOOLS = (
    "tests/crash/chaos.py", "tests/crash/failovers.py", "tests/crash/table.py", "tests/docs/migrating.py",
    "tests/deploy/images.py",
)  # fmt: skip
_CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time", "time"}
_LIMITED = {"timeout", "wait_for", "wait", "join", "communicate", "run", "check_output", "check_call", "result"}
_REASON = re.compile(r"# real time: \S")


class Finding(NamedTuple):
    file: Path
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


def findings(source: str, file: Path) -> Iterator[Finding]:
    """What a file has of these, but for lines that give a reason."""
    lines = source.splitlines()
    for line, what in _Reader().read(ast.parse(source)):
        if not _REASON.search(lines[line - 1]):
            yield Finding(file, line, what)


class _Reader:
    def __init__(self) -> None:
        self._found: list[tuple[int, str]] = []

    def read(self, tree: ast.Module) -> list[tuple[int, str]]:
        self._walk(tree, set())
        return self._found

    def _walk(self, node: ast.AST, took: set[str]) -> None:
        """``took``: the variables of this function that hold how long something took."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            if not isinstance(node, ast.Lambda) and any(_name(one) == "in_virtual_time" for one in node.decorator_list):
                return
            took = took | {
                target.id
                for inner in ast.walk(node)
                if isinstance(inner, ast.Assign) and _is_duration(inner.value, set())
                for target in inner.targets
                if isinstance(target, ast.Name)
            }
        if isinstance(node, ast.Call):
            self._call(node)
        if isinstance(node, ast.Compare) and any(_is_duration(side, took) for side in (node.left, *node.comparators)):
            self._found.append((node.lineno, "compares how long something took"))
        for child in ast.iter_child_nodes(node):
            self._walk(child, took)

    def _call(self, call: ast.Call) -> None:
        name = _name(call.func)
        if name == "sleep" and call.args:
            if _owner(call.func) != "asyncio":
                self._found.append((call.lineno, "sleeps: await an event, or tests.waiting.until"))
            elif not (0 <= _number(call.args[0]) <= LONGEST_SLEEP_S):
                self._found.append((call.lineno, f"sleeps more than {LONGEST_SLEEP_S} s: await an event"))
        if name in _LIMITED:
            limits = [word.value for word in call.keywords if word.arg == "timeout"]
            if name == "timeout" and _owner(call.func) == "asyncio":
                limits += call.args[:1]
            for limit in limits:
                if 0 < (limit_s := _number(limit)) < SHORTEST_LIMIT_S:
                    what = f"a limit of {limit_s:g} s; what hangs has at least {SHORTEST_LIMIT_S:g}"
                    self._found.append((call.lineno, what))


def _name(node: ast.expr) -> str:
    """The last part of a dotted name, also of a call of it."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _owner(node: ast.expr) -> str:
    return _name(node.value) if isinstance(node, ast.Attribute) else ""


def _number(node: ast.expr) -> float:
    """-1: it is no number that is written there."""
    return float(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else -1.0


def _is_duration(node: ast.expr, took: set[str]) -> bool:
    """Whether it is a difference with a clock's reading in it, or made of one."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in took:
            return True
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub):
            sides = (*ast.walk(inner.left), *ast.walk(inner.right))
            if any(isinstance(side, ast.Call) and _name(side) in _CLOCKS for side in sides):
                return True
    return False


def files(where: Sequence[str]) -> Iterator[Path]:
    for path in [ROOT / name for name in where or ["tests"]]:
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def main(where: Sequence[str]) -> int:
    found = [
        finding
        for path in files(where)
        if not (name := path.relative_to(ROOT)).as_posix().startswith((*_FREE, *_TOOLS))
        for finding in findings(path.read_text(encoding="utf-8"), name)
    ]
    for finding in found:
        print(finding)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
