"""What Spark's failures mean and what to do about them. Users see no line of Java's."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import py4j
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamdq.errors import StreamdqError

from .errors import BadDump, SparkFailed, SparkGone

SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
"""What a call to Spark may raise; the last two by a Java process of this machine alone."""

# What a trace has in it, what that means, and what to do. The first one counts: a full disk fails a write, too.
_MEMORY = "Spark ran out of memory: give it more (--memory 4g), or analyze fewer days at once (--from, --to)"
_NO_MEMORY = re.compile("OutOfMemory|Java heap space|GC overhead|UNABLE_TO_ACQUIRE_MEMORY")
_MEANINGS = {
    _NO_MEMORY: _MEMORY,
    re.compile("reserve enough space for|insufficient memory for the Java Runtime"): (
        "the machine does not have that much memory: ask for less (--memory 1g)"
    ),
    re.compile("No module named 'streamdq"): (
        "the Python of Spark's workers has no streamdq: install it there, or send it along with --py-files"
    ),
    re.compile("No space left on device|Disk quota exceeded"): (
        "the disk is full: free space in the output folder and the temporary folder (SPARK_LOCAL_DIRS sets another)"
    ),
    re.compile(
        "Permission denied|AccessControlException|AccessDenied|Read-only file system|Mkdirs failed|ParentNotDirectory"
    ): ("Spark may not read or write there: check the folder, who owns it and, for a bucket, the credentials"),
    re.compile("All masters are unresponsive|Failed to connect to master|Could not parse Master|Master must"): (
        "no Spark answers at that master: check --master, and that the cluster is running"
    ),
    re.compile("Out of space in CodeCache"): (
        "Spark's Java has no room for compiled code: start it with -XX:ReservedCodeCacheSize=256m"
    ),
    re.compile("UnknownHostException|SdkClientException|Connection refused|timed out"): (
        "Spark can't reach what it needs: check the address and the network"
    ),
}
_UNREADABLE, _FILE = "FAILED_READ_FILE", re.compile(r"while reading file (\S+)")
_GONE = "Spark's Java process has ended. If the system was short of memory and killed it, give it less: --memory 1g"
# What is said of a server that ends or can't be reached: by gRPC, and by older clients.
_UNAVAILABLE = re.compile(r"StatusCode\.UNAVAILABLE|\[RETRIES_EXCEEDED\]")
_TOO_DEEP = "Exceeded upb_DecodeOptions_MaxDepth"  # of protobuf, by which a client of Spark Connect makes its messages
# What Java says of a session that is being stopped, as it is after a failure of memory: the last one by the parts of it
# that it finds gone.
_ENDING = re.compile(
    r"SparkContext (?:was|has been) shut ?down|stopped SparkContext"
    r'|because the return value of "org\.apache\.spark\.Spark(?:Context|Env)\b[^"]*" is null'
)
_JAVA_NAME = re.compile(r"[\w$]+(?:\.[\w$]+)+(?:: |\Z)")


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Turns Spark's failures within the block into errors in plain words.

    Raises:
        BadDump: a file can't be read.
        SparkGone: the Java process has ended, or is about to; or the server does not answer.
        SparkFailed: anything else.
    """
    try:
        yield
    except StreamdqError:
        raise
    except SPARK_ERRORS as error:
        text = _text(error)
        if (begin := text.find(_UNREADABLE)) >= 0 and (unreadable := _FILE.search(text, begin)):
            raise BadDump(
                f"{what}: {unreadable[1].removesuffix('.')} is damaged (FAILED_READ_FILE); restore it, or remove it "
                "and leave its events out: --quarantine"
            ) from error
        if _UNAVAILABLE.search(text) or _is_gone(error, text):
            raise SparkGone(what, _GONE) from error
        raise SparkFailed(f"{what}: {meaning(text) or f'Spark failed with {type(error).__name__}'}") from error
    except Exception as error:
        if _TOO_DEEP not in str(error):
            raise
        raise SparkFailed(
            f"{what}: its plan is nested too deeply to be sent to a Spark Connect server: name the other tables "
            "(--only), or use another --master for this one"
        ) from error


def _is_gone(error: Exception, text: str) -> bool:
    """Whether the Java process has ended, or is about to. What Java says has several lines; what Py4J says, which
    could not reach it, has one.
    """
    of_java = isinstance(error, PySparkException) or "\n" in text
    return not known_meaning(text) if _ENDING.search(text) else not of_java


def _text(error: Exception) -> str:
    """The error's full text; '' if it would have to come from a Java process that has ended."""
    try:
        return f"{error}\n{getattr(error, '_stackTrace', '')}".strip()
    except (Py4JError, ConnectionError):
        return ""


def meaning(text: str) -> str:
    """The meaning of a Spark trace in one line; '' if there is none."""
    return known_meaning(text) or _first_words(text)


def known_meaning(text: str) -> str:
    """The known meaning of a trace or log, and what to do; '' if it is unknown."""
    return next((words for pattern, words in _MEANINGS.items() if pattern.search(text)), "")


def ran_out_of_memory(log: str) -> str:
    """What that means, if a Java process that has ended logged that its memory was too small; '' if not."""
    return _MEMORY if _NO_MEMORY.search(log) else ""


def _first_words(text: str) -> str:
    """The innermost message, or the first one, without the names of Java classes."""
    if text.startswith("<_"):  # what gRPC says of a call that failed
        text = text.partition('details = "')[2].partition('"\n\tdebug_error_string')[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    own = [line.removeprefix(": ") for line in lines if not line.startswith(("at ", "An error occurred while calling"))]
    for line in [*reversed(causes), *own]:
        begin = 0
        while named := _JAVA_NAME.match(line, begin):
            begin = named.end()
        if found := line[begin:].partition("SQLSTATE")[0].strip():
            return found
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
