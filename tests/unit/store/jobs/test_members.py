"""A delivery in a bucket and in a ready stream, as it was since release 0.1."""

from __future__ import annotations

import pytest

from streamdq.store.jobs.members import Member, group_key, member_in, split_group_key

MEMBERS = {
    b"000000000002full": Member("000000000002", None, "full"),
    b"f00000000001\x1fdefault\x1fplain": Member("f00000000001", "default", "plain"),
    "00000000002a日本 |".encode(): Member("00000000002a", None, "日本 |"),
    "f00000000001\x1fmail-2.eu\x1fä b".encode(): Member("f00000000001", "mail-2.eu", "ä b"),
    b"000000000002000000000003": Member("000000000002", None, "000000000003"),
}


@pytest.mark.parametrize(("stored", "member"), MEMBERS.items())
def test_members(stored: bytes, member: Member) -> None:
    assert member_in(stored) == member


JUNK = [b"", b"x", b"\x1f", b"\xff\x00" * 20, b"000000000001\x1fno-id", b"000000000001\x1f"]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_another_client_left_is_a_delivery_of_no_job(junk: bytes) -> None:
    member = member_in(junk)
    assert member.group is None
    assert member.id in ("", "\x1f", "\x1fno-id") or "\ufffd" in member.id  # which no job has


def test_names_under_which_jobs_wait_for_keys() -> None:
    assert group_key("mail", "a b") == "mail\x1fa b"
    for stored in (b"mail\x1fa b", b"mail\x1fa b\x1f1700000000000f00000000001id"):
        assert split_group_key(stored) == ("mail", "a b")
