"""What the page of the outbox shows is what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from streamdq.outbox.rows import RowState
from streamdq.outbox.tables import ROWS, SCHEMA_VERSION
from tests.servers import Server

PAGE = (Path(__file__).parents[2] / "docs/outbox.md").read_text()


def test_the_example_runs_as_it_stands(server: Server, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (code,) = (text for text in blocks if "try_outbox" in text)
    (tmp_path / "try_outbox.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "try_outbox.py"], cwd=tmp_path, env={**os.environ, "STREAMDQ_URL": server.url},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "topic='order.close', id='order-42'" in done.stdout, done.stderr


def test_every_column_and_state_is_explained() -> None:
    table = PAGE.partition("| column | holds |")[2].partition("\n\n")[0]
    explained = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE))))
    assert explained == {column.name for column in ROWS.columns}
    assert all(f"`{state}`" in table for state in RowState)
    assert f"the version, {SCHEMA_VERSION}," in PAGE.replace("\n", " ")
