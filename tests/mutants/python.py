"""Mutants of pure decisions in Python: functions whose result follows from their arguments."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .mutant import Edit, Mutant, mutants_of

DECISIONS = {
    "callback/retry_after": ("tests/callback/test_settings.py",),
    "job/job": ("tests/unit/job/test_job.py", "tests/unit/store/jobs/test_records.py"),
    "job/retry": ("tests/unit/job/test_retry.py", "tests/unit/test_config.py", "tests/unit/operations"),
    "keys": ("tests/unit/test_keys.py",),
    "mover/rate": ("tests/unit/mover",),
    "mover/shard_timers": ("tests/unit/mover",),
    "operations/attempts/claimed": ("tests/unit/operations", "tests/unit/worker"),
    "operations/attempts/ends": ("tests/unit/operations", "tests/unit/worker"),
    "operations/dead_letters/kick_throttle": ("tests/unit/operations",),
    "store/batches": ("tests/unit/store", "tests/unit/operations"),
    "store/counters": ("tests/unit/store",),
    "store/entries": ("tests/unit/store",),
    "store/history/rows": ("tests/unit/store", "tests/unit/operations"),
    "store/jobs/members": ("tests/unit/store",),
    "store/jobs/progress": ("tests/unit/store",),
    "store/jobs/records": ("tests/unit/store",),
    "store/topic_settings": ("tests/unit/store", "tests/unit/test_config.py"),
    "store/topics/registry": ("tests/unit/store", "tests/unit/test_config.py"),
    "store/replies": ("tests/unit/store", "tests/unit/mover", "tests/unit/worker"),
    "times/clock": ("tests/unit/times",),
    "times/durations": ("tests/unit/times", "tests/unit/test_config.py", "tests/unit/job/test_job.py"),
}
"""Each module of decisions, and the tests that should notice."""

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,), ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
}  # fmt: skip
COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
}  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def files() -> list[str]:
    return [f"streamdq/{module}.py" for module in DECISIONS]


def tests_of(file: str) -> tuple[str, ...]:
    return DECISIONS[file.removeprefix("streamdq/").removesuffix(".py")]


def python_mutants(file: str, source: str) -> list[Mutant]:
    return [mutant for mutant in mutants_of(file, source, edits_of(source)) if _compiles(mutant.source)]


def edits_of(source: str) -> Iterator[Edit]:
    lines = [0, *accumulate(len(line) for line in source.encode().splitlines(keepends=True))]

    def edit(node: Any, text: str) -> Edit:
        start, end = lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset
        return Edit(start, end, text)

    for node in _inside(ast.parse(source)):
        for text in _statements(node) if isinstance(node, ast.stmt) else _expressions(node):
            yield edit(node, text)
        if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare):
            yield edit(node.test, f"(not ({ast.unparse(node.test)}))")


def install(mutant: Mutant) -> None:
    """Gives the functions of the module, which others have imported already, the mutant's code."""
    module = importlib.import_module(mutant.file.removesuffix(".py").replace("/", "."))
    codes = {code.co_qualname: code for code in _codes(compile(mutant.source, mutant.file, "exec"))}
    for function in _functions(module, module):
        function.__code__ = codes[function.__qualname__]


def _inside(tree: ast.Module) -> Iterator[ast.AST]:
    """What functions execute: neither annotations nor defaults, and no text of an error or a docstring."""
    pending: list[ast.AST] = [part for node in ast.walk(tree) if isinstance(node, _Function) for part in node.body]
    while pending:
        node = pending.pop()
        if isinstance(node, _Function | ast.ClassDef | ast.JoinedStr) or _is_text(node):
            continue
        yield node
        if isinstance(node, ast.Raise | ast.Assert):
            continue
        pending += [part for part in ast.iter_child_nodes(node) if part is not getattr(node, "annotation", None)]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _statements(node: ast.stmt) -> Iterator[str]:
    """What it becomes."""
    match node:
        case ast.Assign(targets=[ast.Name()]):
            return  # reading the name would fail
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield "pass"
        case ast.Return(value=value) if value is not None:
            yield "pass"


def _expressions(node: ast.AST) -> Iterator[str]:
    for changed in _changed(node):
        yield f"({ast.unparse(changed)})"


def _changed(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=right):
            for other in COMPARED[type(op)]:
                yield ast.Compare(left, [other()], right)
        case ast.BoolOp(op=op, values=values):
            for i in range(len(values)):
                yield ast.BoolOp(op, values[:i] + values[i + 1 :]) if len(values) > 2 else values[1 - i]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COUNTED:
            yield ast.BinOp(left, COUNTED[type(op)](), right)
        case ast.Constant(value=value):
            for other in _others(value):
                yield ast.Constant(other)


def _others(value: Any) -> tuple[Any, ...]:
    match value:
        case bool():
            return (not value,)
        case int() | float():
            return (value + 1,)
        case str() | bytes():
            return (b"" if value else b"x",) if isinstance(value, bytes) else ("" if value else "x",)
    return ()


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _functions(owner: ModuleType | type, module: ModuleType) -> Iterator[FunctionType]:
    for value in list(vars(owner).values()):
        value = _function_of(value)
        value = inspect.unwrap(value) if callable(value) else value
        if isinstance(value, type) and value.__module__ == module.__name__ and value is not owner:
            yield from _functions(value, module)
        elif isinstance(value, FunctionType) and value.__code__.co_filename == module.__file__:
            yield value


def _function_of(value: Any) -> Any:
    """Of a property or a method, what it calls."""
    if isinstance(value, property):
        return value.fget
    return value.func if isinstance(value, cached_property) else getattr(value, "__func__", value)


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True
