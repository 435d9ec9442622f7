"""An erasure reaches the archive, the outbox and the dumps; one that was killed anywhere is completed by the next."""

from __future__ import annotations

import errno
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from streamdq import Queue, erasure, outbox
from streamdq.archive import Archive
from streamdq.archive.dead_letters import RowState
from streamdq.codec import Encrypt
from streamdq.codec.encrypt import new_key
from streamdq.dump.compaction import compact
from streamdq.dump.dumper import Dumped, Dumper
from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import require_manifest
from streamdq.dump.open_folder import open_folder
from streamdq.erasure import Amount
from streamdq.errors import ArchiveMissing, FolderError
from streamdq.outbox import rows
from streamdq.outbox.relay import Relay
from tests.dumps import dumped
from tests.redis.harness import taken
from tests.servers import Server
from tests.turns import others_later

JANE = {"body.email": "jane"}


def dump(folder: Folder, server: Server) -> Dumped:
    with Dumper(folder, server.url).opened() as dumper:
        return dumper.dump()


def in_files(folder: Path) -> bool:
    """Whether a file of the dump has anything of the person."""
    return any(row["id"].startswith("jane") for row in dumped(folder))


def bury(queue: Queue, name: str, **options: Any) -> None:
    queue.enqueue("t", {"email": name}, id=f"{name}-dead", **options)
    taken(queue, "t").bury(f"gave {name} up")


def content(url: str, table: str) -> str:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as db:
        found = str(db.execute(text(f"SELECT * FROM {table}")).all())
    engine.dispose()
    return found


# -- the archive


def test_rows_of_the_archive(queue: Queue, database: str) -> None:
    for name in ("jane", "jim"):
        bury(queue, name, key=name)
    with Archive(database) as archive:
        archive.store(queue)
    found = erasure.erase(queue, where=JANE, archive=database, dry_run=True)
    assert found.places["archive"] == Amount(1, 0)
    assert erasure.erase(queue, where=JANE, archive=database).places["archive"] == Amount(1, 1)
    left = content(database, "streamdq_dead_letters")
    assert "jane" not in left
    assert "jim" in left
    assert [row.id for row in queue.history("t").rows] == ["jim-dead"], "the archive alone knew that the row was hers"
    assert erasure.erase(queue, where=JANE, archive=database).places.get("archive") == Amount(0, 0)


@pytest.mark.parametrize("wanted", [{"key": "jane"}, {"where": ["error=gave jane up"]}, {"where": ["id=jane-dead"]}])
def test_by_what_else_a_row_has(queue: Queue, database: str, wanted: dict[str, Any]) -> None:
    bury(queue, "jane", key="jane")
    with Archive(database) as archive:
        archive.store(queue)
    assert erasure.erase(queue, archive=database, **wanted).places["archive"] == Amount(1, 1)


def test_what_a_killed_run_of_the_archive_has_stored(queue: Queue, database: str, monkeypatch: Any) -> None:
    bury(queue, "jane")

    def killed(*_: Any) -> None:
        raise Killed

    with Archive(database) as archive, monkeypatch.context() as patched:
        patched.setattr("streamdq.archive.archive._Intake._take_out", killed)
        with pytest.raises(Killed):
            archive.store(queue)
        assert [row.state for row in archive.rows(_any())] == [RowState.STORED]
    assert erasure.erase(queue, where=JANE, archive=database).whole
    assert "jane" not in content(database, "streamdq_dead_letters")
    assert queue.find("t").count() == 0


def _any() -> Any:
    from streamdq.archive.dead_letters import Wanted

    return Wanted()


def test_rows_whose_bodies_can_not_be_read(newest: Server, queue: Queue, database: str) -> None:
    with Queue(newest.url, codec=[Encrypt(new_key("a"))]) as sealed:
        bury(sealed, "jane", key="jane")
        with Archive(database) as archive:
            archive.store(sealed)
    found = erasure.erase(queue, where=JANE, archive=database)
    assert [(one.place, one.count) for one in found.remaining] == [("archive", 1)]
    assert erasure.erase(queue, key="jane", archive=database).whole


def test_rows_are_read_with_the_codecs_of_the_queue(newest: Server, database: str) -> None:
    """They may be given in code, not in the environment."""
    rows.create(database)
    with Queue(newest.url, codec=[Encrypt(new_key("a"))]) as sealed:
        bury(sealed, "jane")
        with Archive(database) as archive:
            archive.store(sealed)
        found = erasure.erase(sealed, where=JANE, archive=database)
        assert found.whole
        assert found.places["archive"] == Amount(1, 1)


