"""Some days of a dump, for what needs no tables. Nothing here needs Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from streamdq.errors import InvalidInput

from .dump_files import Dump, GoodFile, open_dump


@dataclass(frozen=True, slots=True)
class Days:
    """The files of these days."""

    dump: Dump
    files: tuple[GoodFile, ...]

    @property
    def events(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def impossible(self) -> int:
        return sum(file.impossible for file in self.files)


def open_days(input: str, first: date | None, last: date | None, *, quarantine: bool = False) -> Days:
    """The days from `first` to `last`, both included; None: as far as the dump goes. `quarantine`: bad files are left
    out.

    Raises:
        InvalidInput: no events in these days.
        HistoryUnreadable: there is no dump.
        BadDump: a file is bad and `quarantine` is off.
    """
    dump = open_dump(input, quarantine=quarantine)
    files = tuple(dump.between(first or date.min, last or date.max))
    if not files:
        days = [file.day for file in dump.files]
        held = f"it holds {min(days)} to {max(days)}" if days else "it holds none at all"
        raise InvalidInput(f"the dump {dump.folder.url} has no events on the requested days: {held}")
    return Days(dump, files)
