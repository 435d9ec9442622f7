"""A topic whose history is dumped, and the folder of the dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from streamdq import Queue
from streamdq.dump.dumper import Dumped, Dumper
from streamdq.dump.folder import Folder
from streamdq.dump.local import LocalFolder
from streamdq.dump.manifest import Manifest, require_manifest
from streamdq.keys import ShardKeys
from tests.dumps import entries_of, write_rows
from tests.servers import Server

SHARD = ShardKeys("streamdq", "t", 0)


class Setting:
    """A topic, its history, and a folder for the dump."""

    def __init__(self, server: Server, path: Path, queue: Queue, client: redis.Redis) -> None:
        self.server = server
        self.queue = queue
        self.client = client
        self.folder: Folder = LocalFolder(path)

    def dump(self, **options: Any) -> Dumped:
        dumper = Dumper(self.folder, self.server.url, **options)
        with dumper.opened():
            return dumper.dump()

    def write(self, count: int, *, shard: ShardKeys = SHARD, **place: Any) -> list[str]:
        return write_rows(self.client, shard, count, **place)

    def backup(self) -> Callable[[], None]:
        """Keeps the shard's history as it is; returns what puts it back."""
        kept = {name: self.client.dump(name) for name in (SHARD.history, SHARD.counts, SHARD.settings)}

        def restore() -> None:
            for name, content in kept.items():
                assert isinstance(content, bytes)
                self.client.restore(name, 0, content, replace=True)

        return restore

    @property
    def manifest(self) -> Manifest:
        return require_manifest(self.folder)

    @property
    def entries(self) -> list[str]:
        return entries_of(self.folder)