def test_an_archive_that_is_missing_is_reported(queue: Queue, tmp_path: Path) -> None:
    queue.enqueue("t", {"email": "jane"}, delay="1h")
    found = erasure.erase(queue, where=JANE, archive=f"sqlite:///{tmp_path}/none.db")
    assert [one.place for one in found.remaining] == ["archive"]
    assert ArchiveMissing.__name__ in found.remaining[0].why
    assert found.places["delayed jobs"] == Amount(1, 1), "its rows still have their bodies"


# -- the outbox


def put(database: str, name: str) -> None:
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as db:
        outbox.enqueue(db, "t", {"email": name}, id=f"{name}-order", delay="1h", key=name)
    engine.dispose()


def test_rows_of_the_outbox_that_wait(queue: Queue, database: str) -> None:
    rows.create(database)
    put(database, "jane")
    put(database, "jim")
    assert erasure.erase(queue, where=JANE, outbox=database, dry_run=True).places["outbox"] == Amount(1, 0)
    assert erasure.erase(queue, where=JANE, outbox=database).places["outbox"] == Amount(1, 1)
    assert "jane" not in content(database, "streamdq_outbox")
    with Relay(database, queue) as relay:
        relay.run(burst=True)
    assert [job.id for job in queue.find("t")] == ["jim-order"]


def test_rows_of_the_outbox_that_are_kept_with_their_jobs(queue: Queue, database: str, newest: Server) -> None:
    rows.create(database)
    put(database, "jane")
    with Relay(database, queue, keep=True) as relay:
        relay.run(burst=True)
        done = erasure.erase(queue, key="jane", outbox=database)
        assert done.places["outbox"] == done.places["delayed jobs"] == Amount(1, 1)
        assert "jane" not in content(database, "streamdq_outbox")
        with newest.client() as client:
            assert not client.exists("streamdq:{t:0}:outbox"), "no receipt stays without its row"
        relay.reconcile()
    assert queue.find("t").count() == 0


# -- dumps


