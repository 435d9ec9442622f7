"""An archive of the classes that Spark loads. To read and check them anew is half of what it costs to start Spark.

The first Java process writes the archive when it ends, later ones take their classes from it. Java ignores one that
another Java or Spark has written, and one that is not whole, because its head is written last.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import MutableMapping
from pathlib import Path

import pyspark

from .java import cache

_OPTIONS = "SPARK_SUBMIT_OPTS"
_HEAD = 4


def share_classes(java: Path, environment: MutableMapping[str, str] = os.environ) -> None:
    """Has the Java processes that Spark starts from now on use the archive in `~/.cache/streamdq`, or write it if there
    is none. Nothing changes if this user has no such folder, or Java has options about an archive already.
    """
    given = environment.get(_OPTIONS, "")
    folder = cache()
    if folder is None or "Archive" in given or "-Xshare" in given:
        return
    archive = folder / f"classes-{_made_by(java)}.jsa"
    option = "SharedArchiveFile" if _is_whole(archive) else "ArchiveClassesAtExit"
    # What Java says about archives would be on the terminal.
    environment[_OPTIONS] = f'{given} "-XX:{option}={archive}" -Xlog:disable'.strip()


def _made_by(java: Path) -> str:
    binary = java.resolve()
    told = f"{binary} {binary.stat().st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _is_whole(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return any(file.read(_HEAD))
    except OSError:
        return False
