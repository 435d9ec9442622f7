"""streamdq over HTTP: the API for any language, and the operations page. Needs ``pip install 'streamdq[http]'``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput

if TYPE_CHECKING:
    from .app import create_app
    from .auth import Role, Tokens
    from .pages.signed_in import SignedInUser
    from .server import serve

__all__ = ["Role", "SignedInUser", "Tokens", "create_app", "serve"]
_WHERE = {
    "Role": "auth", "SignedInUser": "pages.signed_in", "Tokens": "auth", "create_app": "app", "serve": "server",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    except ImportError as error:
        raise InvalidInput(f"the HTTP server needs {error.name or 'more'}: pip install 'streamdq[http]'") from None
