"""Where a credential provider is found, and when a connection's login is old."""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider

from streamdq.errors import InvalidInput
from streamdq.link import credentials
from streamdq.link.credentials import Credentials, Login, credentials_of
from tests.unit.virtual_time import in_virtual_time

MODULE = """
from redis.credentials import UsernamePasswordCredentialProvider

class of:
    provider = UsernamePasswordCredentialProvider("me", "secret")

def made():
    return UsernamePasswordCredentialProvider("made")

def fails():
    raise KeyError("VAULT_URL")

text = "no provider"
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials._imported.cache_clear()
    (tmp_path / "login_of_shop.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("target", "user"), [("of.provider", "me"), ("made", "made")])
def test_the_provider_or_what_makes_it_is_named(target: str, user: str) -> None:
    found = credentials_of(f"login_of_shop:{target}")
    assert found is not None
    assert found.get()[0] == user
    assert credentials_of(f"login_of_shop:{target}") is found, "all links share it"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("login_of_shop", "can't be used"), ("login_of_shop:nobody", "no attribute 'nobody'"),
        ("nowhere:x", "No module named 'nowhere'"), ("login_of_shop:fails", "KeyError: 'VAULT_URL'"),
        ("login_of_shop:text", "is not a redis.CredentialProvider"), (7, "int is not a redis.CredentialProvider"),
    ],
)  # fmt: skip
def test_what_is_no_provider_is_refused(target: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=f"credential_provider: .*{why}"):
        credentials_of(target)


class Given(CredentialProvider):
    """``given``: what it returns. It can't be hashed, as many dataclasses can't."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, given: Any) -> None:
        self.given = given

    def get_credentials(self) -> Any:
        return self.given


@pytest.mark.parametrize("given", [("me", "secret"), ["me", "secret"], ("secret",), (b"me", b"secret")])
def test_a_login_is_user_and_password_or_the_password(given: Any) -> None:
    assert Credentials(Given(given)).get() == tuple(given)


@pytest.mark.parametrize(
    "given", [None, (), "secret", b"secret", ("me", None), ("me", "secret", 1), {"me": "secret"}, 7, ("me", 7)]
)
def test_what_is_no_login_is_not_sent(given: Any) -> None:
    """With nothing, redis-py would log in as nobody, which Redis takes for its user ``default``."""
    provider = Given(given)
    shared = Credentials(provider)
    with pytest.raises(redis.ConnectionError, match=r"must return \(user, password\)") as raised:
        shared.get()
    assert "secret" not in str(raised.value)
    provider.given = ("me", "secret")
    shared.get()
    provider.given = given
    assert shared.get() == ("me", "secret")


@pytest.mark.parametrize("given", [("me", ""), ("",), ("me", b"")])
def test_while_a_file_is_written_the_last_password_is_used(given: Any) -> None:
    provider = Given(("me", "secret"))
    shared = Credentials(provider)
    shared.get()
    provider.given = given
    assert shared.get() == ("me", "secret")
    assert Credentials(provider).get() == given, "of a user without a password"


def test_a_provider_lives_no_longer_than_its_links() -> None:
    provider = Given(("me", "secret"))
    found, is_gone = credentials_of(provider), weakref.ref(provider)
    assert credentials_of(provider) is found
    del provider, found
    assert is_gone() is None


def test_without_a_provider_there_are_no_credentials() -> None:
    assert credentials_of("") is credentials_of(None) is None


@in_virtual_time
async def test_a_login_is_old_after_some_minutes_or_when_there_are_new_ones() -> None:
    shared = Credentials(UsernamePasswordCredentialProvider("me", "secret"))

    async def in_thread(function: Any, *args: Any) -> Any:
        return function(*args)

    def is_old() -> bool:
        return login.is_old

    login = Login(shared, in_thread)
    assert not is_old(), "it has not logged in yet"
    assert await login.get_credentials_async() == ("me", "secret")
    await asyncio.sleep(0.7 * credentials._RENEW_S)
    assert not is_old()
    await asyncio.sleep(0.3 * credentials._RENEW_S)
    assert is_old()
    login.get_credentials()
    assert not is_old()
    shared._changed("token")
    assert is_old()
