"""A reader who does what a page says, in a folder of their own: writes its files, types its commands."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.servers import free_port, until

ROOT = Path(__file__).parents[2]
PORTS = ("8000", "8080")
"""Those that pages name. A reader here takes others, as these may be taken."""

_BLOCK = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|conf|service))\n")
_INSTALLS = ("pip install ", "python3 -m venv ")


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str

    @property
    def file(self) -> str:
        """The file that its first line names; '' if none."""
        found = _FILE.match(self.text)
        return found[1] if found else ""

    @property
    def is_of_another_queue(self) -> bool:
        return "title=" in self.title and '"streamdq"' not in self.title


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


def lines(block: Block) -> Iterator[str]:
    """The commands that it shows, without their comments."""
    text = block.text.replace("\\\n", " ")
    prompt = "$ " if block.language == "console" else ""
    for line in text.splitlines():
        if line.startswith(prompt) and line.strip():
            yield line.removeprefix(prompt).partition("  #")[0].strip()


@dataclass
class Reader:
    folder: Path
    url: str
    said: str = ""
    _env: dict[str, str] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=lambda: {port: str(free_port()) for port in PORTS})
    _going: list[tuple[str, subprocess.Popen[bytes], Path]] = field(default_factory=list)

    def __post_init__(self) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        state = str(self.folder / "state")
        # A terminal shows each line at once, the files that are read here only what is flushed.
        unbuffered = {"PYTHONUNBUFFERED": "1"}
        self._env = {**os.environ, "STREAMDQ_URL": self.url, "PATH": path, "XDG_STATE_HOME": state, **unbuffered}

    def follow(self, page: Path) -> None:
        """All of the page, from top to bottom."""
        for block in blocks(page):
            if block.is_of_another_queue:
                continue
            if block.file:
                target = self.folder / block.file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text)
            elif block.language == "console":
                for line in lines(block):
                    self.type(line)

    def type(self, line: str) -> None:
        if line.startswith(_INSTALLS):
            return
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self._env[name] = value.strip("'")
            return
        for port, ours in self._ports.items():
            line = re.sub(rf"\b{port}\b", ours, line)
        if line.endswith("&"):
            self._start(line.removesuffix("&").strip())
            return
        done = subprocess.run(
            ["bash", "-ec", line], cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        self.said += done.stdout

    def _start(self, line: str) -> None:
        out = self.folder / f"{len(self._going)}.out"
        with out.open("wb") as file:
            process = subprocess.Popen(
                shlex.split(line), cwd=self.folder, env=self._env, stdout=file, stderr=subprocess.STDOUT
            )
        self._going.append((line, process, out))
        if line.startswith("streamdq worker"):
            until(lambda: "worker started" in out.read_text(), f"{line} has started", 20)
        for port in self._ports.values():
            if port in line:
                until(partial(_listens, int(port)), f"{line} listens", 20)

    @property
    def seen(self) -> str:
        """Everything that was printed so far."""
        return self.said + "".join(out.read_text() for _, _, out in self._going)

    def sees(self, text: str) -> bool:
        return text in f"\n{self.seen}"

    def stop(self) -> None:
        """Ctrl-C for what goes on; streamdq's commands end well."""
        while self._going:
            line, process, out = self._going.pop()
            process.send_signal(signal.SIGINT)
            code = process.wait(30)
            self.said += out.read_text()
            assert code == 0 or not line.startswith("streamdq"), (line, code, out.read_text())

    def kill(self) -> None:
        for _, process, _ in self._going:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
