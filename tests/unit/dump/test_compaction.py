"""Small files become one for each hour; a reader who goes by the manifest sees each row once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from streamdq.dump import compaction as compact_module
from streamdq.dump.arrow import arrow_schema, write_parquet
from streamdq.dump.compaction import Compacted, compact
from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import DumpFile, require_manifest, update_manifest
from streamdq.dump.open_folder import open_folder
from streamdq.errors import FolderBusy, HistoryUnreadable
from tests.dumps import HOUR_MS, START_MS, dumped, fill


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    if request.param == "local":
        yield LocalFolder(tmp_path / "dump")
    else:
        yield open_folder("memory://joined/dump")
        fsspec.filesystem("memory").rm("/joined", recursive=True)


def data_files(folder: Folder) -> list[str]:
    return [path for path in folder.files("events") if path.endswith(".parquet")]


def test_an_hour_becomes_one_file_with_the_same_rows(folder: Folder) -> None:
    fill(folder, files=4)
    before = dumped(folder)
    reported: list[tuple[int, int | None]] = []

    assert compact(folder, progress=lambda *word: reported.append(word)) == Compacted(hours=2, joined=8, rows=24)

    assert dumped(folder) == before
    manifest = require_manifest(folder)
    assert [file.rows for file in manifest.files] == [12, 12]
    assert reported == [(0, 24), (12, None), (12, None)]
    assert compact(folder) == Compacted()


def test_replaced_files_stay_for_the_grace(folder: Folder) -> None:
    fill(folder, files=3, hours=1)
    names = data_files(folder)
    compact(folder)
    assert set(names) < set(data_files(folder))
    assert compact(folder).removed == 0
    assert compact(folder, grace_s=0) == Compacted(removed=3)
    assert data_files(folder) == [file.path for file in require_manifest(folder).files]
    assert require_manifest(folder).replaced == []


def test_later_files_join_the_joined_one(folder: Folder) -> None:
    fill(folder, files=2, hours=1)
    compact(folder, grace_s=0)
    fill(folder, files=2, hours=1, begin_ms=START_MS + 60_000)
    before = dumped(folder)
    assert compact(folder, grace_s=0) == Compacted(hours=1, joined=3, rows=12, removed=3)
    assert dumped(folder) == before
    assert len(data_files(folder)) == 1


def test_the_present_hour_is_left_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder, files=2, hours=2)
    monkeypatch.setattr(time, "time", lambda: (START_MS + HOUR_MS + 5) / 1000)
    assert compact(folder).hours == 1


def test_many_hours_and_rows(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_module, "ROW_GROUP", 10)
    monkeypatch.setattr(compact_module, "AT_ONCE", 2)
    fill(folder, files=4, rows=7, hours=5)
    before = dumped(folder)
    assert compact(folder).hours == 5
    assert dumped(folder) == before
    assert require_manifest(folder).compacted == 3


def test_a_large_file_is_joined_a_part_at_a_time(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_module, "ROW_GROUP", 10)
    fill(folder, files=20, rows=7, hours=1)
    compact(folder)
    fill(folder, files=1, rows=7, hours=1, begin_ms=START_MS + 60_000)
    before = dumped(folder)
    portions: list[int] = []
    row_groups = compact_module._row_groups

    def watched(*arguments: Any) -> Iterator[Any]:
        for table in row_groups(*arguments):
            portions.append(table.num_rows)
            yield table

    monkeypatch.setattr(compact_module, "_row_groups", watched)
    assert compact(folder) == Compacted(hours=1, joined=2, rows=147)
    assert (sum(portions), max(portions) <= 20) == (147, True)
    assert dumped(folder) == before


def truncated(folder: Folder, path: str) -> None:
    folder.write(path, (folder.read(path) or b"")[:-20])


def another_schema(folder: Folder, path: str) -> None:
    with folder.writing(path) as file:
        write_parquet(arrow_schema().remove(3).empty_table(), file)


def another_version(folder: Folder, path: str) -> None:
    with folder.writing(path) as file:
        write_parquet(arrow_schema().with_metadata({"streamdq.schema_version": "9"}).empty_table(), file)


def fewer_rows(folder: Folder, path: str) -> None:
    with folder.writing(path) as file:
        write_parquet(arrow_schema().empty_table(), file)


def gone(folder: Folder, path: str) -> None:
    folder.remove(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, "can't be read"),
        (gone, "can't be read"),
        (another_schema, "does not have schema version 1"),
        (another_version, "does not have schema version 1"),
        (fewer_rows, "holds 0 rows; the manifest says 3"),
    ],
)
def test_a_damaged_file_stops_it_and_changes_nothing(
    folder: Folder, damage: Callable[[Folder, str], None], message: str
) -> None:
    fill(folder, files=3)
    before = require_manifest(folder)
    damage(folder, before.files[3].path)
    with pytest.raises(HistoryUnreadable, match=message):
        compact(folder)
    assert require_manifest(folder) == before
    assert [path for path in folder.files("events") if not path.endswith(".parquet")] == []


def test_one_at_a_time(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    fill(folder, files=2)
    with (
        folder.lock("compact", "another compaction"),
        pytest.raises(FolderBusy, match="another compaction is already running"),
    ):
        compact(folder)
    with folder.lock("dump", "a dump"):
        assert compact(folder).hours == 2


def test_another_that_nothing_kept_away_is_found_out(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder, files=2, hours=1)
    before = dumped(folder)
    join = compact_module._join

    def overtaken(*arguments: object) -> DumpFile:
        monkeypatch.setattr(compact_module, "_join", join)
        joined = join(*arguments)  # type: ignore[arg-type]
        update_manifest(folder, lambda manifest: setattr(manifest, "compacted", 9))
        return joined

    monkeypatch.setattr(compact_module, "_join", overtaken)
    with pytest.raises(FolderBusy, match="run this again"):
        compact(folder)
    assert dumped(folder) == before


def test_there_must_be_a_dump(folder: Folder) -> None:
    folder.write("something", b"")
    with pytest.raises(HistoryUnreadable, match="holds no dump"):
        compact(folder)
