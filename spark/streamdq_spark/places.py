"""The names of folders in Spark."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder

from .errors import AnalysisError
from .failures import SPARK_ERRORS

_SCHEMES = {"s3": "s3a", "gcs": "gs"}  # fsspec's and Hadoop's names for the same store
_JARS = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
_NO_SUCH_STORE, _NO_SUCH_CLASS = "No FileSystem for scheme", re.compile(r"Class (\S+) not found")
_NO_SUCH_FILE = "PATH_NOT_FOUND"
_NOTHING = "no-such-file"
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
    """Checks that this Spark can work in the folder: it looks for a file that is not there.

    Raises:
        AnalysisError: it can't; fsspec supports more stores than Hadoop, and PySpark lacks some of Hadoop's jars.
        Exception: any of `SPARK_ERRORS`, if the store does not answer, or refuses.
    """
    if isinstance(folder, LocalFolder):
        return
    url = to_read(folder, _NOTHING)
    try:
        spark.read.text(url).schema  # noqa: B018 - a Spark Connect server looks when it is asked for this
    except SPARK_ERRORS as error:
        meaning = str(error)
        if _NO_SUCH_FILE in meaning:
            return
        if _NO_SUCH_STORE not in meaning and "FileSystem" not in "".join(_NO_SUCH_CLASS.findall(meaning)):
            raise
        scheme = url.partition("://")[0]
        raise AnalysisError(
            f"Spark can't reach {folder.url}: it has no file system for {scheme}://; {'; or '.join(_ways(scheme))}"
        ) from error


def _ways(scheme: str) -> list[str]:
    ways = ["dump to a folder that is mounted, or copy the dump to one"]
    if jar := _JARS.get(scheme):
        ways.insert(0, f"start it with `spark-submit --packages org.apache.hadoop:{jar}:{_hadoop_version()}`")
    return ways


def _hadoop_version() -> str:
    """The version that Spark has of Hadoop, by the names of its jars; VERSION if they are elsewhere."""
    jars = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "jars")
    name = "hadoop-client-api-"
    return next((jar.stem.removeprefix(name) for jar in jars.glob(f"{name}*.jar")), "VERSION")
