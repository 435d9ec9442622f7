"""The operations page in Django's admin: the tests of the project in tests/contrib/admin_project, run by Django."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Server

pytest.importorskip("django")
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.thorough
def test_the_page_in_the_admin(redis_server: Server, tmp_path: Path) -> None:
    path = os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "STREAMDQ_URL": redis_server.url, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-m", "django", "test", "admin_project.tests"],
        cwd=tmp_path, env={**env, "DJANGO_SETTINGS_MODULE": "admin_project.settings"}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ran = re.search(r"Ran (\d+) tests", done.stderr)
    assert ran
    assert int(ran[1]) >= 12
