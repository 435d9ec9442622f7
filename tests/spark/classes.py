"""An archive of the classes that Spark loads. Reading and checking them anew is half of what it costs to start Spark,
and the tests start it a dozen times.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import psutil
import pyspark

from streamdq_spark.java import prepare_java


class ClassArchive:
    """One file per Java and Spark: Java ignores an archive made by another. The file is whole or not there."""

    def __init__(self, folder: Path) -> None:
        java = prepare_java(dict(os.environ)).resolve()
        made_by = f"{java} {java.stat().st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
        self._name = hashlib.sha256(made_by.encode()).hexdigest()[:12]
        self.file = folder / f"{self._name}.jsa"
        self._take_what_an_earlier_run_left()

    @property
    def use(self) -> str:
        """Options of a Java process that takes its classes from there; nothing if there is no archive yet."""
        return f'"-XX:SharedArchiveFile={self.file}" -Xlog:disable' if self.file.exists() else ""

    @property
    def leave(self) -> str:
        """Options of a Java process that leaves its classes for a later run, which takes it some seconds more when it
        ends; nothing if there are any. It ends after this process.
        """
        part = self.file.with_name(f"{self._name}.{os.getpid()}.part")
        return "" if self.file.exists() else f'"-XX:ArchiveClassesAtExit={part}" -Xlog:disable'

    def _take_what_an_earlier_run_left(self) -> None:
        """Java writes the header last, and ignores an archive without one."""
        for part in self.file.parent.glob(f"{self._name}.*.part"):
            if not self.file.exists() and not psutil.pid_exists(int(part.suffixes[-2][1:])):
                part.replace(self.file)
