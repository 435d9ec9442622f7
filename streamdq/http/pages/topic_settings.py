"""The page of a topic's settings, and the form that changes them. What can't be is said beside its field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response

from ...config import TopicSettings
from ...errors import InvalidInput, TopicNotEmpty
from ...job.retry import RetrySchedule
from ...times.durations import number_in, show_ms
from ..api.route import TopicPath, backend_of
from ..problems import ProblemError
from .page_routes import PageRoute, form_of, get, post, redirect
from .render import base_of, page, segment

router = APIRouter(route_class=PageRoute)
_PATH = "/topics/{topic:segment}/settings"


class Field(NamedTuple):
    """``shown``: the setting as text, '' = none. ``read``: what ``configure`` takes, of a text."""

    name: str
    label: str
    hint: str
    shown: Callable[[TopicSettings], str]
    read: Callable[[str], Any]
    choices: Mapping[str, str] = {}


def _whole(name: str, none: int | None = None) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        if not text and none is not None:
            return none
        if not re.fullmatch(r"[+-]?[0-9]{1,15}", text.strip()):  # int() takes other scripts' digits, too
            raise InvalidInput(f"{name}: {text[:40]!r} is not a whole number")
        return int(text)

    return read


def _rate(text: str) -> float:
    try:
        return number_in(text or "0")
    except ValueError:
        raise InvalidInput(f"rate: {text[:40]!r} is not a number") from None


_ORDERS: dict[str, Any] = {"": False, "hold": True, "pass": "pass"}


def _order(text: str) -> Any:
    if text not in _ORDERS:
        raise InvalidInput("key_order: is none of the choices")
    return _ORDERS[text]


FIELDS = (
    Field("ttr", "TTR", "how long an attempt may take: 30s, 5m", lambda s: show_ms(s.ttr_ms), str),
    Field(
        "retry", "Retries", "the delays between attempts: 15s 3m 10m, or none",
        lambda s: str(RetrySchedule.of(s.retry)), lambda text: text or "none",
    ),
    Field("max_deliveries", "Most lost deliveries", "a job that is lost with its worker this often is buried",
          lambda s: str(s.max_deliveries), _whole("max_deliveries")),
    Field("dead_for", "Dead letters", "for how long they are kept: 90d; empty for no limit",
          lambda s: show_ms(s.dead_for_ms) if s.dead_for_ms else "", lambda text: text or 0),
    Field("rate", "Rate", "jobs a second that become ready at most; empty for no limit",
          lambda s: "" if not s.rate else f"{s.rate:g}", _rate),
    Field("shards", "Shards", "jobs that are there stay where they are", lambda s: str(s.shards), _whole("shards")),
    Field("durable", "Durable", "memory, disk or replicas:N; empty: as each process is configured",
          lambda s: s.durable or "", lambda text: text or "default"),
    Field("key_concurrency", "Key concurrency", "attempts of one key at the same time; empty for no limit",
          lambda s: str(s.key_concurrency or ""), _whole("key_concurrency", 0)),
    Field("key_rate", "Key rate", "5/s, 100/10m; empty for no limit",
          lambda s: s.key_rate or "", lambda text: text or 0),
    Field("key_order", "Key order", "jobs of one key start by their due times", lambda s: s.key_order or "",
          _order,
          {"": "any order", "hold": "in order; a retry holds the key", "pass": "in order; retries let others pass"}),
)  # fmt: skip


@get(router, _PATH, every_group=True)
async def settings_page(request: Request, topic: TopicPath) -> Response:
    settings = await _settings(request, topic)
    return _page(request, topic, settings, {field.name: field.shown(settings) for field in FIELDS})


async def _settings(request: Request, topic: str) -> TopicSettings:
    backend = backend_of(request)
    known = await backend.do((await backend.store()).topics.registry())
    if topic not in known:
        raise ProblemError("unknown-topic", "It was deleted, or never made. Check the spelling of its name.")
    return known[topic]


def _page(
    request: Request, topic: str, settings: TopicSettings, given: Mapping[str, str], why: str = "", status: int = 200
) -> Response:
    """``why``: what is wrong, with the field's name before a colon."""
    groups = [_group(settings, name) for name in settings.group_names]
    name, _, rest = why.partition(": ")
    at = name if name in given else ""
    return page(
        request, "topic_settings.html", status, topic=topic, settings=settings, fields=FIELDS, given=given, at=at,
        why=rest if at else why, groups=groups, own={field.name: _own(groups, field.name) for field in FIELDS},
    )  # fmt: skip


