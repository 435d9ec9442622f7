"""Commands on stored bodies: keys for their encryption, and the files of large ones."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from .. import terminal
from ..codec.encrypt import new_key
from ..errors import InvalidInput
from ..operations.jobs.large_bodies import sweep as run_sweep
from ..queue import carry_out, store_of
from ..times.clock import wall_now
from ..times.durations import to_ms
from .common import Json, answer, commands, open_queue

_LEAST_AGE_MS = 3_600_000

app = commands()
BODIES = commands(help="Encryption keys, and files of large bodies.")
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


@BODIES.command()
def sweep(
    context: typer.Context,
    older_than: Annotated[str, typer.Option(help="Only files written at least this long ago; 1h is the least.")] = "1d",
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; without it they are only counted.")] = False,
    as_json: Json = False,
) -> None:
    """Delete the files of large bodies that no job names any more.

    Looks at the files in STREAMDQ_OFFLOAD, hour by hour, and asks Redis whether their job still has them. Without --yes
    it deletes nothing. Make sure that --url and --namespace are those of the jobs: in another Redis no job names them.
    """
    age_ms = to_ms(older_than, "older-than")
    if age_ms < _LEAST_AGE_MS:
        raise InvalidInput("older-than: at least 1h: a job may be about to be enqueued with a younger file")
    with open_queue(context) as queue, terminal.progress_bar("files") as bar:
        found = carry_out(queue, run_sweep(store_of(queue), timedelta(milliseconds=age_ms), delete=yes, tell=bar.reach))
    what = f"{found.deleted:,} deleted" if yes else f"{found.unused:,} would be deleted with --yes"
    text = f"{terminal.counted(found.files, 'file')}, {found.used:,} in use, {what} ({found.unused_bytes:,} bytes)"
    answer(as_json, asdict(found), text)
