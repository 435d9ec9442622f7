"""Each Dockerfile installs the command `streamdq`, which its containers run. `images` builds them, but rarely."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.cases import each

ROOT = Path(__file__).parents[2]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def brought(extra: str) -> set[str]:
    """It, and the extras that it brings."""
    inner = [name for line in EXTRAS[extra] if line.startswith("streamdq[") for name in re.findall(r"[a-z]+", line[9:])]
    return {extra}.union(*map(brought, inner))


@each("path", ["deploy/Dockerfile", "examples/compose/Dockerfile", "examples/production/Dockerfile"])
def test_the_image_has_the_command(path: str) -> None:
    (extras,) = re.findall(r"pip install .*\[([a-z,]+)\]", (ROOT / path).read_text())
    assert "cli" in set[str]().union(*map(brought, extras.split(",")))
