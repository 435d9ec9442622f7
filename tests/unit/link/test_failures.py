"""A failure's kind, from what redis-py makes of it."""

import pytest
import redis
from redis import exceptions

from streamdq.errors import AuthenticationFailed, UnsupportedServer
from streamdq.link.failures import KINDS, calls_of, count_call, count_reply, translate
from tests.metrics import sample


@pytest.fixture(autouse=True)
def _calls_of_one_namespace() -> None:
    calls_of("n")


def counts() -> dict[str, float]:
    return {kind: sample("streamdq_redis_errors_total", {"namespace": "n", "kind": kind}) or 0 for kind in KINDS}


def grown(before: dict[str, float]) -> list[str]:
    now = counts()
    return [kind for kind in KINDS for _ in range(int(now[kind] - before[kind]))]


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), ["refused_writes"]),
        (exceptions.ResponseError("OOM command not allowed when used memory > 'maxmemory'."), ["refused_writes"]),
        (exceptions.ReadOnlyError("You can't write against a read only replica."), ["refused_writes"]),
        (exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"), ["refused_writes"]),
        (exceptions.ResponseError("NOGROUP No such key 'x' or consumer group"), ["group_missing"]),
        (exceptions.MovedError("1 127.0.0.1:7000"), ["cluster"]),
        (exceptions.NoPermissionError("this user has no permissions"), ["login"]),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), ["server"]),
        (exceptions.NoScriptError("No matching script."), []),
        (exceptions.ResponseError("BUSYGROUP Consumer Group name already exists"), []),
    ],
)
def test_error_replies(error: exceptions.ResponseError, kinds: list[str]) -> None:
    before = counts()

    count_reply(error)

    assert grown(before) == kinds


@pytest.mark.parametrize(
    ("error", "seen_as", "kind"),
    [
        (TimeoutError(), OSError(), "timeout"),
        (redis.TimeoutError(), OSError(), "timeout"),
        (ConnectionRefusedError(), OSError(), "connection"),
        (redis.ConnectionError(), OSError(), "connection"),
        (exceptions.BusyLoadingError(), OSError(), "loading"),
        (redis.AuthenticationError(), AuthenticationFailed(), "login"),
        (exceptions.InvalidResponse(), UnsupportedServer(), "protocol"),
    ],
)
def test_calls_without_an_answer(error: Exception, seen_as: Exception, kind: str) -> None:
    before = counts()

    count_call(error, seen_as)

    assert grown(before) == [kind]


def test_what_redis_says_of_a_login_is_quoted_without_its_full_stop() -> None:
    refused = redis.AuthenticationError("invalid username-password pair or user is disabled.")

    said = str(translate(refused, sent=False))

    assert said.startswith("Redis refused the login (invalid username-password pair or user is disabled); check ")


def test_a_password_that_a_server_quotes_is_in_no_text() -> None:
    """As one does that has no AUTH."""
    error = exceptions.ResponseError("unknown command 'AUTH', with args beginning with: 'me' 'secret' ")
    seen_as = translate(error, sent=False)
    assert str(seen_as) == "unknown command 'AUTH'"
    assert "secret" not in str(error), "a traceback shows it as well"
