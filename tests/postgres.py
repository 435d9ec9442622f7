"""A real PostgreSQL for the tests, in a temporary directory; it ends with them."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.servers import START_S, free_port
from tests.waiting import HANG_S, until

USER, PASSWORD = "streamdq", "s3cret-pass"
_UNPRIVILEGED = ("postgres", "nobody")  # the server refuses to run as root


def postgres_directory() -> Path | None:
    """The directory of the newest server's programs; Debian's are not on the path."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("postgres")
    return debian[-1].parent if debian else Path(found).parent if found else None


class Postgres:
    """One server on loopback, and without a password on a Unix socket. It does not wait for the disk."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self.directory = Path(tempfile.mkdtemp(prefix="streamdq-pg-"))
        self.port = free_port()
        self._account: dict[str, Any] = {}
        if os.geteuid() == 0:
            import pwd

            account = next(pwd.getpwnam(name) for name in _UNPRIVILEGED if _exists(name))
            os.chown(self.directory, account.pw_uid, account.pw_gid)
            self._account = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        password = self.directory / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        words: list[str | Path] = ["-D", self.directory / "data", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync"]
        words += ["-A", "trust", "--auth-host=scram-sha-256", f"--pwfile={password}"]
        done = subprocess.run(
            [self._programs / "initdb", *words],
            capture_output=True, text=True, cwd=self.directory, timeout=HANG_S, **self._account,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        words: list[str | Path] = ["-D", self.directory / "data", "-p", str(self.port), "-k", self.directory]
        words += ["-h", "127.0.0.1", "-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=20"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", *words],
                stdout=log, stderr=log, cwd=self.directory, **self._account,
            )  # fmt: skip
        until(self._answers, f"PostgreSQL in {self.directory} answers")

    def stop(self) -> None:
        """Stops the server at once, even with clients connected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(START_S)
            self._process = None

    def url(self, user: str = USER, password: str = PASSWORD, database: str = "postgres") -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    @property
    def socket_url(self) -> str:
        return f"postgresql+psycopg://{USER}@/postgres?host={self.directory}&port={self.port}"

    def sql(self, *statements: str) -> list[Any]:
        """Runs each statement by itself; returns the rows of the last one."""
        rows: list[Any] = []
        with psycopg.connect(self.url(), autocommit=True) as connection:
            for statement in statements:
                done = connection.execute(statement.encode())
                rows = done.fetchall() if done.description else []
        return rows

    def wait_until_idle(self) -> None:
        """Until no other client is in a transaction. That of a client that was killed, with its locks, goes on until
        the server has noticed.
        """
        others = "pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'"
        asked = f"SELECT count(*) FROM pg_stat_activity WHERE {others}"
        until(lambda: self.sql(asked) == [(0,)], "PostgreSQL has let go of clients that were killed")

    def empty(self) -> None:
        self.sql(
            "DROP TABLE IF EXISTS streamdq_dead_letters, streamdq_archive_schema",
            "DROP TABLE IF EXISTS streamdq_outbox, streamdq_outbox_relays, streamdq_outbox_schema",
        )

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.close)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self.directory / "log").read_text())
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url()):
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _exists(account: str) -> bool:
    import pwd

    with contextlib.suppress(KeyError):
        pwd.getpwnam(account)
        return True
    return False
