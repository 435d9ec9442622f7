"""The API as a separate server: `streamdq serve` in another process (tests/http/unhurried.py)."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import threading
from typing import Any, Self

import httpx

from tests.forked import ROOT, Forked
from tests.waiting import HANG_S, until


class Live:
    """One server on a free port; ends with the with statement. ``log``: its stderr, line by line."""

    def __init__(
        self, redis_url: str, *arguments: str, env: dict[str, str] | None = None, files: int = 0, loop: str = ""
    ) -> None:
        """``files``: its limit of open files. ``loop``: asyncio, if it should not be the one that is chosen."""
        env = {**(env or os.environ), "TEST_FILES": str(files), "TEST_LOOP": loop}
        command = ["tests.http.unhurried", "--url", redis_url, "serve", "--port", "0", *arguments]
        given: dict[str, Any] = {
            "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "env": env, "cwd": ROOT,
        }  # fmt: skip
        self.process: subprocess.Popen[str]
        self.process = Forked(*command, **given, imports=["streamdq.http.app", "streamdq.http.server"])
        self.verify: ssl.SSLContext | bool = False  # it takes long to load the certificates of the system
        self.log: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.url = self._listening()
        except BaseException:  # then no with statement ends it
            self._end()
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.log.append({"event": line})

    def _listening(self) -> str:
        until(lambda: self._url() or self.process.poll() is not None, "the server listens")
        found = self._url()
        assert found is not None, self.log
        return found

    def _url(self) -> str | None:
        return next((line["url"] for line in self.log if line["event"] == "serving"), None)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=HANG_S, verify=self.verify)

    def stop(self) -> int:
        """Ends it like an operator; returns its exit code."""
        self.process.terminate()
        code = self.process.wait(HANG_S)
        self._reader.join()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
