"""A user whom the application around the page has signed in. It puts them into the request's ASGI scope, which nothing
that comes over the network gets into. The page asks no token of them then; the API does.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from ..auth import Identity, Role

KEY = "streamdq.signed_in_user"
"""Where in the scope it is."""


@dataclass(frozen=True, slots=True)
class SignedInUser:
    """Who it is, and the way back to the application: a path, and what is there."""

    name: str
    roles: frozenset[Role]
    home: str
    home_name: str

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.roles)


def signed_in_user(request: Request) -> SignedInUser | None:
    found: SignedInUser | None = request.scope.get(KEY)
    return found
