"""Opens the folder that a path or URL names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from ..errors import InvalidInput
from .folder import Folder
from .local import LocalFolder
from .remote import open_remote


def open_folder(url: str) -> Folder:
    """The folder for a path, ``file://`` URL, or any URL that fsspec knows. Creates nothing yet.

    Raises:
        InvalidInput: it is empty, or the scheme is unknown.
        MissingExtra: fsspec, or what it needs for the scheme, is not installed.
        FolderError: the server that the URL names does not answer, or refuses.
    """
    if not url:
        raise InvalidInput("the name of the folder is empty")
    if "://" not in url:
        return LocalFolder(Path(url).expanduser().absolute())
    if urlsplit(url).scheme == "file":
        return LocalFolder(Path(url.removeprefix("file://")))
    return open_remote(url)
