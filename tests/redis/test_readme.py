"""What the README shows must run as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import binaries

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.skipif(not binaries(), reason="no Redis server on this machine")
def test_the_first_example_runs_and_stands_in_the_first_forty_lines(tmp_path: Path) -> None:
    text = README.read_text()
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block
    assert text[: block.end()].count("\n") <= 45
    script = tmp_path / "shop.py"
    script.write_text(block[1])
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    environment.pop("STREAMDQ_URL", None)
    done = subprocess.run(
        [sys.executable, script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    assert "closing order 42, attempt 1" in done.stdout
    assert "order 41" not in done.stdout
