"""Methods that are made of operations."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any


def as_method(method: Any, operation: Callable[..., Any]) -> None:
    """Gives a method the operation's signature, with ``self`` instead of the store."""
    given = signature(operation)
    store, *rest = given.parameters.values()
    method.__signature__ = given.replace(parameters=[store.replace(name="self", annotation=Parameter.empty), *rest])
