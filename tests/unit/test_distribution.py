"""What takes long begins first; what needs Spark stays together."""

from __future__ import annotations

from pathlib import Path

from tests.distribution import _APART, FIRST, part_of, turn

ROOT = Path(__file__).parents[2]


def test_what_begins_first_is_there() -> None:
    assert [name for name in FIRST if not (ROOT / name).exists()] == []


def test_a_file_has_the_place_of_its_own_name_or_of_its_folder() -> None:
    def place(file: str) -> int:
        return turn(part_of(f"{file}::test_x[a/b::c]"))

    assert place("tests/spark/test_questions.py") == place("tests/spark/test_report.py") == 0
    assert place("tests/spark/test_live.py") == place("tests/spark/test_java.py") == FIRST.index("tests/spark/")
    assert place("tests/crash/test_dump.py") < place("tests/spark/test_java.py") < place("tests/redis/test_dump.py")
    assert place("tests/redis/test_lost_node.py") < place("tests/redis/test_dump.py") < place("tests/lua/test_get.py")
    assert place("tests/crash/test_silent.py") == place("tests/crash/test_dump.py")
    assert place("tests/lua/test_get.py") == place("tests/unit/link/test_session.py") == len(FIRST)


def test_streams_are_apart_if_all_is_tried() -> None:
    test = "tests/spark/test_live.py::test_x"
    assert (part_of(test), part_of(test, streams_apart=False)) == ("tests/spark/streams", "tests/spark")


def test_what_waits_for_long_is_shared_out_by_the_test() -> None:
    apart, together = "tests/redis/test_lost_node.py::test_x[a-b]", "tests/redis/test_dump.py::test_x[a-b]"
    assert (part_of(apart), part_of(together)) == (apart, "tests/redis/test_dump.py")
    assert all(Path(ROOT, part_of(f"{file}::test_x").partition("::")[0]).exists() for file in _APART)