class _Value(NamedTuple):
    """A setting as it applies to a group. ``is_own``: the group does not have it from the topic."""

    field: str
    label: str
    text: str
    is_own: bool


class _Group(NamedTuple):
    name: str
    values: list[_Value]


def _group(settings: TopicSettings, name: str) -> _Group:
    own = settings.groups[name]
    ttr, retry = show_ms(settings.ttr_of(name)), str(settings.retry_of(name))
    values = [
        _Value("ttr", "TTR", ttr, own.ttr_ms is not None),
        _Value("retry", "Retries", retry, own.retry is not None),
    ]
    return _Group(name, values)


def _own(groups: list[_Group], field: str) -> str:
    """For which groups the topic's value is not, as they have their own."""
    own = [(one.name, value.text) for one in groups for value in one.values if value.field == field and value.is_own]
    if own and len(own) == len(groups):
        return f"No group uses this now: {', '.join(f'{name} has {text}' for name, text in own)}."
    return " ".join(f"Not for group {name}: it has {text}." for name, text in own)


class _Sent(NamedTuple):
    """A form that was sent. ``now``: what is set; ``before``: what was set when the form was shown; ``given``: what a
    form that is shown again has in its fields, which is ``now`` where nothing was edited.
    """

    now: Mapping[str, str]
    before: Mapping[str, str]
    given: Mapping[str, str]

    def changes(self) -> dict[str, Any]:
        """What ``configure`` takes.

        Raises:
            InvalidInput
        """
        changed = [field for field in FIELDS if self.given[field.name] != self.now[field.name]]
        return {field.name: field.read(self.given[field.name]) for field in changed}

    def overtaken(self, changes: Iterable[str]) -> str:
        """Why the changes are not made without asking: somebody else has set one of them since; '' if nobody has."""
        for name in changes:
            if self.before[name] != (now := self.now[name]):
                was = f"it was set to “{now}” meanwhile" if now else "it was removed meanwhile"
                return f"{name}: {was}; save again to replace that"
        return ""


def _sent(form: Mapping[str, list[str]], settings: TopicSettings) -> _Sent:
    now = {field.name: field.shown(settings) for field in FIELDS}
    before = {name: form.get(f"was_{name}", [shown])[0] for name, shown in now.items()}
    sent = {name: form.get(name, [shown])[0].strip() for name, shown in now.items()}
    return _Sent(now, before, {name: now[name] if text == before[name] else text for name, text in sent.items()})


@post(router, _PATH, every_group=True)
async def change_settings(request: Request, topic: TopicPath) -> Response:
    """Changes what was edited. Others may have changed settings since the form was shown: what they have set stays,
    unless it is sent again after it was shown.
    """
    settings = await _settings(request, topic)
    sent = _sent(await form_of(request), settings)
    changes: dict[str, Any] = {}
    try:
        changes = sent.changes()
        if why := sent.overtaken(changes):
            return _page(request, topic, settings, sent.given, why, 409)
        if changes:
            await (await backend_of(request).queue()).configure(topic, **changes)
    except InvalidInput as error:
        return _page(request, topic, settings, sent.given, str(error), 422)
    except TopicNotEmpty as error:
        why = f"shards: {error}" if "shards" in changes else str(error)
        return _page(request, topic, settings, sent.given, why, 409)
    return redirect(f"{base_of(request)}/topics/{segment(topic)}?did={'configured' if changes else 'as-before'}")
