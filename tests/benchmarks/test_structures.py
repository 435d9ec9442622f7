"""The structures that could hold waiting jobs: each of them returns what was put in, and nothing that was withdrawn."""

from __future__ import annotations

import pytest

from benchmarks import structures
from benchmarks.server import RedisServer
from benchmarks.structures import MOVE, PARTS, STRUCTURES, Run, Structure, main, new_jobs
from streamdq.embedded.binary import find_server
from tests.conftest import BINARIES

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine"),
]


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda structure: structure.name)
def test_what_was_put_in_comes_out_in_order(structure: Structure) -> None:
    with RedisServer(find_server()) as server:
        run = Run(server, structure)
        run.call(structure.insert, new_jobs(range(1000), structure.by_due))
        run.call(structure.withdraw, new_jobs(range(200)))
        for minute in range(60):
            while structure.promote and run.call(structure.promote, [minute, 100]):
                pass
        places = [f"part:{n}" for n in range(8)] if structure.sorted_in == "part:0" else ["bucket"]
        for place in places:
            while run.call(MOVE, [100, place]):
                pass
        left = new_jobs(range(200, 1000), by_due=True)[2::3]
        moved = [fields[b"j"].decode() for _, fields in server.client.xrange("ready")]
        assert sorted(moved) == sorted(map(str, left))
        assert moved == left or len(places) > 1
        assert server.client.hlen("jobs") == 800
        assert server.client.hlen("pages") == 0


def test_the_table_has_a_line_for_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(structures, "FEW", 2_000)
    monkeypatch.setattr(structures, "_ROUNDS", 2)
    monkeypatch.setattr(structures, "_ONES", 2)
    assert main(["--jobs", "12k"]) == 0
    told = capsys.readouterr().out
    assert all(structure.name in told for structure in (*STRUCTURES, *PARTS))
    assert "nan" not in told
