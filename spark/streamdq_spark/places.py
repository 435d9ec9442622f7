"""The names of folders in Spark."""

from __future__ import annotations

import re
import shutil

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder

from .errors import AnalysisError

_SCHEMES = {"s3": "s3a", "gcs": "gs"}  # fsspec's and Hadoop's names for the same store
_JARS = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
_PATTERN = re.compile(r"[\\*?\[\]{}]")


def spark_url(folder: Folder, path: str) -> str:
    """The URL of a file or folder below `folder`, for Spark to write to. A local one gets a scheme, as Spark's default
    may be another file system. Spark does not decode percent signs, so nothing is quoted.
    """
    if isinstance(folder, LocalFolder):
        return f"file://{folder.root / path}"
    scheme, separator, rest = folder.full(path).partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}{separator}{rest}"


def to_read(folder: Folder, path: str) -> str:
    """The same for reading, with special characters escaped, because Spark would read the name as a pattern."""
    return _PATTERN.sub(r"\\\g<0>", spark_url(folder, path))


def check_reach(spark: SparkSession, folder: Folder) -> None:
    """Checks that this Spark can work in the folder.

    Raises:
        AnalysisError: it can't; fsspec supports more stores than Hadoop, and PySpark lacks some of Hadoop's jars.
    """
    if isinstance(folder, LocalFolder):
        return
    scheme = spark_url(folder, "").partition("://")[0]
    java = spark.sparkContext._jvm
    assert java is not None  # as long as the session runs
    try:
        java.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, spark.sparkContext._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        ways = ["dump to a folder that is mounted, or copy the dump to one"]
        if jar := _JARS.get(scheme):
            version = java.org.apache.hadoop.util.VersionInfo.getVersion()
            ways.insert(0, f"start it with `spark-submit --packages org.apache.hadoop:{jar}:{version}`")
        raise AnalysisError(
            f"Spark can't reach {folder.url}: it has no file system for {scheme}://; {'; or '.join(ways)}"
        ) from error


def remove_folder(folder: Folder, path: str) -> None:
    """Removes everything below `path`, if there is anything."""
    if isinstance(folder, LocalFolder):
        shutil.rmtree(folder.root / path, ignore_errors=not (folder.root / path).exists())
        return
    for file in folder.files(path):
        folder.remove(file)
