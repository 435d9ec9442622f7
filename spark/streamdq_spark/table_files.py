"""The files of a table in an analysis's output folder: Parquet, by the UTC day `dt`. Nothing here needs an engine.

A table about the whole time has the last day of its run as `dt` and the first as `from_dt`; so results of runs over
other days stay beside it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from datetime import date

from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder

DAY, FROM_DAY = "dt", "from_dt"
_HIDDEN = (".", "_")
"""What the names of folders and files begin with that are not part of a table: those of a write under way."""


def table_files(folder: Folder, table: str = "") -> list[str]:
    """The Parquet files of a table, or of all, without those that a write left that was killed."""
    return [path for path in folder.files(table) if path.endswith(".parquet") and not _is_hidden(path)]


def leftovers(folder: Folder, table: str) -> set[str]:
    """The folders directly below a table that a killed write left."""
    below = (path.removeprefix(f"{table}/").split("/") for path in folder.files(table))
    return {f"{table}/{parts[0]}" for parts in below if len(parts) > 1 and parts[0].startswith(_HIDDEN)}


def remove_leftovers(folder: Folder, table: str) -> None:
    """Removes what killed writes left. A folder without locks keeps it: another run may be writing there."""
    if isinstance(folder, LocalFolder):
        for path in leftovers(folder, table):
            remove_folder(folder, path)


def days_in(table: str, paths: Iterable[str]) -> set[str]:
    """The days of these files of the table. A bucket is listed only once, however many days there are."""
    return {path.removeprefix(f"{table}/{DAY}=").partition("/")[0] for path in paths}


def remove_days(folder: Folder, table: str, days: Iterable[str], first_day: date, last_day: date) -> None:
    """Removes those of the days that lie between these two."""
    for day in days:
        if str(first_day) <= day <= str(last_day):
            remove_folder(folder, f"{table}/{DAY}={day}")


def remove_folder(folder: Folder, path: str) -> None:
    """Removes everything below `path`, if there is anything."""
    if isinstance(folder, LocalFolder):
        shutil.rmtree(folder.root / path, ignore_errors=not (folder.root / path).exists())
        return
    for file in folder.files(path):
        folder.remove(file)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.split("/"))
