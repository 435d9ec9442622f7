"""Sends plain commands. Only ``store`` may import this; ``make lint`` checks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..link.command import Command
from ..link.session import Op, Session, checked

STEP = 500
"""Commands in one call: a few milliseconds of Redis's time."""


def one(session: Session, key: str, *args: Any, within_s: float = float("inf")) -> Op[Any]:
    """The reply of one command, which must be safe to repeat."""
    replies = yield from session.call([Command(key, args)], within_s=within_s)
    return checked(replies[0])


def in_steps(session: Session, commands: Sequence[Command]) -> Op[list[Any]]:
    """The replies of any number of commands, including error replies: one call per STEP commands."""
    replies: list[Any] = []
    for start in range(0, len(commands), STEP):
        replies += yield from session.call(commands[start : start + STEP])
    return replies
