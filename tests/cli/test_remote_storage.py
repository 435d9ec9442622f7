"""Dumps that are not on a local disk: their life, and what goes wrong there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import fsspec
import pytest

from streamdq import Queue
from streamdq.cli import app as cli
from streamdq.dump.manifest import MANIFEST, require_manifest
from streamdq.dump.open_folder import open_folder
from streamdq.keys import ShardKeys
from tests.dumps import HOUR_MS, START_MS, entries_of, fill, write_rows
from tests.servers import Server

if TYPE_CHECKING:
    from tests.s3 import Bucket

SHARD = ShardKeys("streamdq", "t", 0)
Tell = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tell(server: Server, capsys: pytest.CaptureFixture[str]) -> Tell:
    def carry_out(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(["--url", server.url, *arguments])
        return code, *capsys.readouterr()

    with Queue(server.url) as queue:
        queue.configure("t", create=True)
    return carry_out


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.thorough)])
def out(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "s3":
        yield f"{request.getfixturevalue('bucket').url}/a/dump"
        return
    yield "memory://bucket/a/dump"
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def write(server: Server, count: int, begin_ms: int = START_MS) -> list[str]:
    with server.client() as client:
        return write_rows(client, SHARD, count, begin_ms, step_ms=HOUR_MS // 10)


def test_dump_compact_and_forget(tell: Tell, server: Server, out: str) -> None:
    folder = open_folder(out)

    def files() -> list[str]:
        return sorted(path for path in folder.files("") if path != MANIFEST)

    def named() -> list[str]:
        return sorted(file.path for file in require_manifest(folder).files)

    first = write(server, 25)
    code, said, err = tell("dump", "--out", out)
    assert (code, err) == (0, "")
    assert said.startswith(f"25 rows in 3 files of {out}")
    second = write(server, 15, START_MS + 3 * HOUR_MS - HOUR_MS // 2)
    assert json.loads(tell("dump", "--out", out, "--json")[1])["rows"] == 15
    assert json.loads(tell("dump", "--out", out, "--json")[1])["rows"] == 0
    assert entries_of(folder) == first + second
    assert files() == named()
    code, said, _ = tell("compact", "--out", out, "--grace", "0", "--json")
    assert (code, json.loads(said)) == (0, {"hours": 1, "joined": 2, "rows": 10, "removed": 2})
    assert entries_of(folder) == first + second
    assert files() == named()
    with server.client() as client:
        assert client.hexists(SHARD.settings, "dumps")
        assert tell("dump", "--out", out, "--forget")[0] == 0
        assert not client.hexists(SHARD.settings, "dumps")


@pytest.mark.thorough
def test_a_bucket_that_is_not_there_is_not_made(tell: Tell, server: Server, bucket: Bucket) -> None:
    write(server, 3)
    code, out, err = tell("dump", "--out", "s3://nowhere-at-all/dump")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "s3://nowhere-at-all/dump: can't write manifest.json: " in err
    assert "bucket does not exist" in err
    assert bucket.buckets == [bucket.name]
    code, _, err = tell("compact", "--out", "s3://nowhere-at-all/dump")
    assert (code, err.count("\n")) == (1, 1)
    assert "s3://nowhere-at-all/dump holds no dump" in err
    with server.client() as client:
        assert not client.hexists(SHARD.settings, "dumps"), "nothing is registered that has no folder"


def refuses(bucket: Bucket) -> str:
    return bucket.url


def unknown(bucket: Bucket) -> str:
    bucket.environment(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
    return bucket.url


def away(bucket: Bucket) -> str:
    bucket.environment(AWS_ENDPOINT_URL="http://127.0.0.1:1")
    return bucket.url


def no_name(_: Bucket) -> str:
    return "s3://no bucket's name"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (refuses, ""),
        (unknown, "NoCredentialsError: Unable to locate credentials"),
        (away, "EndpointConnectionError: Could not connect"),
        (no_name, "Invalid bucket name"),
    ],
)
def test_what_a_store_refuses_is_reported(
    tell: Tell, bucket: Bucket, break_it: Callable[[Bucket], str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/nowhere")  # no credentials of this machine's user
    fill(open_folder(f"{bucket.url}/dump"), files=2)
    url = break_it(bucket)
    with bucket.refusing():
        for command in ("dump", "compact"):
            code, out, err = tell(command, "--out", f"{url}/dump")
            assert (code, out, err.count("\n")) == (1, "", 1)
            assert err.startswith(f"streamdq: {url}/dump: can't read manifest.json: ")
            assert why in err
            assert "check the address, the credentials" in err
