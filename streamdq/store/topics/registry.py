"""This process's copy of the registry of topics."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...config import TopicSettings
from ...link.command import Command
from ...link.session import Op, Session, checked
from ..commands import STEP, one
from ..topic_settings import check_format, settings_in

_VERSION = re.compile(rb'"version":(\d+)[,}]')

WAKEUPS = 256
"""How many changes the `wake` stream of a namespace remembers; `register_topic` and `unregister_topic` trim it."""
_TRUST_S = 60.0  # then it is read in full, in case somebody changed it by hand, without a wakeup


class _Copy(NamedTuple):
    """The registry as of a wakeup."""

    wakeup: bytes  # the entry of `wake` that announced its last change; b"": there is none
    until: float
    texts: Mapping[str, bytes]
    settings: Mapping[str, TopicSettings]


_NOTHING = _Copy(b"", 0.0, {}, {})


class Registry:
    """This process's copy of the registry. Each change of the registry leaves an entry in `wake` that names the topic.
    So a look costs two commands and reads the topics that have changed since the last one. Only if the entry of the
    last look is gone (there were more than ``WAKEUPS`` changes, or Redis lost data) it reads all topics, ``STEP`` at
    a time.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._copy = _NOTHING
        self.unannounced: set[str] = set()  # topics that have changed without a wakeup, as seen when all were read

    def look(self, within_s: float = float("inf")) -> Op[dict[str, TopicSettings]]:
        """All topics and their settings, as they are now."""
        copy = yield from self._followed(self._copy, within_s)
        self._copy = copy or (yield from self._read(within_s))
        return dict(self._copy.settings)

    def _followed(self, before: _Copy, within_s: float) -> Op[_Copy | None]:
        """The copy with what has changed since; None if the wakeups don't tell that."""
        if not before.wakeup or time.monotonic() > before.until:
            return None
        names = self._session.keys
        wakeups = Command(names.wake, ("XRANGE", names.wake, before.wakeup, "+", "COUNT", WAKEUPS + 1))
        size = Command(names.topics, ("HLEN", names.topics))
        entries, count = yield from self._call([wakeups, size], within_s)
        changed = _changed(before.wakeup, entries)
        if changed is None:
            return None
        if not changed:
            return before if count == len(before.settings) else None
        texts, settings = dict(before.texts), dict(before.settings)
        values = Command(names.topics, ("HMGET", names.topics, *changed))
        found, count = yield from self._call([values, size], within_s)
        for name, text in zip(changed, found, strict=True):
            if text is None:
                texts.pop(name, None), settings.pop(name, None)
            elif texts.get(name) != text:
                texts[name], settings[name] = text, settings_in(text)
        return _Copy(entries[-1][0], before.until, texts, settings) if count == len(settings) else None

    def _read(self, within_s: float) -> Op[_Copy]:
        """All topics. The wakeup for what changes meanwhile comes after the entry that is read first."""
        names, before = self._session.keys, self._copy
        last = Command(names.wake, ("XREVRANGE", names.wake, "+", "-", "COUNT", 1))
        (wakeups,) = yield from self._call([last], within_s)
        texts: dict[str, bytes] = {}
        settings: dict[str, TopicSettings] = {}
        alike: dict[bytes, TopicSettings] = {}
        cursor = None
        while cursor != b"0":
            page = Command(names.topics, ("HSCAN", names.topics, cursor or 0, "COUNT", STEP))
            ((cursor, flat),) = yield from self._call([page], within_s)
            for field, text in zip(flat[::2], flat[1::2], strict=True):
                name = field.decode()
                texts[name] = text
                settings[name] = before.settings[name] if before.texts.get(name) == text else _shared(text, alike)
        wakeup = wakeups[0][0] if wakeups else b""
        if wakeup and wakeup == before.wakeup:
            changed = {name for name, text in texts.items() if before.texts.get(name) != text}
            self.unannounced |= changed | (before.texts.keys() - texts.keys())
        return _Copy(wakeup, time.monotonic() + _TRUST_S, texts, settings)

    def _call(self, commands: list[Command], within_s: float) -> Op[list[Any]]:
        replies = yield from self._session.call(commands, within_s=within_s)
        return [checked(reply) for reply in replies]


def _shared(text: bytes, alike: dict[bytes, TopicSettings]) -> TopicSettings:
    """The topic's settings. Topics that differ only in their version, as most do, share the rest: ten thousand are read
    in 28 ms instead of 41, and the garbage collector has fewer objects to go through.
    """
    version = _VERSION.search(text)
    if version is None:
        return settings_in(text)
    rest = text[: version.start(1)] + text[version.end(1) :]
    if rest not in alike:
        alike[rest] = settings_in(text)
        return alike[rest]
    return alike[rest].model_copy(update={"version": int(version[1])})


def _changed(since: bytes, entries: list[Any]) -> list[str] | None:
    """The topics that the entries after ``since`` name; None if they are not all there."""
    if not entries or entries[0][0] != since or len(entries) > WAKEUPS:
        return None
    if any(fields[0] != b"topic" for _, fields in entries):
        return None
    return list(dict.fromkeys(fields[1].decode(errors="replace") for _, fields in entries[1:]))


def check_formats(session: Session) -> Op[None]:
    """Reads all topics, and looks at nothing but their formats.

    Raises:
        NewerFormat: a newer version has written one of them.
    """
    key = session.keys.topics
    for text in (yield from one(session, key, "HGETALL", key))[1::2]:
        check_format(text)
