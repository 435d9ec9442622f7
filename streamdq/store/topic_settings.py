"""The codec of a topic's settings, the JSON that `register_topic` writes into the registry."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from ..config import TopicSettings
from ..errors import FORMAT, NewerFormat

_NUMBERED = b'"format"'  # those of format 1 have none


def settings_in(text: str | bytes) -> TopicSettings:
    """The topic's settings. The format is checked first, as settings in a newer one may look different.

    Raises:
        NewerFormat: a newer version has written them.
    """
    return TopicSettings.model_validate(_known(from_json(text)))


def check_format(text: bytes) -> None:
    """Looks at nothing but the format.

    Raises:
        NewerFormat: a newer version has written it.
    """
    if _NUMBERED in text:
        _known(from_json(text))


def _known(stored: dict[str, Any]) -> dict[str, Any]:
    format = stored.get("format", 1)
    if not isinstance(format, int | float):
        raise NewerFormat("?")
    if not format <= FORMAT:
        raise NewerFormat(format)
    return stored