@pytest.fixture(params=["local", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """One on a disk, and one that fsspec reaches."""
    path = tmp_path / "dump"
    return LocalFolder(path) if request.param == "local" else open_folder(f"memory://{path}")


def history(queue: Queue) -> None:
    for name in ("jane", "jim", "jane2"):
        queue.enqueue("t", {"email": name[:4]}, id=f"{name}-done", key=name[:4])
        taken(queue, "t").finish()
    queue.enqueue("t", {"email": "jane"}, id="jane-later", key="jane")
    taken(queue, "t").fail("later", "1h")


def test_rows_of_a_dump_go_and_the_rest_stays(queue: Queue, newest: Server, folder: Folder) -> None:
    history(queue)
    dump(folder, newest)
    before = dumped(folder)
    found = erasure.erase(queue, key="jane", dumps=[folder.url], dry_run=True)
    assert found.places[f"dump {folder.url}"] == Amount(3, 0)
    done = erasure.erase(queue, key="jane", dumps=[folder.url])
    assert done.places[f"dump {folder.url}"] == Amount(3, 3)
    assert dumped(folder) == [row for row in before if row["key"] == "jim"]
    manifest = require_manifest(folder)
    assert [mark.rows for mark in manifest.streams] == [1] == [manifest.rows]
    assert manifest.replaced == []
    files = [path for path in folder.files("events") if path.endswith(".parquet")]
    assert sorted(files) == sorted(file.path for file in manifest.files)
    assert dump(folder, newest) == Dumped(), "whole, and nothing is dumped again"


def test_a_job_that_is_there_leads_to_its_rows(queue: Queue, newest: Server, tmp_path: Path) -> None:
    history(queue)
    folder = LocalFolder(tmp_path / "dump")
    dump(folder, newest)
    assert erasure.erase(queue, where=JANE, dumps=[folder.url]).places[f"dump {folder.url}"] == Amount(1, 1)
    assert {row["id"] for row in dumped(tmp_path / "dump")} == {"jane-done", "jim-done", "jane2-done"}


def test_rows_that_no_dump_had_yet_are_not_lost(queue: Queue, newest: Server, tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "dump")
    queue.configure("t", create=True)
    dump(folder, newest)
    history(queue)
    erasure.erase(queue, key="jane")
    assert dump(folder, newest) == Dumped(rows=1, files=1)
    history(queue)
    erasure.erase(queue, key="jane")
    erasure.erase(queue, key="jim")
    assert dump(folder, newest) == Dumped()
    queue.enqueue("t", 1, id="x")
    taken(queue, "t").finish()
    assert dump(folder, newest) == Dumped(rows=1, files=1)


def test_a_file_that_compacting_has_replaced_goes_as_well(queue: Queue, newest: Server, tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "dump")
    for _ in range(2):
        history(queue)
        dump(folder, newest)
        queue.erase(where=["id=jane-later"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("streamdq.dump.compaction.wall_s", lambda: 4_000_000_000.0)
        compact(folder, grace_s=4_000_000_000)
    assert require_manifest(folder).replaced
    assert erasure.erase(queue, key="jane", dumps=[folder.url]).whole
    assert require_manifest(folder).replaced == []
    assert not in_files(tmp_path / "dump")


def test_the_dump_of_another_namespace_is_left_alone(queue: Queue, newest: Server, tmp_path: Path) -> None:
    """Its jobs may have the same topics and ids, and be of others."""
    with Queue(newest.url, "other") as other:
        history(other)
    folder = LocalFolder(tmp_path / "dump")
    with Dumper(folder, newest.url, "other").opened() as dumper:
        dumper.dump()
    before = dumped(folder)
    found = erasure.erase(queue, key="jane", dumps=[folder.url])
    assert [one.place for one in found.remaining] == [f"dump {folder.url}"]
    assert "namespace 'other'" in found.remaining[0].why
    assert dumped(folder) == before


def test_a_dump_without_rights_is_reported_and_what_leads_to_it_stays(
    queue: Queue, newest: Server, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(queue)
    bury(queue, "jane")
    with Archive(database) as archive:
        archive.store(queue)
    folder = LocalFolder(tmp_path / "dump")
    dump(folder, newest)

    def refuse(*_: Any) -> None:
        raise FolderError("no rights") from OSError(errno.EACCES, "no rights")

    with monkeypatch.context() as patched:
        patched.setattr("streamdq.dump.local.LocalFolder.writing", refuse)
        found = erasure.erase(queue, where=JANE, archive=database, dumps=[folder.url])
        assert {one.place for one in found.remaining} == {f"dump {folder.url}", "jobs", "archive"}
        assert erasure.erase(queue, key="jane", dumps=[folder.url]).places["delayed jobs"] == Amount(1, 1)
    assert in_files(tmp_path / "dump")
    assert erasure.erase(queue, key="jane", dumps=[folder.url]).whole
    assert erasure.erase(queue, where=JANE, archive=database, dumps=[folder.url]).whole
    assert not in_files(tmp_path / "dump")


# -- killed


class Killed(BaseException):
    """The process is no more."""


STEPS = [
    "streamdq.operations.erase.erase.Erasure.erase_traces", "streamdq.operations.erase.erase.Erasure.finish",
    "streamdq.dump.erasing.update_manifest", "streamdq.dump.erasing.remove_replaced", "streamdq.dump.erasing._without",
    "streamdq.archive.archive.Archive.delete", "streamdq.outbox.erasing.ErasableRows.erase",
    "streamdq.erasure.places.drop_outbox_receipts",
]  # fmt: skip


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["before", "after"])
@pytest.mark.parametrize("step", others_later(STEPS, *STEPS[::3]), ids=lambda step: step.rpartition(".")[2])
def test_killed_and_run_again(
    queue: Queue, newest: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, *, after: bool
) -> None:
    database = f"sqlite:///{tmp_path}/jobs.db"
    rows.create(database)
    put(database, "jane")
    with Relay(database, queue, keep=True) as relay:
        relay.run(burst=True)
    bury(queue, "jane")
    with Archive(database) as archive:
        archive.store(queue)
    queue.enqueue("t", {"email": "jane"}, id="jane-later")
    taken(queue, "t").fail("later", "1h")
    folder = LocalFolder(tmp_path / "dump")
    dump(folder, newest)
    places: dict[str, Any] = {"archive": database, "outbox": database, "dumps": [folder.url]}

    original: Any = resolve_name(step)

    def killing(*args: Any, **kwargs: Any) -> Any:
        if after:
            result = original(*args, **kwargs)
            if hasattr(result, "send"):
                return _then_killed(result)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(step, killing)
        with pytest.raises(Killed):
            erasure.erase(queue, where=JANE, **places)
    erasure.erase(queue, where=JANE, **places)
    with newest.client() as client:
        kept = [key for key in client.keys("*") if b"jane" in (client.dump(key) or b"")]  # a lease may run out
    assert kept == []
    assert not in_files(tmp_path / "dump")
    assert "jane" not in content(database, "streamdq_dead_letters") + content(database, "streamdq_outbox")
    assert erasure.erase(queue, where=JANE, **places).found == 0


def _then_killed(operation: Any) -> Any:
    yield from operation
    raise Killed
