"""How scripts are called: as functions of the library where the server has functions, and by EVALSHA elsewhere.

A process does not ask which of the two a server understands. It calls a function, and the error reply to its first such
call tells: if the library is missing, it is loaded; a server that has no functions, or does not let this user call or
load them, is called by EVALSHA from then on. With such a reply the script has not begun, so the call is sent again.
A library stays until an operator removes it: processes of another version may need theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from redis.exceptions import ResponseError

from ..errors import AuthenticationFailed
from ..keys import absent_beside
from ..link.command import Behind, Command
from ..link.error_replies import Meaning, meaning_of
from ..link.session import Op, Session, checked, pause
from ..process.logs import log
from .assembly import function_of, library, load_script, sha_of, source_of
from .rights import TRIALS, refusal

_ASKING_S, _ASKING_LOOKS = 0.005, 200
_REFUSED_S = 10.0
"""For how long a server is called by EVALSHA that could not load the library, such as one whose memory is full."""
_NOT_BEGUN = frozenset({
    Meaning.SCRIPT_MISSING, Meaning.FUNCTION_MISSING, Meaning.NO_FUNCTIONS, Meaning.UNKNOWN_COMMAND,
})  # fmt: skip

Spread = str | int
"""How a topic's jobs are spread, as the caller knows it (Layout.text); or just the number of its shards."""

KeysAndArgs = tuple[Sequence[str], Sequence[Any]]
"""The keys and the arguments of a call."""


class Call(Protocol):
    """How commands are sent: as ``Session.call`` does it, or durably."""

    def __call__(self, commands: Sequence[Command], *, repeatable: bool = True) -> Op[list[Any]]: ...


def has_not_begun(reply: Any) -> bool:
    """Whether the server does not know the script: it is to be called in another way."""
    return isinstance(reply, ResponseError) and meaning_of(reply) in _NOT_BEGUN


