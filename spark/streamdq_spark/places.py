"""Folders as Spark names them."""

from __future__ import annotations

import re
import shutil

from streamdq.folder import Folder, LocalFolder

_SCHEMES = {"s3": "s3a", "gcs": "gs"}  # fsspec's and Hadoop's words for the same
_PATTERN = re.compile(r"[\\*?\[\]{}]")


def spark_url(folder: Folder, path: str) -> str:
    """A file or folder below `folder`, for Spark to write to; a local one is told from the file system that is Spark's
    default. Spark takes no notice of percent signs, so nothing is quoted.
    """
    if isinstance(folder, LocalFolder):
        return f"file://{folder.root / path}"
    scheme, separator, rest = folder.full(path).partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}{separator}{rest}"


def to_read(folder: Folder, path: str) -> str:
    """The same for reading, where Spark would take a name for a pattern."""
    return _PATTERN.sub(r"\\\g<0>", spark_url(folder, path))


def remove_folder(folder: Folder, path: str) -> None:
    """Removes what lies below `path`, if there is anything."""
    if isinstance(folder, LocalFolder):
        shutil.rmtree(folder.root / path, ignore_errors=not (folder.root / path).exists())
        return
    for file in folder.files(path):
        folder.remove(file)
