"""Figures in a form for people."""

from __future__ import annotations

from datetime import datetime

_SPANS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
_NONE = "–"


def number(value: float | None) -> str:
    """1234567 → "1,234,567"; fractions only for small numbers."""
    if value is None:
        return _NONE
    if value != int(value) and abs(value) < 100:
        return f"{value:,.1f}"
    return f"{value:,.0f}"


def counted(value: float, word: str) -> str:
    """The number and the word, which is plural unless the number is 1."""
    return f"{number(value)} {word}{'' if value == 1 else 's'}"


def short(value: float) -> str:
    """For axes: 1200000 → "1.2 M"."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def span(ms: float | None) -> str:
    """90000 → "1 min 30 s"; two units at most."""
    if ms is None:
        return _NONE
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 10 and ms != int(ms) else f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.3g} s"
    return _two_units(ms)


def _two_units(ms: float) -> str:
    words: list[str] = []
    rest = round(ms / 1000) * 1000
    for name, size in _SPANS:
        count, rest = divmod(rest, size)
        if count or words:
            words.append(f"{count} {name}" if count else "")
    return " ".join(word for word in words[:2] if word)


def unit_for(most_ms: float) -> tuple[str, int]:
    """A unit in which the largest of some times is a figure that can be read: its name, and how many ms it has."""
    units = (("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))
    return next((unit for unit in units if most_ms >= unit[1]), ("ms", 1))


def percent(value: float | None) -> str:
    """0.99953 → "99.95 %"; more digits towards the ends, and never rounded to all or nothing."""
    if value is None:
        return _NONE
    points = value * 100
    if points in (0.0, 100.0):
        return f"{points:.0f} %"
    for digits in (1, 2, 3) if 1 <= points <= 99 else (2, 3):
        text = f"{points:.{digits}f}"
        if float(text) not in (0.0, 100.0):
            return f"{text if digits == 1 else text.rstrip('0').rstrip('.')} %"
    return "< 0.001 %" if points < 1 else "> 99.999 %"


def aim(value: float) -> str:
    """A share that somebody chose, in as many digits as it takes: 0.999 → "99.9 %"."""
    return f"{value * 100:.6g} %"


def size(octets: float) -> str:
    """1234567 → "1.2 MB"."""
    for name, unit in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if octets >= unit:
            return f"{octets / unit:,.1f} {name}"
    return f"{octets:.0f} B"


def day(at: datetime) -> str:
    return f"{at:%a} {at.day} {at:%b}"


def hour(at: datetime) -> str:
    return f"{day(at)} {at:%H:%M}"
