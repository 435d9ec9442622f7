"""A user whom somebody else has signed in: the application around the page, or a proxy in front of it. The user is in
the request's ASGI scope, which nothing that comes over the network gets into. The page asks no token of them then; the
API does.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from fastapi import Request

from ...errors import InvalidInput
from ..auth import Identity, Role
from ..scope import ALL, Scope

KEY = "streamdq.signed_in_user"
"""Where in the scope it is."""


@dataclass(frozen=True, slots=True)
class SignedInUser:
    """A user of the page. ``home``: a path outside of the page that its head links to, with the text ``home_name``;
    empty: none. ``topics`` and ``groups``: those of the user, by default all.
    """

    name: str
    roles: frozenset[Role]
    home: str = ""
    home_name: str = ""
    topics: Scope = ALL
    groups: Scope = ALL

    def __post_init__(self) -> None:
        # "admin" is in the text "no admin", and among the keys of {"admin": False}.
        if not isinstance(self.roles, set | frozenset):
            raise InvalidInput(f"SignedInUser: roles is a set of Role, not a {type(self.roles).__name__}")

    def named(self, name: str) -> SignedInUser:
        return replace(self, name=name)

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.roles, self.topics, self.groups)


UserOf = Callable[[Request], SignedInUser | Awaitable[SignedInUser | None] | None]


def signed_in_user(request: Request) -> SignedInUser | None:
    """The user, as far as ``look_up`` or the application has put one into the scope."""
    found: SignedInUser | None = request.scope.get(KEY)
    return found


async def look_up(request: Request, user_of: UserOf | None) -> None:
    """Puts the user into the scope, unless the application has."""
    if user_of is not None and KEY not in request.scope:
        found = user_of(request)
        request.scope[KEY] = await found if inspect.isawaitable(found) else found
