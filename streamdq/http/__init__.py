"""streamdq over HTTP: the API for any language, and the web page. Needs ``pip install 'streamdq[http]'``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput

if TYPE_CHECKING:
    from .app import create_app
    from .auth import Tokens

__all__ = ["Tokens", "create_app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import app, auth
    except ImportError as error:
        raise InvalidInput(
            f"the HTTP server needs {error.name or 'more packages'}: pip install 'streamdq[http]'"
        ) from None
    return app.create_app if name == "create_app" else auth.Tokens
