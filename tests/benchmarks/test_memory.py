"""Where the bytes of a delayed job are: what is calculated is what Redis uses."""

from __future__ import annotations

import pytest

from benchmarks.harness import Bench
from benchmarks.memory import delayed_job, least, main, total
from streamdq.embedded.binary import find_server
from tests.conftest import BINARIES


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
    output = capsys.readouterr().out
    assert "Bytes of a delayed job with a body of 100" in output
    assert "letters of the id" in output
