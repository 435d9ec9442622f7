"""Bodies in files: named after their job, read as they were written, and found again by the sweep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdq.codec import Encrypt, Offload, Zstd
from streamdq.codec import offload as offload_module
from streamdq.codec.bodies import Bodies
from streamdq.codec.encrypt import new_key
from streamdq.errors import BodyDamaged, BodyStorageUnavailable, BodyUnreadable, InvalidInput

LARGE = b'"' + b"x" * 5000 + b'"'
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=255).filter(
    lambda text: len(text.encode()) <= 255 and text not in (".", "..")
)


def bodies(where: Path, over: int = 1000, **options: int) -> Bodies:
    given = {"max_bytes": 2000, "max_decoded_bytes": 100_000} | options
    return Bodies("ns", given["max_bytes"], given["max_decoded_bytes"], [Offload(f"file://{where}", over)])


def stored(made: Bodies, plain: bytes = LARGE, topic: str = "t", id: str = "j") -> bytes:
    seal = made.seal(topic)
    assert seal is not None
    return made.put_away(topic, id, seal(id, 1, plain))


def files(where: Path) -> list[Path]:
    return [path for path in where.rglob("*") if path.is_file()]


def test_a_large_body_is_in_a_file(tmp_path: Path) -> None:
    made = bodies(tmp_path)
    raw = stored(made)
    assert raw.startswith(b"\xff1;offload\n")
    assert len(raw) < 150
    (file,) = files(tmp_path)
    assert file.read_bytes() == LARGE
    assert made.decode("t", "j", raw) == LARGE
    assert made.brought_back("t", "j", raw) == LARGE
    assert (made.blocks(raw), made.blocks(LARGE)) == (True, False)
    made.drop("t", "j", raw)
    made.drop("t", "j", raw)
    assert files(tmp_path) == []
    with pytest.raises(BodyUnreadable, match="its file is not in the storage"):
        made.decode("t", "j", raw)


def test_a_small_one_stays(tmp_path: Path) -> None:
    assert stored(bodies(tmp_path), b'{"a":1}') == b'{"a":1}'
    assert files(tmp_path) == []
    with pytest.raises(InvalidInput, match="over=3000 is more than"):
        bodies(tmp_path, over=3000)


def test_it_comes_last(tmp_path: Path) -> None:
    offload, encrypt = Offload(f"file://{tmp_path}", 100), Encrypt(new_key("k"))
    made = Bodies("ns", 2000, 100_000, [encrypt, offload])
    raw = stored(made)
    assert raw.startswith(b"\xff1;encrypt:k;offload\n")
    assert b"xxxx" not in files(tmp_path)[0].read_bytes()
    assert made.decode("t", "j", raw) == LARGE
    inner = made.brought_back("t", "j", raw)
    assert inner.startswith(b"\xff1;encrypt:k\n")
    assert made.decode("t", "j", inner) == LARGE
    with pytest.raises(InvalidInput, match="must be the last"):
        Bodies("ns", 2000, 100_000, [offload, encrypt])


def test_a_reference_leads_to_its_own_job_s_file_alone(tmp_path: Path) -> None:
    made = bodies(tmp_path)
    raw = stored(made)
    with pytest.raises(BodyUnreadable, match="not in the storage"):
        made.decode("t", "other", raw)
    for damaged in (
        raw[:-1],
        raw + b"0",
        raw.replace(b"/", b"/../"),
        b"\xff1;offload\n",
        b"\xff1;offload\n/etc/passwd",
    ):
        with pytest.raises(BodyDamaged, match="reference"):
            made.decode("t", "j", damaged)


def test_a_name_of_dots_stays_in_its_folder(tmp_path: Path) -> None:
    made = Bodies("..", 2000, 100_000, [Offload(f"file://{tmp_path}/bodies", 1000)])
    raw = stored(made, topic="..", id="..")
    assert len(files(tmp_path / "bodies")) == 1
    assert made.decode("..", "..", raw) == LARGE
    assert made.files is not None
    (hour,) = made.files.hours("..", timedelta(hours=-1))
    assert [(body.topic, body.id) for body in made.files.written_in(hour)] == [("..", "..")]


def test_a_new_local_folder_is_its_owner_s_alone(tmp_path: Path) -> None:
    stored(bodies(tmp_path / "one" / "new"))
    assert (tmp_path / "one" / "new").stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o750)
    stored(bodies(shared))
    assert shared.stat().st_mode & 0o777 == 0o750


def test_clearing_away_deletes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bodies(tmp_path)
    stored(made, topic="t")
    stored(made, topic="u")
    offload = made.files
    assert offload is not None
    (hour,) = offload.hours("ns", timedelta(hours=-1))
    (body, _) = offload.written_in(hour)
    offload.remove(body.path)
    offload.clear_away(hour)
    assert [path.parent.name for path in files(tmp_path)] == ["u"]
    assert not Path(hour, "t").exists()
    # A file that is written between the look and the removal:
    look = offload._system.find
    monkeypatch.setattr(offload._system, "find", lambda *args, **kw: {} if kw.get("detail") else look(*args, **kw))
    offload.clear_away(hour)
    assert len(files(tmp_path)) == 1


def test_a_changed_file_is_reported(tmp_path: Path) -> None:
    made = bodies(tmp_path)
    raw = stored(made)
    (file,) = files(tmp_path)
    for content in (LARGE[:-1], LARGE.upper(), b""):
        file.write_bytes(content)
        with pytest.raises(BodyDamaged, match="its file was changed"):
            made.decode("t", "j", raw)
    file.write_bytes(LARGE + b" " * 10_000_000)  # of which no more is read than there was
    assert made.decode("t", "j", raw) == LARGE


def test_no_more_is_read_than_allowed(tmp_path: Path) -> None:
    raw = stored(bodies(tmp_path))
    with pytest.raises(BodyUnreadable, match="STREAMDQ_MAX_DECODED_BYTES"):
        bodies(tmp_path, max_decoded_bytes=4000).decode("t", "j", raw)


def test_without_its_storage_the_error_says_why(tmp_path: Path) -> None:
    raw = stored(bodies(tmp_path))
    nowhere = Bodies("ns", 2000, 100_000)
    for read in (nowhere.decode, nowhere.brought_back):
        with pytest.raises(BodyUnreadable, match="not configured here; see STREAMDQ_OFFLOAD"):
            read("t", "j", raw)


def test_a_storage_that_fails_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    made = bodies(tmp_path / "file")
    with pytest.raises(BodyStorageUnavailable, match="check STREAMDQ_OFFLOAD"):
        stored(made)
    with pytest.raises(BodyUnreadable, match=r"does not answer|not in the storage"):
        made.decode("t", "j", stored(bodies(tmp_path)))


@pytest.mark.parametrize("size", [1024, "1KiB", "1 KiB", "1024", "1024B"])
def test_a_size_as_people_write_it(size: int | str) -> None:
    assert offload_module.size_in_bytes(size) == 1024


@pytest.mark.parametrize("size", ["", "KiB", "-1", "1 kb", True, 1.5])
def test_what_is_no_size_is_refused(size: object) -> None:
    with pytest.raises(InvalidInput, match="is not a size"):
        offload_module.size_in_bytes(size)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(names, names)
def test_a_path_tells_its_job(tmp_path_factory: pytest.TempPathFactory, topic: str, id: str) -> None:
    where = tmp_path_factory.mktemp("bodies")
    made = bodies(where)
    raw = stored(made, topic=topic, id=id)
    assert made.decode(topic, id, raw) == LARGE
    offload = made.files
    assert offload is not None
    (hour,) = offload.hours("ns", timedelta(hours=-1))
    (found,) = offload.written_in(hour)
    assert (found.topic, found.id, found.size) == (topic, id, len(LARGE))
    assert raw.split(b"\n", 1)[1].startswith(found.reference)


def test_only_old_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bodies(tmp_path)
    offload = made.files
    assert offload is not None
    now = datetime(2030, 1, 2, 3, 30, tzinfo=UTC)
    for hours in (0, 1, 2, 30):
        monkeypatch.setattr(offload_module, "wall_now", lambda hours=hours: now - timedelta(hours=hours))
        stored(made)
    monkeypatch.setattr(offload_module, "wall_now", lambda: now)
    (tmp_path / "ns" / "notes").mkdir()
    (tmp_path / "ns" / "2020-01-01T00" / "t").mkdir(parents=True)
    (tmp_path / "ns" / "2020-01-01T00" / "t" / "mine.txt").write_text("of somebody else")

    def listed(age: timedelta) -> list[str]:
        return [hour.rpartition("/")[2] for hour in offload.hours("ns", age)]

    assert listed(timedelta(hours=1)) == ["2020-01-01T00", "2029-12-31T21", "2030-01-02T01"]
    assert listed(timedelta(days=1)) == ["2020-01-01T00", "2029-12-31T21"]
    assert offload.written_in(offload.hours("ns", timedelta(days=1))[0]) == []
    assert offload.hours("other", timedelta()) == []
    (body,) = offload.written_in(offload.hours("ns", timedelta(days=1))[1])
    offload.remove(body.path)
    for hour in offload.hours("ns", timedelta(days=1)):
        offload.clear_away(hour)
    assert listed(timedelta(days=1)) == ["2020-01-01T00"]


def test_with_compression(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    made = Bodies("ns", 2000, 100_000, [Zstd(), Offload(f"file://{tmp_path}", 1000)])
    assert stored(made).startswith(b"\xff1;zstd\n")  # small enough now
    assert files(tmp_path) == []
