"""Renders the pages: templates, the formats of figures, and the security headers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic_core import from_json

from ...job.job import Job
from ...job.retry import RetrySchedule
from ...version import __version__
from ..api.route import backend_of
from ..auth import Role
from .signed_in import signed_in_user
from .timeline import brief

# Nothing from other sites, nothing inline, no frames: text in a topic or an error can't become active content.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_SHOWN_BODY_CHARS = 100_000


def with_commas(value: int) -> str:
    """1234567 as 1,234,567."""
    return f"{value:,}"


def compact(value: int) -> str:
    """A figure on an axis: 2500000 as 2.5M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return str(value)


def timestamp(ms: int | None) -> str:
    """A time to the millisecond."""
    if ms is None:
        return "—"
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{ms % 1000:03}"


def clock(ms: int) -> str:
    """The time of a chart's tick."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M}"


def step(start_ms: int, step_ms: int) -> str:
    """The label of a histogram's step; with the day if steps are long."""
    begins, ends = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (start_ms, start_ms + step_ms))
    if step_ms >= _HOUR_MS:
        return f"{begins:%d %b %H:%M} to {ends:%H:%M}"
    return f"{begins:%H:%M:%S} to {ends:%H:%M:%S}" if step_ms < _MINUTE_MS else f"{begins:%H:%M} to {ends:%H:%M}"


def since(ms: int | None, now_ms: int) -> str:
    """A time relative to now: 'in 5m' or '3s ago'."""
    if ms is None:
        return ""
    return f"in {brief(ms - now_ms)}" if ms > now_ms else f"{brief(now_ms - ms)} ago"


def moment(ms: int) -> Markup:
    """A time in UTC. The page's script can show it in the reader's own zone."""
    return Markup('<time data-ms="{}">{}</time>').format(ms, timestamp(ms))


def ago(ms: int | None, now_ms: int) -> Markup | str:
    """A time relative to now; the time itself is its title."""
    if ms is None:
        return ""
    return Markup('<time data-ms="{}" data-relative title="{} UTC">{}</time>').format(
        ms, timestamp(ms), since(ms, now_ms)
    )


def hour(ms: int) -> Markup:
    """The time of a chart's tick, as an element."""
    return Markup('<time data-ms="{}" data-clock>{}</time>').format(ms, clock(ms))


def pretty(raw: bytes) -> str:
    """A body for people; only the beginning if it is long, as indenting a deep one would multiply its size."""
    text = ""
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(from_json(raw)):
        text += part
        if len(text) > _SHOWN_BODY_CHARS:
            return f"{text[:_SHOWN_BODY_CHARS]}\n…"
    return text


def shown_body(job: Job) -> str:
    """The job's body for people, or why it can't be shown."""
    why = job.why_unreadable
    return f"({why})" if why else pretty(job.json)


def schedule(text: str) -> str:
    """A retry schedule in the form that people write."""
    return str(RetrySchedule.of(text))


def segment(text: str) -> str:
    """One segment of a path, encoded."""
    return quote(text, safe="")


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("streamdq.http"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters |= {
        "with_commas": with_commas, "timestamp": timestamp, "since": since, "duration": brief, "clock": hour,
        "moment": moment, "ago": ago, "segment": segment, "query": urlencode, "schedule": schedule,
    }  # fmt: skip
    made.globals["version"] = __version__
    return made


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Renders the page; every template also gets ``base``, ``who`` and ``may``."""
    who, backend = getattr(request.state, "who", None), backend_of(request)
    text = (
        _templates()
        .get_template(template)
        .render(
            base=base_of(request),
            namespace=backend.namespace,
            guarded=backend.tokens.required,
            who=who,
            signed_in=signed_in_user(request),
            admin=who is not None and who.may(()),
            producer=who is not None and who.may((Role.PRODUCER,)),
            note=_note(request),
            **values,
        )
    )
    return HTMLResponse(text, status, HEADERS)


def base_of(request: Request) -> str:
    """Where this app is mounted; '' at the root."""
    return str(request.scope.get("root_path", "")).rstrip("/")


_NOTES = {
    "kicked": "Sent back: {n}.", "purged": "Deleted permanently: {n}.", "cancelled": "The job is cancelled.",
    "aborting": "The job's handler is told to stop; however it ends, the job is cancelled.",
    "rescheduled": "The job has a new due time.", "paused": "The topic is paused.", "resumed": "The topic is resumed.",
    "configured": "The settings are changed.", "as-before": "Nothing was changed.", "due-now": "The job is due now.",
    "schedule-paused": "The schedule is paused.", "schedule-resumed": "The schedule is resumed.",
    "schedule-removed": "The schedule is removed.", "triggered": "A job is enqueued, due now.",
    "found-cancelled": "Cancelled: {n}.", "found-rescheduled": "Rescheduled: {n}.", "found-kicked": "Sent back: {n}.",
    "found-purged": "Deleted permanently: {n}.", "failed-kick": "Sent back: {n}.",
    "failed-purge": "Deleted permanently: {n}.",
    "flow-cancelled": "The flow is cancelled: none of its jobs starts any more.", "flow-retried": "Sent back: {n}.",
}  # fmt: skip
_NOTHING = "Nothing was changed: the dead letters were gone already."


def _note(request: Request) -> str:
    """What the previous action did, from the page's address: one of our own texts, and a number."""
    text = _NOTES.get(request.query_params.get("did", ""), "")
    count = request.query_params.get("n", "")
    if not text or "{n}" not in text:
        return text
    if not _is_count(count):
        return ""
    left = request.query_params.get("left")
    if left is not None:
        return text.format(n=with_commas(int(count))) + (_left_alone(int(left)) if _is_count(left) else "")
    return _NOTHING if int(count) == 0 else text.format(n=with_commas(int(count)))


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _left_alone(count: int) -> str:
    """What is said of jobs that a search has shown, and to which an action was not done."""
    if not count:
        return ""
    return f" Left alone: {with_commas(count)}, as changed since shown, or in a state that does not allow it."