class ScriptCalls:
    """Calls the scripts of one namespace. ``durably``: calls them with that, and scripts that may change nothing write
    all the same (see durability.py).
    """

    def __init__(self, session: Session, durably: Call | None = None) -> None:
        self._session = session
        self._call: Call = durably or session.call
        self._cover = ("cover",) if durably else ()
        self.is_durable = durably is not None
        self._history = session.settings.history_length
        self.keeps_history = self._history > 0
        failures = session.settings.failures_length if self.keeps_history else 0
        self.keeps_failures = failures > 0
        self._failures = (failures, session.settings.history_age_s * 1000)

    def _run(
        self,
        name: str,
        keys: Sequence[str],
        args: Sequence[Any],
        repeatable: bool = True,
        within_s: float | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> Op[Any]:
        """``within_s``: of a call that is not durable, the deadline. ``read``: makes the value of the reply."""
        if load_script(name).writes and self._session.node_of(keys[0]) not in self._session.permitted:
            yield from self.check_rights(keys[:1])
        send: Call = self._call if within_s is None else partial(self._session.call, within_s=within_s)
        (reply,) = yield from self._replies(name, [(keys, args)], send, repeatable)
        reply = self._checked(reply)
        return reply if read is None else read(reply)

    def _run_each(self, name: str, calls: Sequence[KeysAndArgs], repeatable: bool = False) -> Op[list[Any]]:
        """The replies of several calls of a script on one shard, in their order. They are sent together."""
        yield from self.check_rights((keys[0] for keys, _ in calls))
        replies = yield from self._replies(name, calls, self._call, repeatable)
        return [self._checked(reply) for reply in replies]

    def _replies(
        self,
        name: str,
        calls: Sequence[KeysAndArgs],
        send: Call,
        repeatable: bool,
        behind: Sequence[Behind] = (),
    ) -> Op[list[Any]]:
        """The replies to calls of a script on one shard, and then to what is sent ``behind`` them, each time."""
        replies = yield from send([*self._commands(name, calls), *behind], repeatable=repeatable)
        for attempt in (1, 2):
            left = [i for i in range(len(calls)) if has_not_begun(replies[i])]
            if not left:  # nearly always at once
                break
            yield from self._learn(calls[0][0][0], replies[left[0]])
            commands = self._commands(name, [calls[i] for i in left], attempt)
            again = yield from send([*commands, *behind], repeatable=repeatable)
            for i, reply in zip((*left, *range(len(calls), len(replies))), again, strict=True):
                replies[i] = reply
        return replies

    def _commands(self, name: str, calls: Sequence[KeysAndArgs], attempt: int = 0) -> list[Command]:
        """At the last ``attempt``, nothing is left to chance."""
        if attempt < 2 and load_script(name).is_function and not self._goes_by_evalsha(calls[0][0][0]):
            function = function_of(name)
            return [Command(keys[0], ("FCALL", function, len(keys), *keys, *args)) for keys, args in calls]
        commands = []
        for i, (keys, args) in enumerate(calls):
            # A durable call sends the source: behind a call of a missing script, WAIT would wait for nothing.
            brings = i == 0 and (attempt or self._cover)
            how = ("EVAL", source_of(name)) if brings else ("EVALSHA", sha_of(name))
            commands.append(Command(keys[0], (*how, len(keys), *keys, *args)))
        return commands

    def _goes_by_evalsha(self, key: str) -> bool:
        session = self._session
        if not session.by_evalsha:
            return session.is_fake
        return session.by_evalsha.get(session.node_of(key), 0.0) > time.monotonic()

    def _learn(self, key: str, reply: ResponseError) -> Op[None]:
        """From the reply to a call that has not begun."""
        meaning = meaning_of(reply)
        if meaning is Meaning.FUNCTION_MISSING:
            yield from self._load(key)
        elif meaning is not Meaning.SCRIPT_MISSING:
            self._session.by_evalsha[self._session.node_of(key)] = float("inf")

    def _load(self, key: str) -> Op[None]:
        """Loads the library into the server that has the key."""
        session = self._session
        (reply,) = yield from session.call([Command(key, ("FUNCTION", "LOAD", library().source))])
        if not isinstance(reply, ResponseError) or meaning_of(reply) is Meaning.LIBRARY_EXISTS:
            return
        has_none = meaning_of(reply) in (Meaning.NO_FUNCTIONS, Meaning.UNKNOWN_COMMAND)
        node = session.node_of(key)
        if not has_none and node not in session.by_evalsha:  # it is tried again now and then, and said once
            log.warning("Redis refused the function library: EVALSHA costs it more CPU", error=str(reply))
        session.by_evalsha[node] = float("inf") if has_none else time.monotonic() + _REFUSED_S

    def rights(self, key: str) -> Op[list[str]]:
        """The commands that this user may not run on the server of this key."""
        # Its source, as no server knows it yet: it is called once.
        command = Command(key, ("EVAL", source_of("rights"), 1, absent_beside(key), *TRIALS.values()))
        (reply,) = yield from self._session.call([command])
        return [name.decode() for name in checked(reply)]

    def check_rights(self, keys: Iterable[str]) -> Op[None]:
        """Checks that this user may run all scripts on the servers of these keys, as far as that is not known yet.

        Raises:
            AuthenticationFailed: the user may not run a command of a script.
        """
        session = self._session
        for key in keys:
            for _ in range(_ASKING_LOOKS):  # the first burst of a process asks once
                if session.node_of(key) not in session.asking:
                    break
                yield from pause(_ASKING_S)  # not for ever: who asks may be a thread that a forked child doesn't have
            node = session.node_of(key)
            if node in session.permitted:
                continue
            session.asking.add(node)
            try:
                yield from self._ask_rights(key)
            finally:
                session.asking.discard(node)

    def _ask_rights(self, key: str) -> Op[None]:
        session = self._session
        if not session.is_fake and (missing := (yield from self.rights(key))):
            raise AuthenticationFailed(refusal(missing))
        yield from self._ask_for_library(key)
        # The call may have learned which node of a Cluster it is. One that is suspected is asked each time.
        if (node := session.node_of(key)) or not session.is_cluster:
            session.permitted.add(node)

    def _ask_for_library(self, key: str) -> Op[None]:
        """Learns how to call scripts on the server that has the key, before the first one that writes."""
        if self._session.is_fake:
            return
        command = Command(key, ("FCALL", library().name, 1, absent_beside(key)))
        (reply,) = yield from self._session.call([command])
        if has_not_begun(reply):
            yield from self._learn(key, reply)

    def _checked(self, reply: Any) -> Any:
        """As ``checked``. If this user lacked a right within a script, somebody has taken it from a running process: no
        script is called before the rights are checked again.
        """
        if isinstance(reply, ResponseError) and meaning_of(reply) is Meaning.RIGHTS:
            self._session.permitted.clear()
        return checked(reply)

    def _now(self) -> str:
        return self._session.clock.argument()
