"""Settings: the environment, a file, and what is wrong with them; Retry-After; what a job of the past carries."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamdq import Retry
from streamdq.callback import CallbackSettings
from streamdq.callback.retry_after import retry_after_s
from streamdq.errors import InvalidInput
from tests.callback.test_signing import A, B


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMDQ_CALLBACK_ALLOW", "10.0.0.0/8, hooks.internal fd00::/8")
    monkeypatch.setenv("STREAMDQ_CALLBACK_SECRETS", f'{{"shop.example": ["{A}", "{B}"]}}')
    monkeypatch.setenv("STREAMDQ_CALLBACK_TIMEOUT_S", "5")
    found = CallbackSettings.load()
    assert found.allow == ("10.0.0.0/8", "hooks.internal", "fd00::/8")
    assert found.plain_secrets() == {"shop.example": [A, B]}
    assert found.timeout_s == 5
    assert A not in repr(found)


def test_a_file_comes_before_the_environment_and_what_is_given_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMDQ_CALLBACK_TIMEOUT_S", "5")
    monkeypatch.setenv("STREAMDQ_CALLBACK_PER_HOST", "7")
    file = tmp_path / "callback.toml"
    file.write_text(f'timeout_s = 3\nallow = ["a.internal"]\n[secrets]\n"shop.example" = ["{A}"]\n')
    found = CallbackSettings.load(file, allow=("b.internal",))
    assert (found.timeout_s, found.per_host, found.allow) == (3, 7, ("b.internal",))
    assert found.plain_secrets() == {"shop.example": [A]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timeout_s = 0", "timeout_s"),
        ("retry_after_s = 1e12", "retry_after_s"),
        ("per_hosts = 3", "per_hosts"),
        ('ca_file = "/no/such/file"', "ca_file"),
        (f'secrets = {{ "shop.example" = "{A}" }}', "secrets.shop.example"),
        (f'secrets = "{A}"', "secrets"),
        (f"{A} = = 1", "not TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_reported_without_its_secrets(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "callback.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=message) as refused:
        CallbackSettings.load(file)
    assert A not in str(refused.value)


def test_a_ca_file_without_certificates(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    with pytest.raises(InvalidInput, match=r"ca_file: .*ca\.pem holds no certificates"):
        CallbackSettings.load(ca_file=tmp_path / "ca.pem")


def test_a_file_that_is_not_there_and_an_environment_that_is_no_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="can't be read: No such file"):
        CallbackSettings.load(tmp_path / "none.toml")
    with pytest.raises(InvalidInput, match="can't be read: File too large"):
        CallbackSettings.load(Path("/dev/zero"))
    monkeypatch.setenv("STREAMDQ_CALLBACK_SECRETS", A)
    with pytest.raises(InvalidInput, match="secrets: this is no JSON") as refused:
        CallbackSettings.load()
    assert A not in str(refused.value)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "1.5"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "١٢"}, None),
        ({"Retry-After": " 30 "}, 30),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": "9" * 5000}, 600),
        ({"Retry-After": "Thu, 01 Jan 1970 00:17:10 GMT"}, 30),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0),
        ({"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}, 600),
        ({"Retry-After": "Fri, 99 Dec 9999 23:59:59 GMT"}, None),
        ({"Retry-After": "Thu, 01 Jan 1970 05:00:30 GMT", "Date": "Thu, 01 Jan 1970 05:00:00 GMT"}, 30),
        ({"Retry-After": "Thu, 01 Jan 1970 00:17:10 GMT", "Date": "lately"}, 30),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """Now is 1000 s after 1970 began."""
    assert retry_after_s(headers, 1000, 600) == seconds


def test_at_least_is_a_duration() -> None:
    assert Retry(at_least="2m").at_least_ms == 120_000
    with pytest.raises(InvalidInput, match="at_least"):
        Retry(at_least="soon")
