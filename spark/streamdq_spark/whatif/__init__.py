"""What if the settings had been others? History replayed as a discrete simulation.

`lives` prepares the events in Spark, one row for each life of a job, and finds the pools: queues that share workers.
`seen` takes from them how long attempts ran and how long a job waits that finds a free worker. `replay` runs them
again, with the settings as they were and as they might have been. `answer` compares the two, and says whether the first
is close enough to what happened for the second to be believed. A pool is replayed in one Python process with the
settings as they were, and in another with the changed ones.
"""

from __future__ import annotations

from .answer import Answer, QueueAnswer, what_if
from .replay import Change

__all__ = ["Answer", "Change", "QueueAnswer", "what_if"]
