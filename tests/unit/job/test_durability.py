from __future__ import annotations

from typing import Any

import pytest

from streamdq.config import Settings
from streamdq.errors import InvalidInput
from streamdq.job.durability import check_level, replicas_of


@pytest.mark.parametrize(
    ("level", "replicas"), [("memory", 0), ("disk", 0), ("replicas:1", 1), ("replicas:12", 12), ("replicas:999", 999)]
)
def test_a_level(level: str, replicas: int) -> None:
    assert check_level(level) == level
    assert replicas_of(level) == replicas


def test_none_stands_for_a_default() -> None:
    assert check_level(None) is None


@pytest.mark.parametrize(
    "level",
    [
        "",
        "memory ",
        "Disk",
        "replicas",
        "replicas:",
        "replicas:0",
        "replicas:01",
        "replicas:1000",
        "disk\n",
        1,
        b"disk",
    ],
)
def test_no_level(level: Any) -> None:
    with pytest.raises(InvalidInput, match="durable"):
        check_level(level)


def test_the_process_has_one_from_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().durable == "memory"
    monkeypatch.setenv("STREAMDQ_DURABLE", "replicas:2")
    assert Settings().durable == "replicas:2"
    monkeypatch.setenv("STREAMDQ_DURABLE", "")
    assert Settings().durable == "memory"
    monkeypatch.setenv("STREAMDQ_DURABLE", "ram")
    with pytest.raises(ValueError, match="durable: 'ram' is none of"):
        Settings()
