"""How a job is kept: what goes in comes out."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamdq.errors import InvalidInput
from streamdq.job.job import Job, NewJob, check_id
from streamdq.store.jobs.records import (
    Encoded,
    Record,
    encode,
    encode_when,
    fields_in,
    job_in,
    nonce_of,
    record_in,
    rest_of,
)

LIMIT = 256 * 1024
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
NOW_MS, DUE_MS = 1_800_000_000_000, 1_800_000_030_000

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def completed(encoded: Encoded) -> bytes:
    """The record, as the enqueue script makes it."""
    return b"00000000002a%d\n%d\n%s" % (DUE_MS, NOW_MS, encoded.rest)


def round_trip(new: NewJob) -> Job:
    encoded = encode(new, LIMIT)
    return job_in("t", encoded.id, completed(encoded))


# As they are in Redis.
PLAIN = b'0000000000011800000000000\n1800000000000\n\n\nT9T9\n\n\n{"a":1,"s":"x\\ny|"}'
FULL = (
    b"0000000000021800000030000\n1800000000000\n90000\n3600000\nyR-X\n5000ms 60000ms\n"
    b'https://example.com/x?a=b\n{"a":"\xc3\xbc"}'
)


def test_a_record() -> None:
    assert record_in(PLAIN) == Record(
        "000000000001", NOW_MS, NOW_MS, None, None, "T9T9", None, None, b'{"a":1,"s":"x\\ny|"}'
    )
    assert record_in(FULL) == Record(
        "000000000002", DUE_MS, NOW_MS, 90_000, 3_600_000, "yR-X", "5000ms 60000ms", "https://example.com/x?a=b",
        b'{"a":"\xc3\xbc"}',
    )  # fmt: skip
    assert job_in("t", "plain", PLAIN) == Job("t", "plain", b'{"a":1,"s":"x\\ny|"}', NOW_MS, NOW_MS)
    assert job_in("t", "full", FULL) == Job(
        "t", "full", b'{"a":"\xc3\xbc"}', DUE_MS, NOW_MS, 90_000, "5000ms 60000ms", "https://example.com/x?a=b",
        3_600_000,
    )  # fmt: skip
    assert (nonce_of(PLAIN), nonce_of(FULL)) == ("T9T9", "yR-X")


def test_a_record_is_written_like_this() -> None:
    new = NewJob({"a": "ü"}, id="full", ttr="90s", expire="1h", retry="5s,1m", url="https://example.com/x?a=b")
    encoded = encode(new, LIMIT)
    assert completed(encoded).replace(encoded.nonce.encode(), b"yR-X") == FULL.replace(b"000000000002", b"00000000002a")


@pytest.mark.parametrize("record", [PLAIN, FULL])
def test_what_restore_gets_is_the_record_from_created_on(record: bytes) -> None:
    assert record_in(record).from_created() == record.partition(b"\n")[2]


@pytest.mark.parametrize("record", [b"", b"000000000001", PLAIN.rpartition(b"\n")[0], PLAIN.replace(b"18", b"x", 1)])
def test_what_is_no_record_is_not_read(record: bytes) -> None:
    for read in (record_in, lambda record: job_in("t", "j", record)):
        with pytest.raises(ValueError, match=r"unpack|int"):
            read(record)


@pytest.mark.parametrize("when", [{}, {"delay": "30s"}, {"at": DUE_MS}])
def test_the_job_that_enqueue_made_is_the_one_that_is_kept(when: dict[str, Any]) -> None:
    encoded = encode(NewJob({"a": 1}, id="j", ttr=9, retry="5s", url="http://a", expire=7, **when), LIMIT)
    due_ms = DUE_MS if when else NOW_MS
    kept = b"00000000002a%d\n%d\n%s" % (due_ms, NOW_MS, encoded.rest)
    assert encoded.job("t", NOW_MS) == job_in("t", "j", kept)


@given(json_values.filter(lambda value: value is not None and value != ""))
def test_any_json_body_comes_back(body: Any) -> None:
    assert round_trip(NewJob(body)).body == body


def test_every_field_comes_back() -> None:
    new = NewJob({"a": 1}, delay="30s", id="j", ttr="10s", retry="15s 3m", url="https://example.org/a?b=c", expire=5)
    job = round_trip(new)
    assert (job.id, job.topic, job.due_ms, job.created_ms) == ("j", "t", DUE_MS, NOW_MS)
    assert (job.ttr_ms, job.retry, job.url, job.expire_ms) == (10_000, "15000ms 180000ms", new.url, 5_000)
    assert job.due == datetime.fromtimestamp(DUE_MS / 1000, UTC)
    assert job.created == datetime.fromtimestamp(NOW_MS / 1000, UTC)


@pytest.mark.parametrize("url", [None, "https://example.org/a"])
def test_a_key_is_in_the_record_and_in_what_restore_gets(url: str | None) -> None:
    encoded = encode(NewJob({"a": 1}, id="j", url=url, key="merchant-7"), LIMIT)
    record = completed(encoded)
    assert encoded.key == "merchant-7"
    assert (record_in(record).key, record_in(record).url) == ("merchant-7", url)
    assert (job_in("t", "j", record).key, job_in("t", "j", record).url) == ("merchant-7", url)
    assert encoded.job("t", NOW_MS).key == "merchant-7"
    assert record_in(record).from_created() == record.partition(b"\n")[2]
    assert rest_of(**fields_in(encoded.rest)) == encoded.rest


@pytest.mark.parametrize("key", ["", " ", ".", "a\x1fb", "a\nb", "x" * 201, 5])
def test_what_is_no_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^key: "):
        encode(NewJob(1, key=key), LIMIT)


def test_what_was_not_given_is_none() -> None:
    job = round_trip(NewJob(1))
    assert (job.ttr_ms, job.retry, job.url, job.expire_ms, job.key) == (None, None, None, None, None)
    assert round_trip(NewJob(1, retry=[])).retry == "none"


@pytest.mark.parametrize(
    ("given", "rate", "at_most"),
    [({}, False, False), ({"unique_for": "1m"}, False, False), ({"rate_of_id": "3/h"}, True, False),
     ({"at_most": "1m"}, False, True)],
)  # fmt: skip
def test_whether_it_has_a_rate_or_a_latest_time(given: dict[str, Any], rate: bool, at_most: bool) -> None:
    encoded = encode(NewJob(1, id="j", **given), LIMIT)
    assert (encoded.has_rate, encoded.has_at_most) == (rate, at_most)


def test_random_ids_differ_and_are_valid() -> None:
    ids = {encode(NewJob(1), LIMIT).id for _ in range(1000)}
    assert len(ids) == 1000
    assert {check_id(id) for id in ids} == ids
    assert {len(id) for id in ids} == {14}, "the nonce has the letters after these"
    assert not [id for id in ids if id.startswith("-")], "a command would take it for an option"


def test_the_nonce_tells_calls_apart() -> None:
    encoded = encode(NewJob(1, id="j"), LIMIT)
    assert nonce_of(completed(encoded)) == encoded.nonce
    assert len({encode(NewJob(1, id="j"), LIMIT).nonce for _ in range(100)}) > 95


def test_a_chosen_id_s_nonce_has_60_random_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two callers with the same nonce and id would take one job for both of theirs."""
    bits = [bit for byte in range(15) for bit in (1 << 8 * byte, 128 << 8 * byte)]
    nonces = set()
    for value in bits:
        monkeypatch.setattr("os.urandom", lambda size, value=value: value.to_bytes(size))
        nonces.add(encode(NewJob(1, id="j"), LIMIT).nonce)
    assert {len(nonce) for nonce in nonces} == {10}
    assert len(nonces) == 16, "each of 60 bits counts: the first 7.5 bytes"


def test_when() -> None:
    assert encode_when(None, None) == "+0"
    assert encode_when("1.5s", None) == "+1500"
    assert encode_when(None, DUE_MS) == str(DUE_MS)
    with pytest.raises(InvalidInput, match="not both"):
        encode_when(1, DUE_MS)


@pytest.mark.parametrize(
    "fields",
    [
        {"delay": -1}, {"delay": math.nan}, {"delay": 1e12}, {"delay": "soon"}, {"at": NAIVE},
        {"at": 1_800_000_000}, {"ttr": 0}, {"ttr": -1}, {"retry": "x"}, {"url": ""}, {"url": " "}, {"expire": -1},
        {"id": ""}, {"id": "x" * 300}, {"delay": 1, "at": DUE_MS},
    ],
)  # fmt: skip
def test_new_jobs_that_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        encode(NewJob({"a": 1}, **fields), LIMIT)
