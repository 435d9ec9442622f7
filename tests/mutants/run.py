"""Tries mutants: one process imports everything and collects the tests, and forks workers, which fork again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import Any, NamedTuple

import hypothesis
import pytest

from tests.servers import binaries

from . import python
from .choice import Choice, server_of
from .mutant import ROOT, Mutant
from .worker import Worker

LUA_TESTS = "tests/lua"
_ARGUMENTS = (
    "-qq", "--no-header", "--no-summary", "--capture=no", "--assert=plain", "--tb=native", "-p", "no:cacheprovider",
    "--import-mode=importlib", "-o", "addopts=", "-o", "timeout=0",
)  # fmt: skip
Work = Callable[[Worker, int], Any]


class Options(NamedTuple):
    workers: int = 1
    quick: bool = False  # one server, and no simulation
    tests: tuple[str, ...] = ()  # instead of those that concern the files
    slow_s: float = 20.0  # so long may a test take, and ten times what it takes without a mutant


class Result(NamedTuple):
    mutant: Mutant
    killer: str | None  # the test that failed


def try_mutants(mutants: Sequence[Mutant], options: Options, tell: Callable[[Result], None]) -> list[str]:
    """Tells each result as it comes. Returns the tests that fail without a mutant; if there are any, none is tried."""
    run = _Run(mutants, options, tell)
    paths = options.tests or {path for mutant in mutants for path in _tests_of(mutant.file)}
    pytest.main([*_ARGUMENTS, *(str(ROOT / path) for path in sorted(paths))], [run])
    return run.broken


def _tests_of(file: str) -> tuple[str, ...]:
    return python.tests_of(file) if file.endswith(".py") else (LUA_TESTS,)


class _Run:
    """A plugin of pytest, which does this in place of running each test once."""

    def __init__(self, mutants: Sequence[Mutant], options: Options, tell: Callable[[Result], None]) -> None:
        self.broken = ["no test was found"]
        self._mutants, self._options, self._notify = mutants, options, tell

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]  # the first failure will do
        hypothesis.settings.register_profile("mutants", deadline=None, phases=phases, derandomize=True, database=None)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items, mutants, workers, quick = session.items, self._mutants, self._options.workers, self._options.quick
        first = binaries()[0]
        chosen = [i for i, item in enumerate(items) if server_of(item, first) == 0]
        parts = [chosen[number::workers] for number in range(workers)]
        found = dict(self._in_workers(session, lambda worker, number: worker.measure(parts[number]), workers))
        ran = {i: each for number, part in enumerate(parts) for i, each in zip(part, found[number], strict=True)}
        self.broken = [items[i].nodeid for i, each in ran.items() if not each.passed]
        if not self.broken:
            choice = Choice(items, ran, first, on_others=not quick)

            def kill(worker: Worker, number: int) -> str | None:
                return worker.killer(mutants[number], choice, simulated=not quick)

            for number, killer in self._in_workers(session, kill, len(mutants)):
                self._notify(Result(mutants[number], killer))
        return True

    def _in_workers(self, session: pytest.Session, work: Work, count: int) -> Iterator[tuple[int, Any]]:
        """Each number, and what the work on it returned in one of the processes."""
        with get_context("fork").Pool(
            self._options.workers, _open_worker, (session, work, self._options.slow_s)
        ) as pool:
            yield from pool.imap_unordered(_do, range(count))
            pool.close()
            pool.join()


_opened: list[tuple[Worker, Work]] = []
"""In a forked worker: that worker."""


def _open_worker(session: pytest.Session, work: Work, slow_s: float) -> None:
    plugins = session.config.pluginmanager
    root = str(ROOT / "tests" / "conftest.py")
    conftest = next(plugin for plugin in plugins.get_plugins() if getattr(plugin, "__file__", "") == root)
    worker = Worker(session.items, binaries(), conftest, slow_s)
    plugins.register(worker)
    _opened.append((worker, work))


def _do(number: int) -> tuple[int, Any]:
    ((worker, work),) = _opened
    return number, work(worker, number)
