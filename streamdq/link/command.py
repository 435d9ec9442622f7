"""A Redis command. Only ``link`` and ``store`` may import this, which ``make lint`` checks: whoever wants something of
Redis calls an operation of ``store``.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Command(NamedTuple):
    """One Redis command, and a key that tells which Cluster node it goes to."""

    key: str
    args: tuple[Any, ...]
