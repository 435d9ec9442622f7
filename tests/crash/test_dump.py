"""A dump, and a compaction, killed with -9 at each step and run again: no row is missing, none is there twice, and who
reads in between is not misled.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamdq import Queue
from streamdq.dump import Dumper
from streamdq.dump.compaction import compact
from streamdq.dump.folder import Folder
from streamdq.dump.manifest import load_manifest, require_manifest
from streamdq.dump.open_folder import open_folder
from streamdq.keys import ShardKeys
from tests.children import child
from tests.crash.worker_processes import IN_TURNS
from tests.dumps import HOUR_MS, START_MS, dumped, entries_of, fill, write_rows
from tests.servers import Server, binaries

if TYPE_CHECKING:
    from tests.s3 import Bucket

pytestmark = IN_TURNS

SHARD = ShardKeys("streamdq", "t", 0)
Run = Callable[[str, str, str, int], int]


@pytest.fixture
def server(newest: Server) -> Server:
    return newest


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with runner() as carry_out:
        yield carry_out


@contextmanager
def runner(*modules: str) -> Iterator[Run]:
    """Carries out one thing, killed at a step; returns the exit code. `modules` are imported once."""
    command = [sys.executable, "-m", "tests.crash.dump_steps", *modules]
    with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout

        def carry_out(what: str, folder: str, url: str, step: int) -> int:
            stdin.write(json.dumps([what, folder, url, step]) + "\n")
            stdin.flush()
            return int(stdout.readline())

        yield carry_out
        stdin.close()


@pytest.fixture(autouse=True)
def _strays_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What killed runs leave elsewhere than on a disk would stay for a day."""
    monkeypatch.setattr("streamdq.dump.remote.ABANDONED_AFTER", timedelta(days=-1))


def no_strays(folder: Folder) -> bool:
    return folder.files("events") == sorted(file.path for file in require_manifest(folder).files)


def killed_at_each_step(run: Run, server: Server, name: Callable[[int], str], later: bool) -> int:
    """Dumps into a folder for each step, the first run of it or a later one; returns how many steps there are."""
    with server.client() as client:
        for step in range(1, 200):
            server.flush()
            with Queue(server.url) as queue:
                queue.configure("t", create=True)
            folder = open_folder(name(step))
            first = write_rows(client, SHARD, 5)
            if later:
                finish(folder, server)
            second = write_rows(client, SHARD, 20, begin_ms=START_MS + HOUR_MS, step_ms=HOUR_MS // 15)

            code = run("dump", name(step), server.url, step)

            assert code in (0, -signal.SIGKILL)
            if load_manifest(folder) is not None:
                seen = entries_of(folder)
                assert seen == (first + second)[: len(seen)]
            third = write_rows(client, SHARD, 5, begin_ms=START_MS + 9 * HOUR_MS)
            finish(folder, server)
            assert entries_of(folder) == first + second + third
            assert no_strays(folder)
            if code == 0:
                return step
    pytest.fail("it never comes to its end")


def test_a_dump_killed_at_each_step(redis_server: Server, tmp_path: Path, run: Run) -> None:
    """The first run of a folder on one server, a later one on the others."""
    later = redis_server.binary.name != binaries()[0].name
    assert killed_at_each_step(run, redis_server, lambda step: str(tmp_path / str(step)), later) > 20


def test_a_dump_into_a_bucket_killed_at_each_step(server: Server, bucket: Bucket) -> None:
    with runner("s3fs") as run:
        assert killed_at_each_step(run, server, lambda step: f"{bucket.url}/{step}", later=False) > 10


def finish(folder: Folder, server: Server) -> None:
    with Dumper(folder, server.url).opened() as dumper:
        assert dumper.dump().whole


def test_a_compaction_killed_at_each_step(tmp_path: Path, run: Run) -> None:
    assert compaction_killed_at_each_step(run, lambda step: str(tmp_path / str(step))) > 20


def test_a_compaction_in_a_bucket_killed_at_each_step(bucket: Bucket) -> None:
    with runner("s3fs") as run:
        assert compaction_killed_at_each_step(run, lambda step: f"{bucket.url}/{step}", hours=1) > 8


def compaction_killed_at_each_step(run: Run, name: Callable[[int], str], hours: int = 2) -> int:
    for step in range(1, 200):
        folder = open_folder(name(step))
        fill(folder, files=2, hours=hours)
        before = dumped(folder)

        code = run("compact", name(step), "", step)

        assert code in (0, -signal.SIGKILL)
        assert dumped(folder) == before
        compact(folder, grace_s=0)
        assert dumped(folder) == before
        assert no_strays(folder)
        assert len(require_manifest(folder).files) == hours
        if code == 0:
            return step
    pytest.fail("it never comes to its end")
