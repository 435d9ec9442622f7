"""An archive of the classes that Spark loads. Reading and checking them anew is half of what it costs to start Spark,
and the tests start it a dozen times.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from streamdq_spark.java import prepare_java


class ClassArchive:
    """One file per Java and Spark: Java ignores an archive made by another. The file is whole or not there."""

    def __init__(self, folder: Path) -> None:
        java = prepare_java(dict(os.environ)).resolve()
        made_by = f"{java} {java.stat().st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
        self.file = folder / f"{hashlib.sha256(made_by.encode()).hexdigest()[:12]}.jsa"

    @property
    def use(self) -> str:
        """Options of a Java process that takes its classes from there; nothing if there is no archive yet."""
        return f'"-XX:SharedArchiveFile={self.file}" -Xlog:disable' if self.file.exists() else ""

    @contextmanager
    def written(self) -> Iterator[str]:
        """Options of a Java process that leaves its classes there, which takes it some seconds more when it ends. It
        has to end with the block.
        """
        if self.file.exists():
            yield ""
            return
        part = self.file.with_name(f"{os.getpid()}.part")
        yield f'"-XX:ArchiveClassesAtExit={part}" -Xlog:disable'
        if part.exists():
            part.replace(self.file)
