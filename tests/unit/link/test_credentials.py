"""Where a credential provider is found, and when a connection's login is old."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.credentials import UsernamePasswordCredentialProvider

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
