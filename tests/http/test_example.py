"""The round trip that the README tells of: put over HTTP, called back when due."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Server, free_port

SCRIPT = Path(__file__).parents[2] / "examples" / "http" / "callback.sh"


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_put_and_called_back(redis_server: Server) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ports = {"API_PORT": str(free_port()), "RECEIVER_PORT": str(free_port())}
    done = subprocess.run(
        [SCRIPT], capture_output=True, text=True, timeout=250,
        env={**os.environ, "STREAMDQ_URL": redis_server.url, "PATH": path, **ports},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert 'received POST /paid {"order_id":42} id=order-42' in lines
    assert lines[-1] == "delivered"
