"""The files of a table in an analysis's output folder. Nothing here needs Spark."""

from __future__ import annotations

from streamdq.dump.folder import Folder

_HIDDEN = (".", "_")
"""What Spark begins the names of folders and files with that are not part of a table: those of a write under way."""


def table_files(folder: Folder, table: str = "") -> list[str]:
    """The Parquet files of a table, or of all, without those that a write left that was killed."""
    return [path for path in folder.files(table) if path.endswith(".parquet") and not _is_hidden(path)]


def leftovers(folder: Folder, table: str) -> set[str]:
    """The folders directly below a table that a killed write left."""
    below = (path.removeprefix(f"{table}/").split("/") for path in folder.files(table))
    return {f"{table}/{parts[0]}" for parts in below if len(parts) > 1 and parts[0].startswith(_HIDDEN)}


def _is_hidden(path: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.split("/"))
