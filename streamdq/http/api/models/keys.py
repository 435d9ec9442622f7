"""Keys of jobs in answers."""

from __future__ import annotations

from pydantic import BaseModel, Field

from .common import example


class KeyLoadOut(BaseModel):
    """What a group has to do for one key."""

    key: str
    waiting: int = Field(description="Jobs that wait for a place of the key, due or not.")
    running: int
    paused: bool


class KeysOut(BaseModel):
    keys: list[KeyLoadOut]

    model_config = example({"keys": [{"key": "merchant-7", "waiting": 1204, "running": 1, "paused": False}]})
