"""The comparison with other queues: its judgement, its table, and streamdq in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.__main__ import main
from benchmarks.peers.setup import peers
from tests.conftest import BINARIES

needs_redis = pytest.mark.skipif(not BINARIES, reason="no Redis server on this machine")


def test_each_peer_has_its_program_and_fixed_versions() -> None:
    for peer in peers().values():
        assert Path(peer.command()[1]).is_file()
        assert peer.settings
        assert all("==" in package or package == "redis" for package in peer.pip)
        assert all("@" in package for package in peer.npm)


@pytest.mark.thorough
@needs_redis
def test_streamdq_beside_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    options = ["--peers", "streamdq", "--scale", "0.001", "--runs", "1", "--json", str(results)]
    assert main([*options, "--workloads", "one bulk drain trickle memory crash chain fan_in results"]) == 0
    runs: dict[str, list[dict[str, Any]]] = json.loads(results.read_text())["peers"]["streamdq"]["runs"]
    for workload in ("drain", "trickle", "crash", "chain", "fan_in"):
        assert runs[workload][0]["missing"] == 0, workload
    assert runs["trickle"][0]["early"] == 0
    assert 0 < runs["trickle"][0]["first_ms"] <= runs["trickle"][0]["last_ms"]
    capsys.readouterr()
    assert main(["--table", "--json", str(results)]) == 0
    assert "| drain, jobs/s |" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--peers", "nobody"], ["--workloads", "nothing"]])
def test_who_is_not_known(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "is none of" in capsys.readouterr().err
