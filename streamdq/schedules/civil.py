"""Civil time: the local time of a zone, and which moments it means."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from ..errors import InvalidInput
from ..keys import plain
from ..times.durations import Moment, moment_ms

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive, as all local times here
_SECOND = timedelta(seconds=1)
_OF_THIS_HOST = {"localtime", "posixrules"}


def zone(name: str | tzinfo) -> ZoneInfo:
    """The time zone of that name, or with the name of that object, in the IANA database: the system's, or that of the
    package tzdata. Not those names that mean something else, or nothing, on another host: its own local time, and the
    copies of the database that some systems have, one of which counts leap seconds.

    Raises:
        InvalidInput: there is none.
    """
    if isinstance(name, tzinfo):
        name = str(name)  # ZoneInfo's is its key; UTC's too
    elif isinstance(name, str):
        name = plain(name)
    if str(name) in _OF_THIS_HOST or str(name).startswith(("posix/", "right/")):
        raise InvalidInput(
            f"tz: {str(name)[:80]!r} does not mean the same on every host; write for example Europe/Paris or UTC"
        )
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, TypeError, AttributeError, KeyError):  # what ZoneInfo raises for odd names
        pass
    from difflib import get_close_matches  # only errors need it

    similar = get_close_matches(str(name), available_timezones(), 1)
    hint = f"did you mean {similar[0]}?" if similar else "write for example Europe/Paris"
    raise InvalidInput(f"tz: {str(name)[:80]!r} is not the name of a time zone; {hint}")


def database_version() -> str:
    """The version of the time zone database that ``zone`` reads now, such as 2026a; empty if it does not say."""
    for folder in TZPATH:
        try:
            with (Path(folder) / "tzdata.zi").open(encoding="utf-8") as file:
                return file.readline().rpartition(" ")[2].strip()
        except OSError:
            continue
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tzdata")
    except PackageNotFoundError:
        return ""


def forget_zones() -> None:
    """From now on, ``zone`` reads the database anew: it may have been updated."""
    ZoneInfo.clear_cache()


def moments(local: datetime, where: ZoneInfo) -> list[int]:
    """The moments, in Unix milliseconds, at which clocks in that zone show this naive local time: usually one, two if
    clocks are set back over it. If clocks are set forward over it, the first moment after that.
    """
    first, second = (_utc(local, where, fold) for fold in (0, 1))
    if first == second:
        return [_ms(first)]
    if second < first:  # set forward: by the clock before it is later, by the one after it is earlier
        return [_ms(_change(second, first, where))]
    return [_ms(first), _ms(second)]


def local_of(ms: int, where: ZoneInfo) -> datetime:
    """What clocks in that zone show at that moment, as a naive datetime."""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone(where).replace(tzinfo=None)


def _utc(local: datetime, where: ZoneInfo, fold: int) -> datetime:
    """As a naive datetime."""
    offset = local.replace(tzinfo=where, fold=fold).utcoffset()
    assert offset is not None
    return local - offset


def _change(before: datetime, after: datetime, where: ZoneInfo) -> datetime:
    """The first second with the later of two offsets. All naive and in UTC."""

    def offset(at: datetime) -> timedelta | None:
        return at.replace(tzinfo=UTC).astimezone(where).utcoffset()

    new = offset(after)
    while after - before > _SECOND:
        middle = before + (after - before) // 2
        middle -= timedelta(microseconds=middle.microsecond)
        if middle <= before:
            break
        before, after = (before, middle) if offset(middle) == new else (middle, after)
    return after


def _ms(utc: datetime) -> int:
    return (utc - _EPOCH) // timedelta(milliseconds=1)


def _parsed(at: str) -> datetime:
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        raise InvalidInput(f"at: can't read {at[:80]!r}; write for example 2030-01-31T09:00") from None


def civil_moment_ms(at: Moment | str, tz: str | None, quiet: str | None) -> int:
    """A moment as callers write it, in Unix milliseconds. ``at``: also as ISO 8601 text. If it has no time zone, it is
    a local time of the zone ``tz``: the first such moment. ``quiet``: if it lies within these hours of that zone, their
    end.

    Raises:
        InvalidInput: something can't be read, or the zone is missing.
    """
    if isinstance(at, str):
        at = _parsed(at)
    if tz is None:
        if quiet is not None:
            raise InvalidInput("quiet: pass tz as well, such as tz='Europe/Paris'")
        return moment_ms(at)
    where = zone(tz)
    if isinstance(at, datetime) and at.tzinfo is None:
        local = at
        try:
            at = moments(local, where)[0]
        except OverflowError:
            raise InvalidInput(f"at: {local.isoformat()} is beyond the calendar") from None
    ms = moment_ms(at)
    return ms if quiet is None else after_quiet(ms, quiet_hours(quiet), where)


# -- times of day

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_DAY_MINUTES = 24 * 60


def quiet_hours(text: str) -> tuple[int, int]:
    """Quiet hours such as ``"21:00-08:00"``, as minutes of the day: from the first until before the second.

    Raises:
        InvalidInput: not understood, or they would never end.
    """
    begin, _, end = text.partition("-") if isinstance(text, str) else ("", "", "")
    found = [_TIME.fullmatch(part.strip()) for part in (begin, end)]
    if found[0] is None or found[1] is None:
        raise InvalidInput(f"quiet: can't read {str(text)[:80]!r}; write for example '21:00-08:00'")
    first, second = (int(one[1]) * 60 + int(one[2]) for one in found if one)
    if first == second:
        raise InvalidInput("quiet: they begin and end at the same time; to stop all jobs, pause the topic")
    return first, second


def after_quiet(ms: int, quiet: tuple[int, int], where: ZoneInfo) -> int:
    """That moment, or the end of the quiet hours if it lies within them."""
    begin, end = quiet
    local = local_of(ms, where)
    if (local.hour * 60 + local.minute - begin) % _DAY_MINUTES >= (end - begin) % _DAY_MINUTES:
        return ms
    ends = local.replace(hour=end // 60, minute=end % 60, second=0, microsecond=0)
    if ends <= local:
        ends += timedelta(days=1)
    return next((at for at in moments(ends, where) if at > ms), ms)
