"""Reads the Retry-After header of a receiver. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

_DIGITS = 12


def retry_after_s(headers: Mapping[str, str], now_s: float, longest_s: float) -> float | None:
    """Seconds from now, at most ``longest_s``; None if the header is missing or says nothing.

    A date counts from the reply's own Date header, so that the receiver's clock need not be right; without one, from
    ``now_s``, Unix seconds.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return min(longest_s, float(text[:_DIGITS]))
    if (wanted := _date(text)) is None:
        return None
    sent = _date(headers.get("Date", ""))
    return min(longest_s, max(0.0, wanted - (now_s if sent is None else sent)))


def _date(text: str) -> float | None:
    try:
        found = parsedate_to_datetime(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
