"""A Redis command. Only ``link`` and ``store`` may import this (``make lint`` checks it); other rooms call operations
of ``store``.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Command(NamedTuple):
    """One Redis command, and a key that tells which Cluster node it goes to."""

    key: str
    args: tuple[Any, ...]
