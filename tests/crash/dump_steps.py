"""Dumps, and an erasure, that are killed at a step: `python -m tests.crash.dump_steps`. Each line on stdin, [what,
folder, url, step] as JSON, is carried out in a process of its own, which kills itself at that step; a line on stdout
says how it ended. What is imported is imported once.

A step is any point at which something was or will be done that lasts: a file made, half written, whole, renamed, sent
or removed; Redis told the mark, and trimmed; jobs, or what is kept of them, erased.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from streamdq import Queue, erasure
from streamdq.codec import Offload
from streamdq.dump import arrow
from streamdq.dump import compaction as compact
from streamdq.dump import dumper as dump
from streamdq.dump.local import LocalFolder
from streamdq.dump.open_folder import open_folder
from streamdq.dump.remote import RemoteFolder
from streamdq.link.session import Op
from streamdq.store.scripts import Scripts
from tests.dumps import row_text

# What Arrow does once in a process is done once.
arrow.write_parquet(arrow.table_in("t", 0, [(b"1-0", [b"e", row_text("j", 1).encode()])]), io.BytesIO())


class Steps:
    """Counts steps, and kills the process at the given one."""

    def __init__(self, last: int) -> None:
        self._left = last

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: type, name: str) -> None:
        """A step before and after each call of a plain method."""
        plain = getattr(owner, name)

        def stepped(*arguments: Any) -> Any:
            self.step()
            reply = plain(*arguments)
            self.step()
            return reply

        setattr(owner, name, stepped)

    def around_script(self, name: str) -> None:
        plain: Callable[..., Op[Any]] = getattr(Scripts, name)

        def stepped(*arguments: Any, **options: Any) -> Op[Any]:
            self.step()
            reply = yield from plain(*arguments, **options)
            self.step()
            return reply

        setattr(Scripts, name, stepped)

    def in_files(self) -> None:
        """Steps when a file has been made, when half of something is in it, and when it is whole."""
        plain = LocalFolder._create

        @contextmanager
        def stepped(folder: LocalFolder, path: str, durable: bool) -> Iterator[BinaryIO]:
            with plain(folder, path, durable) as file:
                self.step()
                write = file.write
                half = Halves(file, write, self.step)
                yield half  # type: ignore[misc]
            self.step()

        LocalFolder._create = stepped  # type: ignore[assignment, method-assign]


class Halves:
    """A file whose first write is two, with a step in between."""

    def __init__(self, file: BinaryIO, write: Callable[[bytes], int], step: Callable[[], None]) -> None:
        self._file = file
        self._write = write
        self._step: Callable[[], None] | None = step

    def write(self, content: Any) -> int:
        data = bytes(content)
        if self._step is None:
            return self._write(data)
        self._write(data[: len(data) // 2])
        self._file.flush()
        self._step()
        self._step = None
        self._write(data[len(data) // 2 :])
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def bodies_in(path: str) -> Offload:
    """Large bodies, beside the dump."""
    return Offload(f"{path}-bodies", over=100)


def carry_out(what: str, path: str, url: str, step: int) -> None:
    steps = Steps(step)
    steps.in_files()
    for name in ("rename", "remove"):
        steps.around(LocalFolder, name)
    for name in ("_send", "replace", "remove"):
        steps.around(RemoteFolder, name)
    if what == "erase":
        for name in ("erase_rows", "forget_ended", "erase_job"):
            steps.around_script(name)
        steps.around(Offload, "delete")
        with Queue(url, codec=[bodies_in(path)]) as queue:
            erasure.erase(queue, key="jane", dumps=[path])
        return
    folder = open_folder(path)
    if isinstance(folder, LocalFolder):  # elsewhere they are the same
        for name in ("register_dump", "trim_history"):
            steps.around_script(name)
    if what == "compact":
        compact.compact(folder, grace_s=0)
        return
    with dump.Dumper(folder, url, batch=20).opened() as dumper:
        dumper.dump()


def main() -> None:
    dump.PAGE = 10
    for module in sys.argv[1:]:
        importlib.import_module(module)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                carry_out(*json.loads(line))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
