"""A topic's settings as the registry holds them: JSON that `register_topic` writes."""

from __future__ import annotations

from pydantic_core import from_json

from ..config import TopicSettings
from ..errors import FORMAT, NewerFormat


def settings_in(text: str | bytes) -> TopicSettings:
    """The topic's settings. The format is looked at first, as settings of a newer one may look different.

    Raises:
        NewerFormat: a newer version has written them.
    """
    stored = from_json(text)
    if (format := stored.get("format", 1)) > FORMAT:
        raise NewerFormat(format)
    return TopicSettings.model_validate(stored)
