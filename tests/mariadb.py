"""A real MariaDB for the tests, in a temporary directory; it ends with them."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

import pymysql

from tests.servers import START_S, free_port
from tests.waiting import HANG_S, until

USER, PASSWORD, DATABASE = "streamdq", "s3cret-pass", "shop"
_TABLES = "streamdq_outbox, streamdq_outbox_relays, streamdq_outbox_schema"


def mariadb_program() -> Path | None:
    """The server; Debian's is not on every user's path."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/libexec")
    return Path(found) if found else None


class Mariadb:
    """One server on loopback. It does not wait for the disk. ``directory``: where it keeps its data."""

    def __init__(self, program: Path, directory: Path | None = None) -> None:
        self._program = program
        self.directory = Path(tempfile.mkdtemp(prefix="streamdq-maria-", dir=directory))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # Temporary files of its own: a server that starts deletes all temporary tables that it finds.
        (self.directory / "tmp").mkdir()
        self._words = ["--no-defaults", f"--datadir={self.directory}/data", f"--tmpdir={self.directory}/tmp"]
        self._words += ["--user=root"] if os.geteuid() == 0 else []  # it refuses to run as root unless told to
        atexit.register(self.close)
        try:
            self._make()
            self.start()
            self._admit()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        words = [*self._words, "--auth-root-authentication-method=normal", "--skip-test-db"]
        done = subprocess.run(
            ["mariadb-install-db", *words],
            capture_output=True,
            text=True,
            cwd=self.directory,
            timeout=HANG_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _admit(self) -> None:
        """Lets the tests' user in, who has all rights."""
        root = pymysql.connect(unix_socket=f"{self.directory}/socket", user="root")
        with root, root.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            cursor.execute(f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'")
            cursor.execute(f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION")

    def start(self, *options: str) -> None:
        words = ["--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={self.directory}/socket"]
        words += ["--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=2", "--max-connections=30"]
        words += [f"--pid-file={self.directory}/pid", "--performance-schema=off", *options]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen([self._program, *self._words, *words], stdout=log, stderr=log)
        until(self._answers, f"MariaDB in {self.directory} answers")

    def stop(self, signal_number: int = signal.SIGKILL) -> None:
        """Stops the server at once, even with clients connected."""
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.wait(START_S)
            self._process = None

    def url(self, user: str = USER, password: str = PASSWORD) -> str:
        return f"mysql://{user}:{password}@127.0.0.1:{self.port}/{DATABASE}"

    def sql(self, *statements: str) -> list[Any]:
        """Runs each statement by itself; returns the rows of the last one."""
        rows: list[Any] = []
        with self._connected() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    def _connected(self) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, database=DATABASE, autocommit=True
        )

    def empty(self) -> None:
        self.sql(f"DROP TABLE IF EXISTS {_TABLES}")

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.close)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError((self.directory / "log").read_text())
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
