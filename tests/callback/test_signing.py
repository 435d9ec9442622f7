"""Signatures, and which secret signs what."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook
from yarl import URL

from streamdq.callback.signing import Signer, webhook_id
from streamdq.errors import InvalidInput


def secret(letter: str, size: int = 32) -> str:
    return "whsec_" + base64.b64encode(letter.encode() * size).decode()


A, B, C, D = (secret(letter) for letter in "abcd")


def signed_with(signer: Signer, url: str) -> str:
    """The letters of the secrets that the signatures verify with, in order."""
    headers = signer.headers(URL(url), "j1", '{"a":1}', time.time())
    found = ""
    for signature in headers.get("webhook-signature", "").split():
        for letter in "abcd":
            if Webhook(secret(letter)).sign("j1", _sent(headers), '{"a":1}') == signature:
                found += letter
    return found


def _sent(headers: dict[str, str]) -> datetime:
    return datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)


def test_the_specification_s_own_example() -> None:
    """From its reference implementations' tests."""
    signer = Signer({"example.com": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]})
    headers = signer.headers(
        URL("https://example.com/"), "msg_p5jXN8AQM9LWM0D4loKWxJek", '{"test": 2432232314}', 1614265330
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    ("url", "letters"),
    [
        ("https://shop.example/", "ab"),
        ("https://SHOP.example:443/x", "ab"),
        ("http://shop.example/", "ab"),
        ("https://shop.example:8443/", "c"),
        ("https://shop.example/hooks", "d"),
        ("https://shop.example/hooks/", "d"),
        ("https://shop.example/hooks/a?b=c", "d"),
        ("https://shop.example/hooks/../x", "ab"),
        ("https://shop.example/%68ooks/a", "d"),
        ("https://shop.example/hooks-of-another", "ab"),
        ("https://shop.example/hooks/deep/er", "b"),
        ("http://shop.example/hooks/", "ab"),
        ("https://other.example/", ""),
        ("https://sub.shop.example/", ""),
        ("https://shop.example.evil.example/", ""),
        ("https://bücher.example/", "a"),
    ],
)
def test_the_longest_that_fits_signs(url: str, letters: str) -> None:
    signer = Signer(
        {
            "shop.example": [A, B],
            "shop.example:8443": [C],
            "https://shop.example/hooks": [D],
            "https://shop.example/hooks/deep/": [B],
            "bücher.example": [A],
        }
    )
    assert signed_with(signer, url) == letters


@pytest.mark.parametrize(
    ("id", "sent"),
    [
        ("order-42_A~z", "order-42_A~z"),
        ("order.42", "order%2E42"),
        ("a/b c%", "a%2Fb%20c%25"),
        ("ü€", "%C3%BC%E2%82%AC"),
        ("a.1700000000.b", "a%2E1700000000%2Eb"),
    ],
)
def test_ids_stand_in_a_header_and_hold_no_dot(id: str, sent: str) -> None:
    assert webhook_id(id) == sent


@pytest.mark.parametrize(
    "wrong",
    [
        "", "whsec_", "whsec_!!!!", "whsec_" + "A" * 33, A.removeprefix("whsec_"), secret("e", 23), secret("e", 65),
        "whsk_" + "A" * 44,
    ],
)  # fmt: skip
def test_what_is_no_secret_is_an_error_that_does_not_tell_it(wrong: str) -> None:
    with pytest.raises(InvalidInput, match=r"secrets\.shop\.example: one secret is not whsec_ and 24 to 64") as refused:
        Signer({"shop.example": [A, wrong]})
    assert len(wrong) < 7 or wrong not in str(refused.value)


@pytest.mark.parametrize(
    "where",
    ["", "shop.example/hooks", "https://", "ftp://a.example/", "https://a.example/?b", "https://u:p@a.example/"],
)
def test_what_names_no_endpoint_is_an_error(where: str) -> None:
    with pytest.raises(InvalidInput, match="callback settings: secrets") as refused:
        Signer({where: [A]})
    assert "u:p@" not in str(refused.value)


def test_an_endpoint_without_a_secret_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="there is no secret"):
        Signer({"shop.example": []})
