"""Files appear whole or not at all, on a disk and wherever fsspec reaches."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import fsspec
import pytest
from fsspec.registry import _registry as fsspec_registry

from streamdq.cli import app as cli
from streamdq.dump.arrow import pyarrow
from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import MANIFEST, Manifest, require_manifest, update_manifest
from streamdq.dump.open_folder import open_folder
from streamdq.dump.remote import RemoteFolder
from streamdq.errors import FolderBusy, FolderError, InvalidInput, MissingExtra

if TYPE_CHECKING:
    from tests.s3 import Bucket


@pytest.fixture(params=["path", "file", "memory", "fsspec", pytest.param("s3", marks=pytest.mark.thorough)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    place = tmp_path / "a folder"
    if request.param == "path":
        yield open_folder(str(place))
    elif request.param == "file":
        yield open_folder(f"file://{place}")
    elif request.param == "s3":
        yield open_folder(f"{request.getfixturevalue('bucket').url}/some/where")
    elif request.param == "fsspec":
        yield RemoteFolder(f"file://{place}", fsspec.filesystem("file"), str(place))
    else:
        yield open_folder("memory://some/where")
        fsspec.filesystem("memory").rm("/some", recursive=True)


def test_on_a_disk_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = open_folder(str(tmp_path / "made" / "dump"))
        with folder.lock("dump", "a dump"):
            folder.write("a/b", b"one")
    finally:
        os.umask(before)
    made = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    folders = dict.fromkeys(["made", "made/dump", "made/dump/a"], 0o700)
    assert made == {**folders, "made/dump/a/b": 0o600, "made/dump/_dump.lock": 0o600}


def test_what_is_written_can_be_read_and_removed(folder: Folder) -> None:
    assert folder.read("a/b") is None
    folder.write("a/b", b"one")
    folder.write("a/b", b"another")
    folder.write("a/c/d", b"")
    assert folder.read("a/b") == b"another"
    assert folder.size("a/b") == 7
    with folder.open("a/b") as file:
        assert file.read() == b"another"
    assert folder.files("a") == ["a/b", "a/c/d"]
    assert folder.files("") == ["a/b", "a/c/d"]
    folder.remove("a/b")
    folder.remove("a/b")
    assert folder.files("a") == ["a/c/d"]


def test_what_is_not_written_to_its_end_does_not_appear(folder: Folder) -> None:
    folder.write("x", b"old")

    def fail() -> None:
        with folder.writing("x") as file:
            file.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert folder.read("x") == b"old"
    assert folder.files("") == ["x"]


def test_others_find_a_file_by_its_full_name(folder: Folder) -> None:
    folder.write("x", b"1")
    with fsspec.open(folder.full("x"), "rb") as file:
        assert file.read() == b"1"


def test_a_folder_has_a_name() -> None:
    with pytest.raises(InvalidInput, match="empty"):
        open_folder("")


def test_a_disk_that_refuses_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = LocalFolder(tmp_path / "file")
    with pytest.raises(FolderError, match="can't write x: "):
        folder.write("x", b"")
    with pytest.raises(FolderError, match=r"can't lock _dump\.lock: "), folder.lock("dump", "a dump"):
        pass
    assert folder.read("x") is None
    (tmp_path / "directory").mkdir()
    with pytest.raises(FolderError, match="can't read directory"):
        LocalFolder(tmp_path).read("directory")


def test_a_lock_is_for_one_at_a_time_and_ends_with_the_block(tmp_path: Path) -> None:
    first, second = LocalFolder(tmp_path), LocalFolder(tmp_path)
    with first.lock("dump", "another dump"):
        with (
            pytest.raises(FolderBusy, match="another dump is already running there"),
            second.lock("dump", "another dump"),
        ):
            pass
        with second.lock("other", "another"):
            pass
    with second.lock("dump", "another dump"):
        pass


@pytest.mark.thorough
@pytest.mark.parametrize("there", [True, False])
def test_two_commits_at_once_in_a_bucket_both_hold(bucket: Bucket, there: bool) -> None:
    folder, other = (open_folder(f"{bucket.url}/dump") for _ in range(2))
    if there:
        update_manifest(folder, lambda _: None, new=True)
    seen: list[Manifest] = []

    def overtaken(manifest: Manifest) -> None:
        seen.append(manifest)
        if len(seen) == 1:
            update_manifest(other, lambda theirs: setattr(theirs, "compacted", 7), new=True)
        manifest.dumped += 1

    update_manifest(folder, overtaken, new=True)
    assert len(seen) == 2
    found = require_manifest(folder)
    assert (found.dumped, found.compacted, found.generation) == (1, 7, 2 + there)
    assert folder.files("") == [MANIFEST]


@pytest.mark.thorough
def test_a_writer_that_is_always_overtaken_in_a_bucket_fails(bucket: Bucket) -> None:
    folder, other = (open_folder(f"{bucket.url}/dump") for _ in range(2))
    with pytest.raises(FolderBusy, match=r"another process has changed manifest\.json meanwhile"):
        update_manifest(folder, lambda _: void(update_manifest(other, lambda _: None, new=True)), new=True)


@pytest.mark.thorough
def test_a_store_that_can_not_compare_is_written_to_all_the_same(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_folder(f"{bucket.url}/dump")
    refusal = OSError(errno.ENOSYS, "A header you provided implies functionality that is not implemented")
    monkeypatch.setattr("s3fs.S3FileSystem.pipe_file", Mock(side_effect=refusal))
    for n in range(1, 3):
        assert update_manifest(folder, lambda _: None, new=True).generation == n == require_manifest(folder).generation


def void(_: object) -> None:
    """For a lambda that returns nothing."""


class Strict(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
    """Renames as SFTP does: not onto what is there."""

    protocol = "strict"

    def mv(self, path1: str, path2: str, **_: object) -> None:
        if self.exists(path2):
            raise OSError("Failure")
        super().mv(path1, path2)


def test_a_place_that_replaces_no_file() -> None:
    folder = RemoteFolder("strict://strictly", Strict(), "/strictly")
    folder.write("x", b"old")
    folder.write("x", b"new")
    assert (folder.read("x"), folder.files("")) == (b"new", ["x"])
    Strict().rm("/strictly", recursive=True)


class Broken(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
    """Takes files, and renames none; its library has errors of its own."""

    protocol = "broken"

    def mv(self, path1: str, path2: str, **_: object) -> None:
        raise Unheard(path1, path2)


class Unheard(Exception):
    """What no other library raises."""


def test_a_place_that_fails_is_reported_and_keeps_nothing() -> None:
    folder = RemoteFolder("broken://down", Broken(), "/down")
    with pytest.raises(FolderError, match=r"broken://down: can't write y: Unheard: .*; check the address") as raised:
        folder.write("y", b"")
    assert isinstance(raised.value.__cause__, OSError)
    assert folder.files("") == []


def test_a_file_is_read_in_parts(folder: Folder) -> None:
    content = bytes(range(256)) * 1000
    folder.write("x", content)
    with folder.open("x") as file:
        file.seek(-300, io.SEEK_END)
        assert file.read(50) == content[-300:-250]
        assert file.tell() == len(content) - 250
        file.seek(1000)
        assert file.read() == content[1000:]
    with pytest.raises(FileNotFoundError), folder.open("y") as file:
        file.read()


@pytest.mark.parametrize("url", ["nonsense://x", "s3x://bucket"])
def test_a_url_that_nobody_knows(url: str) -> None:
    with pytest.raises(InvalidInput, match=url):
        open_folder(url)


@pytest.fixture
def _no_s3fs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed, and never looked for."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for name in ("s3", "s3a"):
        monkeypatch.delitem(fsspec_registry, name, raising=False)


@pytest.mark.usefixtures("_no_s3fs")
@pytest.mark.parametrize("command", [["simulate-history"], ["compact"], ["--url", "redis://127.0.0.1:1", "dump"]])
def test_a_missing_file_system_names_the_package(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MissingExtra):
        open_folder("s3://bucket/dump")
    assert cli.run([*command, "--out", "s3://bucket/dump"]) == 2
    assert capsys.readouterr().err == "streamdq: this needs s3fs, which is not installed: pip install s3fs\n"


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    message = r"pip install 'streamdq\[dump\]'"
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtra, match=message):
        open_folder("memory://x")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    pyarrow.cache_clear()
    with pytest.raises(MissingExtra, match=message):
        pyarrow()
    monkeypatch.setitem(sys.modules, "numpy", None)
    for command in (["simulate-history"], ["compact"], ["--url", "redis://127.0.0.1:1", "dump"]):
        assert cli.run([*command, "--out", str(tmp_path)]) == 2
