"""Commands on stored bodies: keys for their encryption, dictionaries, and the files of large ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from .. import terminal
from ..codec.dictionary import DICTIONARY_BYTES, Dictionary
from ..codec.encrypt import new_key
from ..errors import BodyUnreadable, InvalidInput
from ..job.job import Job
from ..operations.large_bodies import sweep as run_sweep
from ..private_files import private
from ..queue import carry_out, store_of
from ..times.clock import wall_now
from ..times.durations import to_ms
from .common import Json, Topic, answer, commands, open_queue

_LEAST_AGE_MS = 3_600_000

app = commands()
BODIES = commands(help="Encryption keys, dictionaries, and files of bodies.")
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
def dictionary(
    context: typer.Context,
    topic: Topic,
    file: Annotated[Path, typer.Argument(help="A new file for it.", show_default=False)],
    size: Annotated[int, typer.Option(help="At most so many bytes.")] = DICTIONARY_BYTES,
    samples: Annotated[int, typer.Option(help="Make it of the bodies of so many jobs.", min=1)] = 5_000,
    as_json: Json = False,
) -> None:
    """Make a dictionary for small bodies of the jobs that a topic has.

    \b
    STREAMDQ_CODEC=dict STREAMDQ_BODY_DICTIONARIES="2026-12.dict 2026-11.dict"

    The first file compresses, all of them decompress. A body can't be read without its dictionary, so every process
    needs the file, as long as jobs have such bodies. It contains pieces of bodies in the clear; encrypted ones are left
    out.
    """  # noqa: D301 - typer reads the mark
    with open_queue(context) as queue:
        bodies = list(_legible(queue.find(topic, limit=samples)))
    made = Dictionary.train(bodies, size)
    try:
        with open(file, "xb", opener=private) as out:
            out.write(made)
    except OSError as error:
        raise InvalidInput(f"file: can't make {file}: {error.strerror}") from None
    plain, stored = Dictionary(made).tried(bodies)
    found = {"file": str(file), "bytes": len(made), "samples": len(bodies), "body_bytes": plain, "stored_bytes": stored}
    text = f"{file}: {len(made):,} bytes, of {len(bodies):,} bodies; {plain:,.0f} bytes on average become {stored:,.0f}"
    answer(as_json, found, text)


def _legible(jobs: Iterable[Job]) -> Iterator[bytes]:
    for job in jobs:
        try:
            if not job.is_hidden:
                yield job.json
        except BodyUnreadable:
            continue  # nothing can be learned from it here


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
