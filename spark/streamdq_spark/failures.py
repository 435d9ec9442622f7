"""What Spark's failures mean and what to do about them: whoever asked sees no line of Java's."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import py4j
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from streamdq.errors import StreamdqError

from .errors import BadDump, SparkFailed

# What a trace has in it, what that means, and what to do. The first one counts: a full disk fails a write, too.
_MEMORY = "Spark ran out of memory: give it more (--memory 4g), or analyze fewer days at once (--from, --to)"
_MEANINGS = {
    "OutOfMemory|Java heap space|GC overhead|UNABLE_TO_ACQUIRE_MEMORY": _MEMORY,
    "reserve enough space for|insufficient memory for the Java Runtime": (
        "the machine does not have that much memory: ask for less (--memory 1g)"
    ),
    "No space left on device|Disk quota exceeded": (
        "the disk is full: free space in the output folder and the temporary folder (SPARK_LOCAL_DIRS sets another)"
    ),
    "Permission denied|AccessControlException|AccessDenied|Read-only file system|Mkdirs failed|ParentNotDirectory": (
        "Spark may not read or write there: check the folder, who owns it and, for a bucket, the credentials"
    ),
    "All masters are unresponsive|Failed to connect to master|Could not parse Master|Master must": (
        "no Spark answers at that master: check --master, and that the cluster is running"
    ),
    "UnknownHostException|SdkClientException|Connection refused|timed out": (
        "Spark can't reach what it needs: check the address and the network"
    ),
}
_UNREADABLE = re.compile(r"FAILED_READ_FILE.*?while reading file (\S+?)\.(?:\s|$)")
_GONE = "Spark's Java process has ended. If the system was short of memory and killed it, give it less: --memory 1g"
_ENDED_FOR_MEMORY = 52  # Spark's own exit code
_ENDING_S = 10  # from the last answer until it has ended
_JAVA_NAME = re.compile(r"^(?:[\w$]+\.)+[\w$]+(?:: |$)")


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Turns Spark's failures within the block into errors in plain words.

    Raises:
        BadDump: a file can't be read.
        SparkFailed: anything else.
    """
    try:
        yield
    except StreamdqError:
        raise
    except (PySparkException, Py4JError, ConnectionError) as error:
        text = _text(error)
        if unreadable := _UNREADABLE.search(text):
            raise BadDump(
                f"{what}: {unreadable[1]} is damaged (FAILED_READ_FILE); restore it, or remove it and leave its events "
                "out: --quarantine"
            ) from error
        raise SparkFailed(f"{what}: {_told(error, text)}") from error


def _told(error: Exception, text: str) -> str:
    """The failure in words. Calls to a Java process that has ended, or is about to, fail in many ways."""
    if isinstance(error, PySparkException):
        told = meaning(text)
    else:
        is_java_s = "\n" in text
        told = (is_java_s and known_meaning(text)) or _why_gone() or (is_java_s and _first_words(text)) or ""
    return told or f"Spark failed with {type(error).__name__}"


def _text(error: Exception) -> str:
    """The error's full text; '' if it would have to come from a Java process that has ended."""
    try:
        return f"{error}\n{getattr(error, '_stackTrace', '')}".strip()
    except (Py4JError, ConnectionError):
        return ""


def _why_gone() -> str:
    """Why the Java process has ended; '' if it has not."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return ""
    try:
        code = process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        return ""
    return _MEMORY if code == _ENDED_FOR_MEMORY else _GONE


def meaning(text: str) -> str:
    """The meaning of a Spark trace in one line; '' if there is none."""
    return known_meaning(text) or _first_words(text)


def known_meaning(text: str) -> str:
    """The known meaning of a trace or log, and what to do; '' if it is unknown."""
    return next((told for pattern, told in _MEANINGS.items() if re.search(pattern, text)), "")


def _first_words(text: str) -> str:
    """The innermost message, or the first one, without the names of Java classes."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    own = [line.removeprefix(": ") for line in lines if not line.startswith(("at ", "An error occurred while calling"))]
    for line in [*reversed(causes), *own]:
        while named := _JAVA_NAME.match(line):
            line = line[named.end() :]
        if told := line.partition("SQLSTATE")[0].strip():
            return told
    return ""


@contextmanager
def without_traces() -> Iterator[None]:
    """Within the block, keeps PySpark's and Py4J's log of failures out of the terminal, as failures are reported
    anyway.
    """
    silenced = [logging.getLogger(name) for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    levels = [logger.level for logger in silenced]
    root = logging.getLogger()  # Py4J uses it to report a Java process that has ended
    for logger in silenced:
        logger.setLevel(logging.CRITICAL + 1)
    root.addFilter(_not_of_py4j)
    try:
        yield
    finally:
        root.removeFilter(_not_of_py4j)
        for logger, level in zip(silenced, levels, strict=True):
            logger.setLevel(level)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent != Path(py4j.__file__).parent
