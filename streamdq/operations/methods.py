"""Methods that are made of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

from ..keys import plain
from ..options import unknown


class UsedOperation:
    """Stands in a class for a method that is made of an operation. Its first use imports the operation and puts the
    method in this object's place. ``find``: the operation. ``make``: turns it into the method.
    """

    def __init__(self, find: Callable[[], Callable[..., Any]], make: Callable[[Any], Callable[..., Any]]) -> None:
        self._find = find
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        operation = self._find()
        method: Any = self._make(operation)  # a thread that comes at the same time makes one that is as good
        as_method(method, operation, self._owner.__module__, f"{self._owner.__qualname__}.{self._name}")
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


def plain_arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a method; of texts whose class may write itself otherwise, the plain texts."""
    for one in (*args, *kwargs.values()):
        if isinstance(one, str) and type(one) is not str:
            return [_plain(arg) for arg in args], {name: _plain(arg) for name, arg in kwargs.items()}
    return args, kwargs


def misused(
    operation: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: TypeError
) -> TypeError:
    """What a method raises whose operation can't be called with these arguments. ``error``: Python's, which may name a
    function that the operation passes them to.
    """
    given = signature(operation)
    store, *options = given.parameters
    name = operation.__name__
    if all(one.kind is not Parameter.VAR_KEYWORD for one in given.parameters.values()):
        for option in kwargs:
            if option not in options:
                return unknown(name, option, options)
    try:
        given.bind(store, *args, **kwargs)
    except TypeError as wrong:
        return error if str(error).startswith(f"{name}()") else TypeError(f"{name}(): {wrong}")
    return error


def _plain(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


def as_method(
    method: Any, operation: Callable[..., Any], module: str, qualname: str, returns: str | None = None
) -> None:
    """Gives a method what its users see: its own name, the operation's docstring, and its signature with ``self``
    instead of the store. ``returns``: the result; None: that of the operation.
    """
    given = signature(operation)
    store, *rest = given.parameters.values()
    returns = returns or _result_of(given.return_annotation)
    method.__module__, method.__qualname__, method.__name__ = module, qualname, qualname.rpartition(".")[2]
    method.__doc__, method.__wrapped__ = operation.__doc__, operation
    method.__annotations__ = {one.name: one.annotation for one in rest} | {"return": returns}
    method.__signature__ = given.replace(
        parameters=[store.replace(name="self", annotation=Parameter.empty), *rest], return_annotation=returns
    )


def _result_of(annotation: str) -> str:
    """``Op[Job]`` is ``Job`` for who calls it."""
    return annotation.removeprefix("Op[").removesuffix("]") if annotation.startswith("Op[") else annotation
