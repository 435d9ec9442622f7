"""Where the bytes of a delayed job are: what is calculated is what Redis uses."""

from __future__ import annotations

import pytest

from benchmarks.enqueue import varied_body
from benchmarks.harness import Bench
from benchmarks.memory import delayed_job, least, main, parts, text_bytes, total
from streamdq.embedded.binary import find_server
from tests.conftest import BINARIES

SIZES = [8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640]


def test_a_part_is_given_the_next_size() -> None:
    found = {part.name: part for part in parts(SIZES, 1 << 17, record=214, id=14, member=26)}
    assert (found["record"].used, found["record"].given) == (218, 224)
    assert (found["id as the hash's field"].used, found["member of the sorted set"].given) == (16, 32)
    assert found["slots of the hash's table"].given == 8
    assert found["a node of its skip list"].used == pytest.approx(24 + 16 * 4 / 3, abs=0.01)


@pytest.mark.parametrize(("length", "bytes"), [(0, 2), (31, 33), (32, 36), (255, 259), (256, 262)])
def test_a_text_has_a_header_by_its_length(length: int, bytes: int) -> None:
    assert text_bytes(length) == bytes


@pytest.mark.thorough
@pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine")
def test_what_is_calculated_is_what_is_measured() -> None:
    bench = Bench(find_server(), scale=0.5)  # with fewer jobs, the connection's buffer counts
    try:
        found, measured = delayed_job(bench, 165)
    except RuntimeError as without:
        pytest.skip(str(without))
    assert total(found) == pytest.approx(measured, rel=0.03)
    floors = least(bench, 165, (6, 14))
    for row in floors.values():
        assert row.calculated["body alone"] == pytest.approx(row.measured, rel=0.03)
        assert list(row.calculated.values()) == sorted(row.calculated.values(), reverse=True)


@pytest.mark.thorough
@pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine")
def test_it_prints_both_tables(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert main(["--body", "100"], scale=0.01) == 0
    except RuntimeError as without:
        pytest.skip(str(without))
    told = capsys.readouterr().out
    assert "Bytes of a delayed job with a body of 100" in told
    assert "letters of the id" in told


def test_orders_differ_and_are_equally_long() -> None:
    import json

    texts = {json.dumps(varied_body(number), separators=(",", ":")) for number in range(-50, 50)}
    assert (len(texts), {len(text) for text in texts}) == (100, {165})
