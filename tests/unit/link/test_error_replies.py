"""What an error reply means, and that one module alone tells it."""

from __future__ import annotations

from pathlib import Path

from redis import exceptions

import streamdq
from streamdq.link.error_replies import Meaning, meaning_of
from tests.cases import each

PACKAGE = Path(streamdq.__file__).parent
WORDS = (
    "NOGROUP",
    "READONLY",
    "MISCONF",
    "OOM ",
    "NOREPLICAS",
    "NOPERM",
    "NOAUTH",
    "WRONGPASS",
    "NOSCRIPT",
    "BUSYGROUP",
    "NEWERFORMAT",
)


@each(
    "error, meaning",
    [
        (exceptions.ReadOnlyError("You can't write against a read only replica."), Meaning.REPLICA),
        (
            exceptions.ResponseError("Error running script: -READONLY You can't write against a replica"),
            Meaning.REPLICA,
        ),
        (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), Meaning.NO_WRITES),
        (exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"), Meaning.NO_WRITES),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."), Meaning.NO_WRITES),
        (exceptions.ResponseError("NOGROUP No such key 'x' or consumer group"), Meaning.GROUP_MISSING),
        (
            exceptions.ResponseError("The XGROUP subcommand requires the key to exist."),
            Meaning.GROUP_MISSING,
        ),
        (exceptions.ResponseError("UNBLOCKED the stream key no longer exists"), Meaning.GROUP_MISSING),
        (exceptions.MovedError("1 127.0.0.1:7000"), Meaning.ELSEWHERE),
        (exceptions.AskError("1 127.0.0.1:7000"), Meaning.ELSEWHERE),
        (exceptions.AuthenticationError("invalid password"), Meaning.LOGIN),
        (exceptions.ResponseError("WRONGPASS invalid username-password pair"), Meaning.LOGIN),
        (exceptions.NoPermissionError("this user has no permissions"), Meaning.RIGHTS),
        (exceptions.ResponseError("NOPERM this user has no permissions"), Meaning.RIGHTS),
        (
            exceptions.ResponseError("The user executing the script can't access at least one of the keys"),
            Meaning.RIGHTS,
        ),
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), Meaning.LOADING),
        (exceptions.ConnectionError("max number of clients reached"), Meaning.FULL),
        (exceptions.ResponseError("max number of clients + cluster connections reached"), Meaning.FULL),
        (exceptions.ResponseError("unknown command 'XAUTOCLAIM'"), Meaning.UNKNOWN_COMMAND),
        (exceptions.NoScriptError("No matching script."), Meaning.SCRIPT_MISSING),
        (exceptions.ResponseError("BUSYGROUP Consumer Group name already exists"), Meaning.GROUP_EXISTS),
        (
            exceptions.ResponseError("Error running script (call to f_1): @user_script: 9: NEWERFORMAT 2"),
            Meaning.NEWER_FORMAT,
        ),
        (exceptions.ResponseError("NEWERFORMAT 2 script: 1, on @user_script:9."), Meaning.NEWER_FORMAT),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), Meaning.OTHER),
        (
            exceptions.ResponseError("ACL failure in script: User u has no permissions to run the 'zadd' command"),
            Meaning.RIGHTS,
        ),
        (exceptions.ResponseError("ERR Unknown Redis command called from script"), Meaning.OTHER),
        (exceptions.ResponseError("Unknown command called from script script: 1, on @user_script:9."), Meaning.OTHER),
        (OSError("no route to host"), Meaning.OTHER),
    ],
)
def test_meanings(error: Exception, meaning: Meaning) -> None:
    assert meaning_of(error) is meaning


def test_no_other_module_reads_an_error_replys_words() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {word}"
        for path in PACKAGE.rglob("*.py")
        for word in WORDS
        if f'"{word}' in path.read_text() and path.name != "error_replies.py"
    }
    assert found == set()
