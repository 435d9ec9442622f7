"""The simulated Redis: fakeredis's commands by the simulation's clock, called without a connection.

fakeredis compiles a script again for every call and collects all garbage after it, which would take most of a
simulation's time. Here a script is compiled once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import redis
from fakeredis import FakeServer
from fakeredis._helpers import SimpleError
from fakeredis._socket import FakeSocket
from fakeredis.commands_mixins.scripting_mixin import LUA_MODULE
from redis.exceptions import NoScriptError, ResponseError

Fields = tuple[bytes, ...]
_MISSING = "Function not found"


class HalfDone(ResponseError):
    """The reply to a script that failed."""


class _Session(FakeSocket):
    """One client of the server, without protocol."""

    def eval(self, script: bytes, numkeys: int, *keys_and_args: bytes) -> Any:
        sha = hashlib.sha1(script, usedforsecurity=False).hexdigest().encode()
        self._server.script_cache[sha] = script
        return self._call_script(sha, numkeys, keys_and_args)

    def evalsha(self, sha1: bytes, numkeys: int, *keys_and_args: bytes) -> Any:
        if sha1 not in self._server.script_cache:
            raise SimpleError("NOSCRIPT No matching script.")
        return self._call_script(sha1, numkeys, keys_and_args)

    def function_load(self, source: bytes) -> bytes:
        """The library that real servers get."""
        first, _, text = source.partition(b"\n")
        runtime: Any = self._get_server_runtime(self._server)
        register = runtime.eval(
            b"function(register) local redis = setmetatable({register_function = register}, {__index = redis})\n"
            + text
            + b"\nend"
        )
        register(lambda function: _functions_of(self._server).__setitem__(function.function_name, function.callback))
        return first.partition(b"name=")[2]

    def fcall(self, name: bytes, numkeys: bytes, *keys_and_args: bytes) -> Any:
        callback = _functions_of(self._server).get(name)
        if callback is None:
            raise SimpleError(_MISSING)
        runtime: Any = self._get_server_runtime(self._server)
        count = int(numkeys)
        tables = runtime.table_from(keys_and_args[:count]), runtime.table_from(keys_and_args[count:])
        return self._result_of(lambda: callback(*tables))

    def getex(self, key: Any, *args: bytes) -> Any:
        """fakeredis's lets the key expire with the second in which it should, up to a second too early."""
        value = super().getex(key, *args)
        if args[:1] == (b"PX",) and value is not None:
            key.expireat = self._db.time + int(args[1]) / 1000
        return value

    def _call_script(self, sha: bytes, numkeys: int, keys_and_args: Sequence[bytes]) -> Any:
        server: Any = self._server
        runtime = self._get_server_runtime(server)
        compiled = server.__dict__.setdefault("compiled", {})
        if sha not in compiled:
            compiled[sha] = runtime.eval(b"function() " + server.script_cache[sha] + b"\nend")
        keys, args = keys_and_args[:numkeys], keys_and_args[numkeys:]
        server._lua_set_keys_argv(runtime.table_from(keys), runtime.table_from(args))
        return self._result_of(compiled[sha])

    def _result_of(self, function: Callable[[], Any]) -> Any:
        server: Any = self._server
        server._lua_current_socket[0] = self
        self._script_resp = 2
        try:
            return self._convert_lua_result(function(), nested=False)
        finally:
            self._script_resp = None


def _functions_of(server: Any) -> dict[bytes, Any]:
    functions: dict[bytes, Any] = server.__dict__.setdefault("functions", {})
    return functions


class Store:
    """``now_s``: the server's clock, in seconds since 1970. Every command is kept, so that a replica that lacks the
    last of them can take over.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._replaying: float | None = None
        self.log: list[tuple[float, Fields]] = []
        self.flushes = 0
        self._runs = 0
        self._begin()

    def _begin(self) -> None:
        self._runs += 1
        self._server = FakeServer(version=(7, 0))
        self._session = _Session(self._server, 0, client_class=redis.Redis)

    def time(self) -> float:
        return self._now_s() if self._replaying is None else self._replaying

    @contextmanager
    def keeping_time(self) -> Iterator[None]:
        """Within it, fakeredis and Lua go by this clock."""
        with patch.object(time, "time", self.time):
            yield

    def apply(self, fields: Fields) -> Any:
        """The reply, or the error reply."""
        reply = self._run(fields)
        # A replica has the effects, and knows other scripts.
        if not isinstance(reply, NoScriptError) and str(reply) != _MISSING:
            self.log.append((self.time(), fields))
        return reply

    def _run(self, fields: Fields) -> Any:
        if fields[0] == b"INFO":  # fakeredis knows none
            return b"run_id:%d\r\n" % self._runs
        session, now_s = self._session, self.time()
        for database in self._server.dbs.values():
            database.time = now_s
        name, arguments = fields[0].decode().lower(), list(fields[1:])
        if name in ("xgroup", "xinfo", "script", "config", "function"):
            name += f" {arguments.pop(0).decode().lower()}"
        try:
            function, signature = session._name_to_func(name)
            with self._server.lock:
                return session._decode_result(session._run_command(function, signature, arguments, False))
        except SimpleError as error:
            return session._decode_error(error)
        except LUA_MODULE.LuaError as error:  # what the script had already written stays
            return HalfDone(str(error))

    def forget_last(self) -> None:
        """The last command changed nothing."""
        self.log.pop()

    def growth(self, streams: Sequence[bytes]) -> list[tuple[int, tuple[bytes, ...]] | None]:
        """A value that changes when a blocked read of the streams may have something to return."""
        kept = self._server.dbs[0]._dict
        items = [kept.get(name) for name in streams]
        return [item and (item.value.entries_added, tuple(item.value._groups)) for item in items]

    def value(self, key: bytes) -> Any:
        """Of a string."""
        item = self._server.dbs[0]._dict.get(key)
        return item and item.value

    def take_over(self, lost: int) -> None:
        """Another server goes on that never got the last ``lost`` commands; it knows no script."""
        del self.log[len(self.log) - lost :]
        scripts = dict(self._server.script_cache)
        self._begin()
        self._server.script_cache |= scripts
        for then_s, fields in self.log:
            self._replaying = then_s
            self._run(fields)
        self._replaying = None
        self._server.script_cache.clear()

    def restart(self) -> None:
        """It has lost nothing but what is not kept on disk: the scripts, and which run of it this was."""
        self._runs += 1
        self._server.script_cache.clear()

    def flush_scripts(self) -> None:
        """Flushing one kind flushes the other, too."""
        self._server.script_cache.clear()
        _functions_of(self._server).clear()

    def flush(self) -> None:
        self.flushes += 1
        self.apply((b"FLUSHALL",))

    def all_keys(self) -> list[str]:
        return sorted(key.decode() for key in self._run((b"KEYS", b"*")))

    def ask(self, *fields: str | int) -> Any:
        """A look at it that nobody else notices."""
        reply = self._run(tuple(str(field).encode() for field in fields))
        assert not isinstance(reply, ResponseError), reply
        return reply
