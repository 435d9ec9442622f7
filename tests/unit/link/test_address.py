"""What a URL may say, and where what it says goes."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq import InvalidInput
from streamdq.link.address import parse_url

LOGIN = {"username": "app", "password": "p@ss"}
TLS = {"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}
QUERY = "ssl_ca_certs=/ca.pem&ssl_check_hostname=false"


@pytest.mark.parametrize(
    ("url", "tls", "options", "logins"),
    [
        ("redis+cluster://a:1,b:2", False, {}, []),
        ("redis+cluster://app:p%40ss@a:1,b:2/0", False, LOGIN, []),
        (f"rediss+cluster://app:p%40ss@a:1,b:2?{QUERY}", True, LOGIN | TLS, []),
        ("redis+sentinel://a:1,b:2/shop", False, {}, [{}]),
        ("redis+sentinel://app:p%40ss@a:1,b:2/shop?db=3", False, {**LOGIN, "db": 3}, [LOGIN, {}]),
        (
            f"rediss+sentinel://app:p%40ss@a:1,b:2/shop?{QUERY}&sentinel_username=s&sentinel_password=t%20u",
            True, LOGIN | TLS, [{"username": "s", "password": "t u"}],
        ),
    ],
)  # fmt: skip
def test_a_url_of_several_hosts(url: str, tls: bool, options: dict[str, Any], logins: list[dict[str, Any]]) -> None:
    found = parse_url(url)
    assert found.hosts == [("a", 1), ("b", 2)]
    assert (found.tls, found.options, found.sentinel_logins) == (tls, options, logins)
    assert "p@ss" not in found.describe() + repr(found)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://h:1/0?protocol=3", "'protocol'"),
        ("redis://h:1/0?decode_responses=true", "'decode_responses'"),
        ("redis://h:1/0?credential_provider=x", "'credential_provider'"),
        ("redis://h:1/0?socket_timeout=1", "'socket_timeout'"),
        ("redis://h:1/0?ssl_ca_certs=x", "begin it with rediss"),
        ("redis+cluster://h:1?ssl=true", "begin it with rediss"),
        ("redis+cluster://h:1?db=0", "'db'; it may have none"),
        ("redis+cluster://h:1/3", "a Cluster has only 0"),
        ("redis+sentinel://h:1/shop?ssl_certfile=x", "begin it with rediss"),
        ("redis+sentinel://h:1/shop?db=three", "can't use an option"),
        ("redis+sentinel://h:1/shop?username=x", "'username'; it may have db, sentinel_password, sentinel_username"),
        ("rediss+sentinel://h:1", "needs the service's name: rediss+sentinel://host:port/NAME"),
        ("rediss+cluster://h", "write rediss+cluster://host:port,host:port"),
        ("unix:///x?protocol=3", "'protocol'; it may have db, password, username"),
    ],
)
def test_what_would_be_ignored_or_override_is_refused(url: str, why: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_url(url)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:1/0", "redis://h:1?db=3", "redis://h:1?username=u&password=p", f"rediss://h:1/0?{QUERY}",
        "rediss://h:1?ssl_cert_reqs=required&ssl_min_version=771", "unix:///x?db=2", "redis://:p@h",
    ],
)  # fmt: skip
def test_all_else_passes(url: str) -> None:
    assert parse_url(url).kind == "node"
