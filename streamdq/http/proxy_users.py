"""Users of the page whom a proxy has signed in. Headers say who they are, and are believed of certain addresses alone.

The address is that of the connection. ``X-Forwarded-For`` does not count here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ..config import HttpSettings
from ..errors import InvalidInput
from .auth import limits_in, roles_in
from .pages.signed_in import SignedInUser
from .problems import ProblemError
from .refusals import unmapped
from .scope import ALL
from .scope import Scope as Names

PEER = "streamdq.peer"
"""Where in the ASGI scope the address of the connection is."""
_EVERYONE = "*"
_RULE = re.compile(
    r"""(?:"(?P<quoted>[^"]+)"|(?P<group>[^\s"]+))\s+(?P<roles>[a-z]+(?:,[a-z]+)*)(?P<limits>(?:\s+[a-z]+=\S+)*)"""
)
_MAX_NAME_CHARS = 200
_SETTING = "STREAMDQ_HTTP_SSO_ROLES"


@dataclass(frozen=True, slots=True)
class _Rule:
    group: str
    user: SignedInUser  # without a name


@dataclass(frozen=True, slots=True)
class ProxyUsers:
    """Tells who makes a request, by the headers of a proxy."""

    proxies: tuple[IPv4Network | IPv6Network, ...]
    user_header: str
    groups_header: str
    rules: tuple[_Rule, ...]

    @classmethod
    def of(cls, http: HttpSettings) -> ProxyUsers | None:
        """As the settings say; None if they name no proxy.

        Raises:
            InvalidInput: the roles can't be read, or there are none.
        """
        if not http.sso_proxies:
            return None
        proxies = tuple(ip_network(part.strip()) for part in http.sso_proxies.split(",") if part.strip())
        lines = [line.strip() for line in re.split("[\n;]", http.sso_roles) if line.strip()]
        if not lines:
            raise InvalidInput(f"{_SETTING}: say which group has which roles, such as 'ops admin; * viewer'")
        rules = tuple(_rule(line, http.sso_sign_out) for line in lines)
        return cls(proxies, http.sso_user_header, http.sso_groups_header, rules)

    def __call__(self, request: Request) -> SignedInUser | None:
        """None: no header names a user.

        Raises:
            ProblemError: the headers come from another address, or are not those that one proxy sets.
        """
        names = request.headers.getlist(self.user_header)
        return self._user(request, names) if names else None

    def _user(self, request: Request, names: list[str]) -> SignedInUser:
        peer = request.scope.get(PEER, "")
        if not self._is_proxy(peer):
            raise ProblemError("forbidden", f"{self.user_header} is believed of the proxy alone, not of {peer}")
        name = _as_sent(names[0]).strip(" \t")
        if len(names) > 1 or not _is_name(name):
            raise ProblemError("forbidden", f"the proxy must set {self.user_header} once, to a user's name in UTF-8")
        texts = request.headers.getlist(self.groups_header)
        if len(texts) > 1:  # one of them may be the browser's
            raise ProblemError("forbidden", f"the proxy must set {self.groups_header} once, with commas")
        groups = {group.strip(" \t") for text in texts for group in _as_sent(text).split(",")}
        for rule in self.rules:
            if rule.group == _EVERYONE or rule.group in groups:
                return rule.user.named(name)
        return SignedInUser(name, frozenset(), *_home_of(self.rules))

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ip_address(unmapped(peer))
        except ValueError:
            return False
        return any(address in network for network in self.proxies)


def _as_sent(header: str) -> str:
    """Proxies write headers in UTF-8, and Starlette reads each byte as a character. What is no UTF-8 has surrogates,
    which are in no name.
    """
    return header.encode("latin-1").decode("utf-8", "surrogateescape")


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MAX_NAME_CHARS and text.isprintable()


def _home_of(rules: tuple[_Rule, ...]) -> tuple[str, str]:
    return rules[0].user.home, rules[0].user.home_name


def _rule(line: str, sign_out: str) -> _Rule:
    found = _RULE.fullmatch(line)
    if found is None:
        raise InvalidInput(f"{_SETTING}: {line[:80]!r} is not GROUP ROLE[,ROLE…] [topics=NAMES] [groups=NAMES]")
    limits = limits_in(found["limits"], _SETTING)
    if "until_s" in limits:
        raise InvalidInput(f"{_SETTING}: expires is for tokens; the proxy ends sessions")
    topics: Names = limits.get("topics", ALL)
    groups: Names = limits.get("groups", ALL)
    roles = roles_in(found["roles"], _SETTING)
    user = SignedInUser("", roles, sign_out, "Sign out" if sign_out else "", topics, groups)
    return _Rule(found["quoted"] or found["group"], user)


class KnowsPeer:
    """Notes the address of each connection, before the headers of proxies change it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        await self._app({**scope, PEER: client[0] if client else ""}, receive, send)
