"""How far a group is with a job, as it is kept: each phase, as it is written now and as release 0.1 wrote it."""

from __future__ import annotations

import pytest

from streamdq.store.jobs.progress import Phase, Progress, progress_field, progress_in

MAIN, OWN = "1795325257596-0", "1795325257612-0"
CLAIMED_MS, LATER_MS = 1_800_000_000_000, 1_800_000_060_000

OF_RELEASE_0_1 = {
    b"r|1|0|0|1795325257596-0|000000000001||1800000000000|1800000060000|vm-2781-a5e479": Progress(
        Phase.RUNNING, 1, 0, 0, 0, MAIN, "000000000001", "", CLAIMED_MS, False, LATER_MS, consumer="vm-2781-a5e479"
    ),
    b"r|2|0|0|1795325257596-0|f00000000002|1795325257612-0|1800000000000|1800000060000|vm-2781-a5e479": Progress(
        Phase.RUNNING, 2, 0, 0, 0, MAIN, "f00000000002", OWN, CLAIMED_MS, False, LATER_MS, consumer="vm-2781-a5e479"
    ),
    b"w|1|1|0|1795325257596-0|f00000000001|||1800000060000|ValueError: no|such thing": Progress(
        Phase.WAITING, 1, 0, 1, 0, MAIN, "f00000000001", "", due_ms=LATER_MS, error="ValueError: no|such thing"
    ),
    b"d|1|0|0|1795325257596-0|000000000003||||buried|a|b reason": Progress(
        Phase.DEAD, 1, 0, 0, 0, MAIN, "000000000003", "", reason="buried", error="a|b reason"
    ),
    b"x|0|0|0|1795325257596-0|||||": Progress(Phase.ENDED_IN_GROUP, 0, 0, 0, 0, MAIN, "", ""),
}  # fmt: skip

SINCE = {
    b"r|2+3|1|4|-|f00000000002|1795325257612-0|-1800000000000|1800000060000|vm-1|1800000060000": Progress(
        Phase.RUNNING, 2, 3, 1, 4, "-", "f00000000002", OWN, CLAIMED_MS, True, LATER_MS, False, LATER_MS, "vm-1"
    ),
    "w|0+1|0|0|-|f00000000002||||CallbackSnoozed: ü".encode(): Progress(
        Phase.WAITING, 0, 1, 0, 0, "-", "f00000000002", "", error="CallbackSnoozed: ü"
    ),
    b"d|5+2|4|5|-|f00000000002||||crashed|": Progress(
        Phase.DEAD, 5, 2, 4, 5, "-", "f00000000002", "", reason="crashed"
    ),
    b"x|0|0|0|-|||||cancelled": Progress(Phase.ENDED_IN_GROUP, 0, 0, 0, 0, "-", "", "", reason="cancelled"),
}  # fmt: skip


@pytest.mark.parametrize(("value", "progress"), (OF_RELEASE_0_1 | SINCE).items())
def test_each_phase(value: bytes, progress: Progress) -> None:
    assert progress_in(value) == progress


@pytest.mark.parametrize("value", [b"", b"q|1|0|0|-|1||||", b"r|1|0|0|-|1||||vm", b"w|1|0|0|-|1|||", b"w||0|0|-|1||||"])
def test_what_is_no_progress_is_not_read(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"unpack|int|Phase"):
        progress_in(value)


def test_where_an_attempt_was_claimed() -> None:
    first, own = (progress_in(value) for value in list(OF_RELEASE_0_1)[:2])
    assert (first.claimed_from, own.claimed_from) == (MAIN, OWN)


def test_the_field_names_the_group_and_the_job() -> None:
    assert progress_field("default", "ä|b") == "default\x1fä|b"
