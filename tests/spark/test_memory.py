"""How much memory Spark is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamdq.errors import InvalidInput
from streamdq_spark import memory
from streamdq_spark.memory import MB, heap, machine_memory

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
SMALL = 64 * MB  # less than any machine has


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("contents", "limit"),
    [
        ({}, PHYSICAL),
        ({"proc/self/cgroup": "0::/a/b"}, PHYSICAL),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/memory.max": "max"}, PHYSICAL),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/memory.max": f"{SMALL}"}, SMALL),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/memory.max": f"{SMALL}"}, SMALL),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": f"{SMALL}"}, SMALL),
        ({"proc/self/cgroup": "0::/../x", "sys/fs/cgroup/memory.max": f"{SMALL}"}, SMALL),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": f"{2 * PHYSICAL}"}, PHYSICAL),
        (
            {
                "proc/self/cgroup": "4:cpu,memory:/a\n1:name=systemd:/a",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{SMALL}",
            },
            SMALL,
        ),
        ({"proc/self/cgroup": "4:cpu:/a", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{SMALL}"}, PHYSICAL),
    ],
)
def test_a_container_s_limit_is_the_machine_s(tmp_path: Path, contents: dict[str, str], limit: int) -> None:
    assert machine_memory(files(tmp_path, contents)) == limit


@pytest.mark.parametrize(
    ("machine_mb", "wanted"), [(256, "512m"), (1024, "512m"), (3000, "1500m"), (8192, "4096m"), (1 << 20, "4096m")]
)
def test_half_of_it_is_spark_s_within_bounds(monkeypatch: pytest.MonkeyPatch, machine_mb: int, wanted: str) -> None:
    monkeypatch.setattr(memory, "machine_memory", lambda: machine_mb * MB)
    assert heap() == wanted


@pytest.mark.parametrize(("asked", "wanted"), [("4g", "4096m"), (" 700M ", "700m"), ("1tb", "1048576m")])
def test_or_what_is_asked_for(asked: str, wanted: str) -> None:
    assert heap(asked) == wanted


@pytest.mark.parametrize(
    ("asked", "message"), [("4", "is not a size"), ("much", "is not a size"), ("511m", "needs 512m")]
)
def test_what_can_t_be_is_reported(asked: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        heap(asked)
