"""Generated requests against the running server: no fault, and nothing that its description does not tell.

``STREAMDQ_FUZZ_EXAMPLES`` sets how many for each operation; the same ones each time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamdq.http.auth import Role, new_token
from tests.http.live import Live
from tests.servers import Server

EXAMPLES = int(os.environ.get("STREAMDQ_FUZZ_EXAMPLES", "2"))
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
def test_generated_requests(redis_server: Server, tmp_path: Path) -> None:
    token, line = new_token("fuzz", [Role.ADMIN])
    (tmp_path / "tokens").write_text(line)
    with Live(redis_server.url, "--tokens-file", str(tmp_path / "tokens")) as live:
        fuzz = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{live.url}/openapi.json", "--checks", CHECKS,
            "--max-examples", str(EXAMPLES), "--seed", "1", "--generation-deterministic", "--no-color",
            "--header", f"Authorization: Bearer {token}",
        ]  # fmt: skip
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.http.fuzz_hooks", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            fuzz, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=600 if EXAMPLES > 10 else 250
        )
        faults = [line for line in live.log if line["event"] == "internal error"]
    assert done.returncode == 0, done.stdout
    assert faults == []
    passed = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert passed[1] == passed[2]
    assert int(passed[1]) > 300
