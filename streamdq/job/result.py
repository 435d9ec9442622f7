"""For how long the results of jobs are kept, and how a job's waiter names that time."""

from __future__ import annotations

from ..errors import InvalidInput
from ..times.durations import Duration, to_ms

MAX_RESULT_BYTES = 64 * 1024
"""Of a result in Redis, after the codecs."""

_LEAST_MS, _MOST_MS = 1_000, 366 * 86_400_000


def check_retention(result: Duration) -> int:
    """For how many ms results are kept; 0: they are not.

    Raises:
        InvalidInput: it is no time between a second and a year.
    """
    ms = to_ms(result, "result")
    if ms and not _LEAST_MS <= ms <= _MOST_MS:
        raise InvalidInput(f"result: {result!r} is not between 1s and 366d; it is for how long a result is kept")
    return ms
