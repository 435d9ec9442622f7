"""The units of docs/deploying.md: systemd understands every line, and finds little that they leave a process to do."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.reader import ROOT, blocks
from tests.docs.test_pages import check_command
from tests.waiting import HANG_S

PAGE = ROOT / "docs" / "deploying.md"
COMMAND = re.compile(r"ExecStart=(/srv/shop/\.venv/bin/(streamdq [^`\n]+))")
MOST_EXPOSED = 15
"""In tenths of systemd's points: it is 1.5 of 10, and without the lines that keep the process from things 9.0."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (Debian: apt-get install systemd)"
)


@pytest.fixture(params=["worker", "exporter"])
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unit's file, in the root of a host that has what it names."""
    (text,) = (block.text for block in blocks(PAGE) if block.language == "ini")
    (command,) = {
        found for found, reported in COMMAND.findall(PAGE.read_text()) if reported.split()[1] == request.param
    }
    path = tmp_path / "etc/systemd/system" / f"shop-{request.param}.service"
    program = tmp_path / command.split()[0].removeprefix("/")
    for file in (path, program, tmp_path / "etc/shop/streamdq.env"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    program.chmod(0o755)
    for target in ("network-online.target", "multi-user.target", "sysinit.target", "shutdown.target", "basic.target"):
        (path.parent / target).write_text("[Unit]\nDescription=\n")
    (path.parent / "-.mount").write_text("[Mount]\nWhere=/\nWhat=/dev/sda\n")
    path.write_text(COMMAND.sub(lambda _: f"ExecStart={command}", text))
    check_command(shlex.split(command.partition("/bin/")[2]))
    return path


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=HANG_S)


@needs_systemd
def test_systemd_understands_it(unit: Path, tmp_path: Path) -> None:
    words = ["verify", f"--root={tmp_path}", "--man=no", "--generators=no", "--recursive-errors=no"]
    done = analyze(*words, unit.name)
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("PrivateTmp=", "PrivateTemp="))
    assert "PrivateTemp" in analyze(*words, unit.name).stderr


@needs_systemd
def test_it_can_do_little_to_its_host(unit: Path) -> None:
    words = ["security", "--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSED}"]
    done = analyze(*words, unit)
    assert done.returncode == 0, done.stdout.splitlines()[-1]
    unit.write_text(
        re.sub(r"^(?:Protect|Private|Restrict|System|Capability).*\n", "", unit.read_text(), flags=re.MULTILINE)
    )
    assert analyze(*words, unit).returncode != 0
