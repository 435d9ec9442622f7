"""A dump, and a compaction, killed with -9 at each step and run again: no row is missing, none is there twice, and who
reads in between is not misled.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamdq import Queue
from streamdq.compact import compact
from streamdq.dump import Dumper
from streamdq.folder import LocalFolder
from streamdq.keys import ShardKeys
from streamdq.manifest import load_manifest, require_manifest
from tests.dumps import HOUR_MS, START_MS, dumped, entries_of, fill, write_rows
from tests.servers import Server, binaries

SHARD = ShardKeys("streamdq", "t", 0)
Run = Callable[[str, Path, str, int], int]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Carries out one thing, killed at a step; returns the exit code."""
    command = [sys.executable, "-m", "tests.crash.dump_steps"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout

        def carry_out(what: str, folder: Path, url: str, step: int) -> int:
            stdin.write(json.dumps([what, str(folder), url, step]) + "\n")
            stdin.flush()
            return int(stdout.readline())

        yield carry_out
        stdin.close()


def no_strays(folder: LocalFolder) -> bool:
    return folder.files("events") == sorted(file.path for file in require_manifest(folder).files)


def test_a_dump_killed_at_each_step(redis_server: Server, tmp_path: Path, run: Run) -> None:
    """The first run of a folder on one server, a later one on the others."""
    later = redis_server.binary.name != binaries()[0].name
    with redis_server.client() as client:
        for step in range(1, 200):
            redis_server.flush()
            with Queue(redis_server.url) as queue:
                queue.configure("t")
            folder = LocalFolder(tmp_path / str(step))
            first = write_rows(client, SHARD, 5)
            if later:
                finish(folder, redis_server)
            second = write_rows(client, SHARD, 20, begin_ms=START_MS + HOUR_MS, step_ms=HOUR_MS // 15)

            code = run("dump", folder.root, redis_server.url, step)

            assert code in (0, -signal.SIGKILL)
            if load_manifest(folder) is not None:
                seen = entries_of(folder)
                assert seen == (first + second)[: len(seen)]
            third = write_rows(client, SHARD, 5, begin_ms=START_MS + 9 * HOUR_MS)
            finish(folder, redis_server)
            assert entries_of(folder) == first + second + third
            assert no_strays(folder)
            if code == 0:
                break
        assert 20 < step < 200


def finish(folder: LocalFolder, server: Server) -> None:
    with Dumper(folder, server.url).opened() as dumper:
        assert dumper.dump().whole


def test_a_compaction_killed_at_each_step(tmp_path: Path, run: Run) -> None:
    for step in range(1, 200):
        folder = LocalFolder(tmp_path / str(step))
        fill(folder, files=2)
        before = dumped(folder)

        code = run("compact", folder.root, "", step)

        assert code in (0, -signal.SIGKILL)
        assert dumped(folder) == before
        compact(folder, grace_s=0)
        assert dumped(folder) == before
        assert no_strays(folder)
        assert len(require_manifest(folder).files) == 2
        if code == 0:
            break
    assert 20 < step < 200
