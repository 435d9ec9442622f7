"""A file is on disk before its job is enqueued, and so is its way there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streamdq.codec.local_folder import LocalFolder


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were written to disk, in order."""
    found: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", note)
    return found


def test_the_file_and_all_folders_are_on_disk(tmp_path: Path, synced: list[str]) -> None:
    root = tmp_path / "above" / "root"
    folder = LocalFolder(str(root))
    folder.write(f"{root}/ns/hour/t/j.1", b"x" * 100_000)
    assert (root / "ns/hour/t/j.1").read_bytes() == b"x" * 100_000
    chain = [root / "ns/hour/t", root / "ns/hour", root / "ns", root, root.parent]
    assert synced == [f"{root}/ns/hour/t/j.1", *map(str, chain)]
    assert root.stat().st_mode & 0o777 == 0o700
    synced.clear()
    folder.write(f"{root}/ns/hour/t/j.2", b"y")
    assert synced == [f"{root}/ns/hour/t/j.2", f"{root}/ns/hour/t"]


def test_every_new_folder_is_on_disk(tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamdq.codec.local_folder._MOST_KNOWN", 2)
    folder = LocalFolder(str(tmp_path))
    for number in range(5):
        synced.clear()
        folder.write(f"{tmp_path}/ns/{number}/j", b"y")
        assert synced[1:] == [f"{tmp_path}/ns/{number}", f"{tmp_path}/ns", str(tmp_path), str(tmp_path.parent)]


def test_on_a_full_disk_no_part_of_the_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            LocalFolder(str(tmp_path)).write(f"{tmp_path}/ns/j", b"x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_a_file_system_that_syncs_no_folders_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    sync = os.fsync

    def refuse(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(code, "refused")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    folder = LocalFolder(str(tmp_path))
    if code == errno.EINVAL:
        folder.write(f"{tmp_path}/ns/j", b"x")
    else:
        with pytest.raises(OSError, match="refused"):
            folder.write(f"{tmp_path}/ns/j", b"x")
