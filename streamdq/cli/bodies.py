"""Commands on stored bodies: keys for their encryption."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import terminal
from ..clock import wall_now
from ..codec.encrypt import new_key
from .common import commands

app = commands()
BODIES = commands(help="Keys for encrypted bodies.")
app.add_typer(BODIES, name="bodies")


@BODIES.command()
def key(
    id: Annotated[
        str | None, typer.Argument(help="The key's id; this month if not given, such as 2026-11", show_default=False)
    ] = None,
) -> None:
    """Print a new key for encrypted bodies.

    \b
    STREAMDQ_BODY_KEYS="$(streamdq bodies key 2026-12) $OLD_KEYS"

    The first key of STREAMDQ_BODY_KEYS (or of the file in STREAMDQ_BODY_KEYS_FILE) encrypts, all of them decrypt. Who
    has a key can read the bodies; who lost it can't.
    """  # noqa: D301 - typer reads the mark
    terminal.say(new_key(id or f"{wall_now():%Y-%m}"))
