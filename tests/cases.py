"""Many small cases in one test."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def each(name: str, values: Iterable[Any] | Callable[[], Iterable[Any]]) -> Callable[[Callable[..., None]], Any]:
    """As ``parametrize``, but all cases are one test, which fails with every case that fails. For cases that take no
    time and leave nothing behind: a test of its own takes milliseconds. ``name``: of the parameter, or of several,
    with commas. ``values``: a function that returns them is called when the test runs.
    """
    names = [part.strip() for part in name.split(",")]

    def decorate(test: Callable[..., None]) -> Any:
        @wraps(test)
        def checked(**others: Any) -> None:
            failed: list[BaseException] = []
            for value in values() if callable(values) else values:
                case = dict(zip(names, value, strict=True)) if len(names) > 1 else {name: value}
                try:
                    test(**case, **others)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(", ".join(f"{of}: {what!r}" for of, what in case.items()))
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{test.__name__}, by {name}", failed)

        signature = inspect.signature(test)
        kept = [parameter for parameter in signature.parameters.values() if parameter.name not in names]
        checked.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return checked

    return decorate
