"""An erasure in Redis, in a dump and among large bodies in a bucket, killed with -9 at each step and run again."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import fsspec
import pytest

from streamdq import Queue, erasure
from streamdq.codec import offload
from streamdq.dump.open_folder import open_folder
from streamdq.operations.jobs.large_bodies import sweep
from streamdq.queue import carry_out, store_of
from tests.crash.dump_steps import bodies_in
from tests.crash.test_dump import Run, finish, no_strays, runner
from tests.crash.worker_processes import IN_TURNS
from tests.dumps import dumped
from tests.redis.harness import taken
from tests.servers import Server

if TYPE_CHECKING:
    from tests.s3 import Bucket

pytestmark = IN_TURNS


@pytest.fixture(autouse=True)
def _all_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """What killed runs leave in the bucket would stay for a day."""
    monkeypatch.setattr("streamdq.dump.remote.ABANDONED_AFTER", timedelta(days=-1))


def test_in_a_bucket(newest: Server, bucket: Bucket) -> None:
    with runner("s3fs", "streamdq.erasure") as run:
        # Each second step, as nothing that lasts is done between the end of a call and the next one's beginning.
        steps = next(step for step in range(2, 100, 2) if ends_after(run, newest, f"{bucket.url}/{step}/dump", step))
    assert steps > 20


def ends_after(run: Run, server: Server, path: str, step: int) -> bool:
    """Kills an erasure at the step, and shows that the next one completes it. True: it came to its end before."""
    server.flush()
    codec, folder = bodies_in(path), open_folder(path)
    with Queue(server.url, codec=[codec]) as queue, pytest.MonkeyPatch.context() as patched:
        queue.configure("t", create=True, result="1d")
        for name in ("jane", "jim"):
            put(queue, name)
        finish(folder, server)
        assert len(files(path)) == 2 * 4

        code = run("erase", path, server.url, step)

        assert code in (0, -signal.SIGKILL)
        assert "jim-later" in {job.id for job in queue.find("t")}
        erased = erasure.erase(queue, key="jane", dumps=[path])
        assert erased.whole
        assert code or not erased.found
        assert {row["key"] for row in dumped(folder)} == {"jim"}
        assert no_strays(folder)
        patched.setattr(offload, "wall_now", lambda: datetime.now(UTC) + timedelta(days=2))
        carry_out(queue, sweep(store_of(queue), timedelta(days=1), delete=True))
        left = files(path)
        assert len(left) == 4
        assert all("jim" in file for file in left)
        job = queue.get("t", "jim-later")
        assert job is not None
        assert job.body == body_of("jim"), "the bodies of others can still be read"
        assert queue.audit().balanced
        assert not erasure.erase(queue, key="jane", dumps=[path]).found
    return code == 0


def body_of(name: str) -> dict[str, str]:
    return {"email": name, "text": "large " * 50}


def put(queue: Queue, name: str) -> None:
    """A job that has ended, with a result; one that was retried; one that is dead; and one that waits."""
    queue.enqueue("t", 1, id=f"{name}-done", key=name)
    taken(queue, "t").finish(result=body_of(name))
    for id in ("again", "dead", "later"):
        queue.enqueue("t", body_of(name), id=f"{name}-{id}", key=name, delay="1h" if id == "later" else None)
        if id != "later":
            claim = taken(queue, "t")
            claim.fail("no", "1h") if id == "again" else claim.bury("no")


def files(path: str) -> list[str]:
    """Where large bodies and results are."""
    system, root = fsspec.core.url_to_fs(f"{path}-bodies")
    system.invalidate_cache()
    return [str(found) for found in system.find(root)]
