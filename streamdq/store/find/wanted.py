"""What the scripts that search look for, in the form that they take (lua/lib/search.lua, lua/lib/search_groups.lua)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Whole = Literal["job", "record", "head", "plan"]


class OfGroup(NamedTuple):
    """A condition on what a group knows of a job. ``type``: of the value; "" is one that no field has."""

    name: str
    operator: str
    type: Literal["number", "string", ""]
    value: str


class Wanted(NamedTuple):
    """``whole``: how much of a match to return. ``due``: first and last time, in ms. ``texts``: of records."""

    whole: Whole = "plan"
    state: str = ""
    group: str = ""
    prefix: str = ""
    due: tuple[int, int] | None = None
    of_groups: Sequence[OfGroup] = ()
    texts: Sequence[str] = ()

    def args(self) -> tuple[str | int, ...]:
        due = self.due or ("", "")
        conditions = (part for condition in self.of_groups for part in condition)
        return (
            self.whole, self.state, self.group, self.prefix, *due, len(self.of_groups), *conditions, *self.texts,
        )  # fmt: skip
