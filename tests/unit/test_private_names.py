"""A name that begins with an underscore is its module's own, in the whole package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2] / "streamdq"
OTHERS = {
    ("embedded/supervisor.py", "_exit"),  # of os
    ("link/connection.py", "_at_fork_reinit"),  # of Python's locks
    ("link/connection.py", "_blocked"),  # of fakeredis's sockets, as the next three
    ("link/connection.py", "_db"),
    ("link/connection.py", "_server"),
    ("link/connection.py", "_unblock_reason"),
    ("link/node.py", "_buffer"),  # of asyncio's streams
    ("link/node.py", "_close"),  # of redis-py's connections, as the other nine
    ("link/node.py", "_parser"),
    ("link/node.py", "_reader"),
    ("link/node.py", "_sock"),
    ("link/node.py", "_stream"),
    ("link/node.py", "_writer"),
    ("link/tracking.py", "_close"),
    ("link/tracking.py", "_parser"),
    ("link/tracking.py", "_reader"),
    ("link/tracking.py", "_writer"),
    ("metrics/declared.py", "_labelnames"),  # of prometheus_client's metrics
    ("metrics/library_locks.py", "_at_fork_reinit"),  # of Python's locks
    ("metrics/library_locks.py", "_collector_to_names"),  # of prometheus_client's
    ("metrics/library_locks.py", "_lock"),
    ("process/logs.py", "_current_frames"),  # of sys
    ("mover/endings.py", "_replace"),  # of named tuples
    ("outbox/rows.py", "_replace"),
    ("store/flows/children.py", "_replace"),
    ("store/jobs/records.py", "_replace"),
    ("store/schedules/schedules.py", "_replace"),
    ("store/topics/resharding.py", "_replace"),
    ("store/topics/changes.py", "_replace"),
    ("process/leaving.py", "_exit"),  # of os
    ("worker/child.py", "_exit"),
    ("worker/remote_errors.py", "_getframe"),  # of sys
    ("process/leaving.py", "_run_exitfuncs"),  # of atexit
}
"""What libraries and Python have no other name for."""


_MAY_TAKE = re.compile(
    r"(?<!\bself)(?<!\bcls)\s*\._(?!_)"  # x._y
    r"|\bimport\b(?:[^\n(]*|\s*\([^)]*)[\s,(]_(?!_)"  # from x import _y
)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def members_of(nodes: list[ast.AST]) -> set[str]:
    """Attributes and methods of the module's own classes."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(part.name)
                elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    found.add(part.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            found.add(node.attr)
    return found


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def foreign(source: str) -> set[str]:
    """Private names that the module takes from another."""
    if not _MAY_TAKE.search(source):  # to parse all files takes seconds
        return set()
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    found = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_self(node.value)
    }
    imported = {name.name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
    return found - members_of(nodes) | set(filter(is_private, imported))


def test_no_module_reaches_into_another() -> None:
    found = {(str(path.relative_to(ROOT)), name) for path in ROOT.rglob("*.py") for name in foreign(path.read_text())}
    assert found - OTHERS == set()


def test_what_reaches_into_another_is_found() -> None:
    own = "class A:\n    _b: int = 0\n    def _c(self): self._d = self._inherited\ndef f(a): return a._b, a._c, a._d\n"
    assert foreign(own) == set()
    assert foreign("def _b(): pass\ndef f(a): return a._b\nfrom x import _y, z\n") == {"_b", "_y"}
