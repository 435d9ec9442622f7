"""Makes the environment of each peer: a virtual environment or node's modules, in a folder that git ignores."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .servers import BUN, ENVIRONMENTS, PROGRAMS

HERE = Path(__file__).parent


class Missing(Exception):
    """A program that has to be installed before."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One queue, as peers.toml has it."""

    name: str
    program: str
    server: str  # redis, beanstalkd or rabbitmq
    language: str
    settings: str
    most: int = 20_000  # jobs in a drain or a stampede: less for those that would take minutes
    pip: list[str] = field(default_factory=list)
    npm: list[str] = field(default_factory=list)
    python: str = ""  # the version that it needs, if this one is too old

    @property
    def folder(self) -> Path:
        return ENVIRONMENTS / self.name

    def command(self) -> list[str]:
        """What runs its adapter."""
        program = str(HERE / "adapters" / self.program)
        if self.npm:
            return [str(BUN) if self.server == "bunqueue" else "node", program]
        return [str(self.folder / "bin" / "python") if self.pip else sys.executable, program]

    def environment(self, flows: bool = False) -> dict[str, str]:
        ours = {"PYTHONPATH": str(HERE.parent.parent)} if not self.pip else {}
        return {**os.environ, **ours, "PEER_MODULES": str(self.folder), "PEER_FLOWS": str(int(flows))}


def peers() -> dict[str, Peer]:
    found: dict[str, dict[str, Any]] = tomllib.loads((HERE / "peers.toml").read_text(encoding="utf-8"))
    return {name: Peer(name, **options) for name, options in found.items()}


def prepare(peer: Peer) -> None:
    """Installs what the peer needs, once for each set of versions.

    Raises:
        Missing: node, npm or the server is not there.
    """
    for program in (*(("node", "npm") if peer.npm else ()), *PROGRAMS.get(peer.server, ())):
        if shutil.which(program) is None:
            raise Missing(f"{peer.name} needs {program}, which is not on this machine: install it first")
    wanted = " ".join([*peer.pip, *peer.npm])
    stamp = peer.folder / "installed.txt"
    if not wanted or (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
        return
    shutil.rmtree(peer.folder, ignore_errors=True)
    peer.folder.mkdir(parents=True)
    if peer.pip:
        _make_venv(peer)
        _run(str(peer.folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *peer.pip)
    else:
        _run("npm", "install", "--silent", "--prefix", str(peer.folder), *peer.npm)
    stamp.write_text(wanted, encoding="utf-8")


def _make_venv(peer: Peer) -> None:
    """Raises:
    Missing: there is no Python of the version that it needs.
    """
    python = sys.executable if not peer.python or sys.version_info >= _numbers(peer.python) else _newer(peer.python)
    if python is None:
        raise Missing(f"{peer.name} needs Python {peer.python} on the path, or by pyenv")
    _run(python, "-m", "venv", str(peer.folder))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _newer(version: str) -> str | None:
    """The Python of this version, on the path or by pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*/bin")
    return shutil.which(f"python{version}", path=os.pathsep.join([*map(str, pyenv), *os.get_exec_path()]))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
