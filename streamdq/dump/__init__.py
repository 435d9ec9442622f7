"""Dumps the history from Redis to Parquet files."""

from .compaction import compact
from .dumper import Dumper
from .manifest import require_manifest
from .open_folder import open_folder

__all__ = ["Dumper", "compact", "open_folder", "require_manifest"]
