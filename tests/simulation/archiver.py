"""The archiver: moves dead letters between Redis and a database, which no trouble of Redis touches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from streamdq import Queue
from streamdq.archive.archive import Archive
from streamdq.archive.dead_letters import RowState, Wanted

from .threads import in_thread

if TYPE_CHECKING:
    from .world import World


async def keep_archive(world: World) -> None:
    """The main function of the archiver's process."""
    queue = Queue(settings=world.settings)
    with Archive(world.archive_url) as archive:
        while not world.calm:
            await world.pause(3.0)
            back = world.random.random() < 0.4
            world.note_states("back from the archive" if back else "to the archive")
            with world.client("archive"):
                await in_thread(archive.kick if back else archive.store, queue)


def serials_in(world: World) -> set[int]:
    """Of the jobs that only the archive has."""
    with Archive(world.archive_url) as archive:
        rows = archive.rows(Wanted(states=(RowState.STORED, RowState.ARCHIVED)), 100_000)
    return {json.loads(row.dead_letter.body)["n"] for row in rows}
