"""What the pages of docs/ show in Python must run, from top to bottom, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Server

DOCS = Path(__file__).parents[2] / "docs"
PRINTED = {
    "bodies": [],
    "find": ["31", "Acted(done=31, changed=0, gone=0, refused=0)"],
    "keys": ["merchant-7", "KeyLoad(key='merchant-7', waiting=9, running=0, paused=False)"],
    "schedules": ["acme 0 9 * * 1-5 active ["],
    "uniqueness": [],
}


def code_of(page: str) -> str:
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    return "\n".join(blocks)


def test_the_page_of_tests_is_a_test_that_passes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(code_of("testing"))
    (tmp_path / "pytest.ini").touch()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("page", PRINTED)
def test_a_page_runs_as_it_stands(page: str, redis_server: Server, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(code_of(page).replace("s3://bucket", f"file://{tmp_path}"))
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env={**os.environ, "STREAMDQ_URL": redis_server.url},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in PRINTED[page]:
        assert line in done.stdout
