from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import scale
from benchmarks.costs import Cost, Step
from benchmarks.scale import Load, Simulation

FREE = Cost(0.0, 0.0)
STEPS = {
    "enqueue": Step(Cost(50.0, 4.0), FREE),
    "move": Step(Cost(20.0, 1.0), Cost(10.0, 0.0)),
    "claim": Step(Cost(30.0, 3.0), Cost(0.0, 2.0)),
    "run": Step(FREE, Cost(0.0, 5.0)),
    "finish": Step(Cost(30.0, 4.0), Cost(40.0, 1.0)),
}


def test_one_job_is_as_late_as_its_move_its_claim_and_two_round_trips() -> None:
    out = Simulation(STEPS, Load(1, 1, shards=1, at_once=1, rtt_s=0.001)).run()
    move, claim, run = 10 + 20 + 1, 30 + 3, 2 + 5 + 1
    assert out.jobs == 1
    assert out.most_ms == pytest.approx(2.0 + (move + claim + run) / 1000)
    finish = 40 + 0.5 * 1000 + 30 + 4
    assert out.took_s == pytest.approx(out.most_ms / 1000 + finish / 1e6)


def test_prints_and_writes_what_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "loads", lambda _: {"a few": Load(1, 1, at_once=10)})
    monkeypatch.setattr(scale, "measure", lambda _: (STEPS, 350.0))
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert scale.main(["--json", str(first)]) == 0
    assert scale.main(["--costs", str(first), "--json", str(second)]) == 0
    assert "a few" in capsys.readouterr().out
    found, again = json.loads(first.read_text()), json.loads(second.read_text())
    assert found["costs"] == again["costs"]
    assert found["simulated"] == again["simulated"]
