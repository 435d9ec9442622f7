"""A process that tries mutants, one after the other, each in a child: whatever a mutant does to its process ends there.
It has servers of its own. When a mutant has hung one, or was stopped in the middle of a test, they start anew.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from multiprocessing import util
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import pytest
import redis

from streamdq.store import assembly, calling
from tests.servers import Binary, Pool, Server

from . import python
from .choice import Choice, Ran
from .mutant import Mutant

SEEDS = range(1, 4)
SEED_S = 200.0
HUNG = " (did not end)"


class _Failed(NamedTuple):
    number: int
    hung: bool


class Worker:
    def __init__(
        self, items: Sequence[pytest.Item], binaries: Sequence[Binary], conftest: ModuleType, slow_s: float
    ) -> None:
        """``conftest``: makes the tests' servers. ``slow_s``: see run.Options."""
        self._items, self._slow_s, self._failed = items, slow_s, False
        self._servers = _Lent(binaries)
        self._at = mmap.mmap(-1, 8)  # which test a child runs, for this process to read
        assembly._sources()  # read once, for all children
        gc.freeze()
        vars(conftest)["Pool"] = lambda: self._servers
        # Not `atexit`: processes of a pool end without.
        util.Finalize(self, self._servers.end, exitpriority=1)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def measure(self, chosen: Sequence[int]) -> list[Ran]:
        """Runs these tests without a mutant."""
        found = self._in_child(lambda: self._measure(chosen))
        assert found is not None, "a test ends the process"
        return [Ran(*each) for each in found]

    def killer(self, mutant: Mutant, choice: Choice, simulated: bool) -> str | None:
        """The first test that fails with the mutant, twice: once may be the busy machine's doing. None if none does."""
        chosen = choice.of(mutant)
        while (failed := self._failing(mutant, choice, chosen)) is not None:
            i, _ = failed
            if again := self._failing(mutant, choice, [i]):
                choice.worked(mutant, i)
                return self._items[i].nodeid + (HUNG if again.hung else "")
            chosen = chosen[chosen.index(i) + 1 :]
        return self._broken_seed(mutant) if simulated else None

    def _failing(self, mutant: Mutant, choice: Choice, chosen: Sequence[int]) -> _Failed | None:
        """The first of these tests that fails, or does not end."""
        found = self._in_child(lambda: self._first_failure(mutant, choice, chosen))
        self._servers.mend(found is None)
        if found is None:
            return _Failed(int.from_bytes(self._at[:], "big"), hung=True)
        (i,) = found
        return None if i is None else _Failed(i, hung=False)

    def _broken_seed(self, mutant: Mutant) -> str | None:
        """A history is the same each time, so once is enough, unless it does not end."""
        found = self._in_child(lambda: self._first_broken(mutant)) or self._in_child(lambda: self._first_broken(mutant))
        return f"simulation{HUNG}" if found is None else found[0]

    def _measure(self, chosen: Sequence[int]) -> list[Ran]:
        used: set[str] = set()
        load = assembly.load_script

        def recorded(name: str) -> assembly.Script:
            used.add(name)
            return load(name)

        vars(assembly)["load_script"] = vars(calling)["load_script"] = recorded
        out = []
        for i, following in _pairs(chosen):
            used.clear()
            began = time.monotonic()
            passed = self._passes(i, following)
            out.append(Ran(time.monotonic() - began, sorted(used), passed))
        return out

    def _first_failure(self, mutant: Mutant, choice: Choice, chosen: Sequence[int]) -> list[int | None]:
        """In a list: None as such would be what a child that a signal ended has returned."""
        install(mutant)
        for i, following in _pairs(chosen):
            self._at[:] = i.to_bytes(8, "big")
            signal.setitimer(signal.ITIMER_REAL, self._slow_s + 10 * choice.ran[i].took_s)  # ends the process
            if not self._passes(i, following):
                return [i]
        return [None]

    @staticmethod
    def _first_broken(mutant: Mutant) -> list[str | None]:
        install(mutant)
        for seed in SEEDS:
            signal.setitimer(signal.ITIMER_REAL, SEED_S)
            from tests.simulation.runs import run_seed  # knows the scripts as they are when it is imported

            if run_seed(seed).broken:
                return [f"simulation, seed {seed}"]
        return [None]

    def _passes(self, i: int, following: int | None) -> bool:
        item = self._items[i]
        self._failed = False
        after = None if following is None else self._items[following]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        return not self._failed

    @staticmethod
    def _in_child(work: Callable[[], Any]) -> Any:
        """What `work` returns, as JSON has it; None if a signal ended it.

        Raises: RuntimeError: it raised something, which is no verdict.
        """
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            _work_quietly(work, write)
        os.close(write)
        try:
            with os.fdopen(read) as pipe:
                text = pipe.read()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # the servers that its tests have started would stay
            os.waitpid(pid, 0)
        raised, returned = json.loads(text) if text else (None, None)
        if raised:
            raise RuntimeError(raised)
        return returned


def install(mutant: Mutant) -> None:
    """Puts the mutant in place of the source, in this process."""
    if mutant.file.endswith(".py"):
        python.install(mutant)
    else:
        assembly._sources()[mutant.file.removeprefix("lua/")] = mutant.source
        for cached in (
            assembly.load_script, assembly.source_of, assembly.sha_of, assembly.library, assembly.function_of,
        ):  # fmt: skip
            cached.cache_clear()


def _work_quietly(work: Callable[[], Any], write: int) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(null, stream)
        failure: tuple[str | None, Any]
        try:
            failure = None, work()
        except Exception:
            failure = traceback.format_exc(), None
        with os.fdopen(write, "w") as pipe:
            json.dump(failure, pipe)
    finally:
        os._exit(0)


def _pairs(chosen: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    return zip_longest(chosen, chosen[1:])


class _LentServer(Server):
    """A child of this process's parent can use the server, but neither wait for it nor end it."""

    def __init__(self, binary: Binary) -> None:
        self._owner = os.getpid()
        super().__init__(binary)

    @property
    def running(self) -> bool:
        return self._owner != os.getpid() or super().running

    def answers(self) -> bool:
        with self.client(socket_timeout=2, retry=None) as client, suppress(redis.RedisError):
            return bool(client.ping())
        return False


class _Lent(Pool):
    """Servers for children: they start in the worker and outlive each child."""

    def __init__(self, binaries: Sequence[Binary]) -> None:
        super().__init__()
        self._lent = [_LentServer(binary) for binary in binaries]
        self._servers.update({server.binary.name: server for server in self._lent})

    def mend(self, all: bool) -> None:
        for server in self._lent:
            if all or not server.answers():
                server.kill()
                server.start()
                continue
            with server.client() as client, suppress(redis.ResponseError):  # before 7.0 there are no functions
                client.function_flush()

    def close(self) -> None:
        """At the end of the tests in a child, nothing."""

    def end(self) -> None:
        for server in self._lent:
            server.close()
