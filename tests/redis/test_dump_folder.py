"""The folder of a dump: full, shared, remote, left behind half written, and its manifest."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem

from streamdq.dump import dumper as dump_module
from streamdq.dump.compaction import compact
from streamdq.dump.dumper import Dumped, Dumper
from streamdq.dump.manifest import MANIFEST, Manifest, update_manifest
from streamdq.dump.open_folder import open_folder
from streamdq.errors import FolderBusy, FolderError, HistoryUnreadable, InvalidInput
from tests.dumps import HOUR_MS, START_MS
from tests.redis.dumping import Setting


def test_a_full_disk_costs_nothing_that_was_committed(here: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    first = here.write(10)
    here.dump()
    second = here.write(10, begin_ms=START_MS + HOUR_MS)
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(FolderError, match="No space left on device"):
            here.dump()
    assert here.entries == first
    assert here.folder.files("events") == [file.path for file in here.manifest.files]
    assert (here.dump().rows, here.entries) == (10, first + second)


def test_files_are_joined_while_a_dump_goes_on(here: Setting) -> None:
    entries = here.write(10)
    dumper = Dumper(here.folder, here.server.url)
    with dumper.opened():
        for hour in range(3):
            dumper.dump()
            entries += here.write(10, begin_ms=START_MS + 60_000 * (hour + 1))
            compact(here.folder, grace_s=0)
        dumper.dump()
    assert here.entries == entries
    assert len(here.manifest.files) == 2


def test_a_killed_ones_files_are_cleared_away(here: Setting) -> None:
    entries = here.write(3)
    here.folder.write("events/dt=2023-11-14/hour=22/d000000001.parquet", b"not committed")
    here.folder.write("events/dt=2023-11-14/hour=22/_d000000001.parquet.tmp", b"half")
    here.folder.write("events/dt=2023-11-14/hour=22/c000000001.parquet", b"another's")
    here.dump()
    assert here.entries == entries
    names = [path.rpartition("/")[2] for path in here.folder.files("events")]
    assert names == ["c000000001.parquet", "d000000001.parquet"]


def test_a_folder_holds_the_dump_of_one_namespace(here: Setting) -> None:
    here.dump()
    with pytest.raises(InvalidInput, match="holds the dump of namespace 'streamdq', not 'other'"):
        here.dump(namespace="other")


def test_two_dumps_keep_out_of_each_others_way(here: Setting) -> None:
    with Dumper(here.folder, here.server.url).opened(), pytest.raises(FolderBusy, match="is already running"):
        here.dump()
    assert here.dump().whole


@pytest.fixture
def remote(here: Setting) -> Iterator[Setting]:
    """In fsspec's memory, where no lock tells and a rename is a copy."""
    system = fsspec.filesystem("memory")
    here.folder = open_folder("memory://bucket/dump")
    yield here
    system.rm("/bucket", recursive=True)


def test_any_url_of_fsspec(remote: Setting) -> None:
    first = remote.write(50, step_ms=HOUR_MS // 25)
    assert remote.dump(batch=20).rows == 50
    second = remote.write(5, begin_ms=START_MS + 5 * HOUR_MS)
    assert remote.dump().rows == 5
    assert remote.entries == first + second
    assert remote.folder.files("") == sorted([MANIFEST, *(file.path for file in remote.manifest.files)])


def test_two_dumps_at_once_are_found_out_where_nothing_locks(remote: Setting) -> None:
    entries = remote.write(10)
    late = Dumper(remote.folder, remote.server.url)
    with late.opened():

        def overtaken(rows: int, _total: int | None) -> None:
            if rows:
                remote.dump()

        with pytest.raises(FolderBusy, match="another dump has written there meanwhile"):
            late.dump(progress=overtaken)
        assert late.dump().rows == 0
    assert remote.entries == entries


def test_what_another_has_written_and_not_committed_yet_stays(remote: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = remote.write(10)
    commit = update_manifest

    def meanwhile(*arguments: Any, **options: Any) -> Manifest:
        if remote.folder.files("events"):
            monkeypatch.setattr(dump_module, "update_manifest", commit)
            with Dumper(open_folder(remote.folder.url), remote.server.url).opened():
                pass
        return commit(*arguments, **options)

    monkeypatch.setattr(dump_module, "update_manifest", meanwhile)
    assert remote.dump().rows == 10
    assert vars(dump_module)["update_manifest"] is commit
    assert remote.entries == entries


def test_another_that_commits_first_touches_no_file_of_the_other(
    remote: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = remote.write(10)
    commit = update_manifest
    second: list[str] = []

    def meanwhile(*arguments: Any, **options: Any) -> Manifest:
        if remote.folder.files("events"):
            monkeypatch.setattr(dump_module, "update_manifest", commit)
            second.extend(remote.write(3, begin_ms=START_MS + 60_000))
            with Dumper(open_folder(remote.folder.url), remote.server.url).opened() as faster:
                assert faster.dump().rows == 13
        return commit(*arguments, **options)

    monkeypatch.setattr(dump_module, "update_manifest", meanwhile)
    with pytest.raises(FolderBusy, match="another dump has written there meanwhile"):
        remote.dump()
    assert remote.entries == first + second
    assert remote.dump() == Dumped()


def test_what_a_killed_run_left_goes_after_a_day(remote: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.write(3)
    remote.dump()
    left = [
        "events/dt=2023-11-14/hour=22/d000000009-1a.parquet",
        "events/dt=2023-11-14/hour=22/_d000000009-1a.parquet.tmp",
    ]
    for path in left:
        remote.folder.write(path, b"cut o")
    assert remote.dump().whole
    assert set(left) < set(remote.folder.files("events"))
    monkeypatch.setattr("streamdq.dump.remote.ABANDONED_AFTER", timedelta(0))
    assert remote.dump().whole
    assert remote.folder.files("events") == [file.path for file in remote.manifest.files]
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "modified", AbstractFileSystem.modified)
    remote.folder.write(left[0], b"cut o")
    assert remote.dump().whole
    assert left[0] in remote.folder.files("events"), "where no time is given, nothing is taken for abandoned"


def test_a_copy_that_was_cut_off_is_made_good(remote: Setting) -> None:
    """What a rename leaves that is a copy and dies: half of the target, and all of the source."""
    entries = remote.write(10)
    remote.dump()
    system = fsspec.filesystem("memory")
    whole = system.cat_file("/bucket/dump/manifest.json")
    system.pipe_file("/bucket/dump/_manifest.json.tmp", whole)
    system.pipe_file("/bucket/dump/manifest.json", whole[: len(whole) // 2])
    assert remote.entries == entries
    more = remote.write(5, begin_ms=START_MS + HOUR_MS)
    assert remote.dump().rows == 5
    assert remote.entries == entries + more


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is damaged"),
        ('{"format": "streamdq dump"', "is damaged"),
        ("[]", "is damaged"),
        ('{"format": "notes"}', "is not the manifest of a dump"),
        ('{"format": "streamdq dump", "schema_version": "9"}', "has schema version '9'"),
        ('{"format": "streamdq dump", "schema_version": "1", "files": [{"path": "x"}]}', "is damaged: files.0.rows"),
    ],
)
def test_a_manifest_that_can_not_be_read_stops_the_dump(here: Setting, content: str, message: str) -> None:
    here.write(3)
    here.folder.write(MANIFEST, content.encode())
    with pytest.raises(HistoryUnreadable, match=message):
        here.dump()
    assert here.folder.files("events") == []
