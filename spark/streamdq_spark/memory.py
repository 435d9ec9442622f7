"""The size of Java's heap on this machine; Spark's own default is always 1 GB."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from streamdq.errors import InvalidInput

MB = 1 << 20
LEAST_MB, MOST_MB = 512, 4096
"""Spark refuses less than 450 MB, and hardly uses more than the maximum, because large data is sorted on disk."""
_UNITS = {"k": 1 << 10, "m": MB, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)([kmgt])b?", re.IGNORECASE)
_NO_LIMIT = 1 << 60  # version 1 of the cgroups has a number for it


def heap(asked: str | None = None) -> str:
    """The heap in Java's notation: the requested size, otherwise half of the machine's memory within bounds. The other
    half is for Java's memory outside the heap, for Python, and for the system's file cache.

    Raises:
        InvalidInput: the requested size is not a size, or less than Spark needs.
    """
    if asked is None:
        return f"{min(MOST_MB, max(LEAST_MB, machine_memory() // MB // 2))}m"
    size = _SIZE.fullmatch(asked.strip())
    if not size:
        raise InvalidInput(f"memory: {asked!r} is not a size; write 512m or 4g")
    mb = int(size[1]) * _UNITS[size[2].lower()] // MB
    if mb < LEAST_MB:
        raise InvalidInput(f"memory: Spark needs {LEAST_MB}m at least, not {asked.strip()}")
    return f"{mb}m"


def machine_memory(root: Path = Path("/")) -> int:
    """What this process may use, in bytes: the machine's memory, or less if a container or service is limited."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_limits(root)])


def _limits(root: Path) -> Iterator[int]:
    """The limits of the process's control groups and of all groups above them; there are none outside Linux."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limits_above(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_above(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")


def _limits_above(mount: Path, path: str, name: str) -> Iterator[int]:
    """The limits from a group up to the root of the tree. A container may see its own group as the root."""
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            return
        try:
            limit = (folder / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if limit.isdigit() and int(limit) < _NO_LIMIT:  # "max": there is none
            yield int(limit)
