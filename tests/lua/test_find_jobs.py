"""find_jobs: searches the shard's jobs, a page at a time."""

from __future__ import annotations

from typing import Any

import pytest

from streamdq.job.job import ENCODED, NewJob
from streamdq.operations.find.conditions import Condition, condition_in
from streamdq.store.find.wanted import Wanted, Whole
from streamdq.store.jobs.records import encode
from streamdq.store.replies import Match
from tests.lua.links import Linked
from tests.lua.shard import START_MS, Shard


def pages_of(shard: Shard, limit: int = 250, whole: Whole = "job", **wanted: Any) -> list[list[Match]]:
    pages, cursor = [], b""
    while cursor != b"0":
        page = shard.run(shard.scripts.find_jobs(shard.k, cursor or b"0", limit, Wanted(whole, **wanted)))
        pages.append(page.matches)
        cursor = page.cursor
    return pages


def found(shard: Shard, **wanted: Any) -> list[str]:
    return sorted(match.id for page in pages_of(shard, **wanted) for match in page)


def put(shard: Shard, **bodies: Any) -> None:
    for id, body in bodies.items():
        shard.call("enqueue", 1, encode(NewJob(body, id=id), 200_000)[:3])


def test_each_state(two: Shard) -> None:
    two.enqueue("delayed", delay="1h")
    two.enqueue("retried", "dead", "running", "ready")
    retried, dead, _ = two.claim(count=3).rows
    two.retry(retried, delay_ms=1000)
    two.bury(dead)
    other, *_ = two.claim(group="b", count=1).rows
    two.finish(other, group="b")
    assert found(two) == ["dead", "delayed", "ready", "retried", "running"]
    assert found(two, state="delayed") == ["delayed", "retried"]
    assert found(two, state="delayed", group="b") == ["delayed"]
    assert found(two, state="ready") == ["dead", "ready", "running"]
    assert found(two, state="ready", group="a") == ["ready"]
    assert found(two, state="running") == found(two, state="running", group="a") == ["running"]
    assert found(two, state="dead", group="a") == ["dead"]
    assert found(two, state="dead", group="b") == []
    assert found(two, state="done") == found(two, state="done", group="b") == ["retried"]
    assert found(two, group="nobody") == []


def test_jobs_that_wait_for_others(shard: Shard) -> None:
    linked = Linked(shard)
    shard.enqueue("p", "q")
    linked.put("waits", "q")
    linked.put("blocked", "p")
    linked.put("runs", "p", on_failure="run", delay="1h")
    shard.bury(next(row for row in shard.claim(2).rows if row.id == b"p"))
    linked.tell()
    assert found(shard, state="waiting") == ["blocked", "waits"]
    assert found(shard, state="blocked") == ["blocked"]
    assert found(shard, state="delayed") == ["runs"]
    assert found(shard, due=(0, 10**15)) == ["p", "q", "runs"], "those that wait have no due time"
    assert found(shard, state="blocked", group="default") == ["blocked"]
    assert found(shard, state="waiting", group="nobody") == []


def test_each_group_waits_for_other_jobs(two: Shard) -> None:
    linked = Linked(two)
    two.enqueue("p")
    linked.put("d", "p")
    assert found(two, state="waiting", group="b") == ["d"]
    assert found(two, state="delayed") == []


def test_a_retry_that_is_ready(shard: Shard) -> None:
    shard.enqueue("j")
    shard.retry(shard.take(), delay_ms=1000)
    shard.clock.advance("1s")
    shard.move()
    assert found(shard, state="ready") == ["j"]
    assert found(shard, state="delayed") == []


def test_how_much_of_a_match(shard: Shard) -> None:
    shard.enqueue("j")
    shard.bury(shard.take())
    record = shard.redis("HGET", shard.k.jobs, "j")
    ((job,),) = pages_of(shard, whole="job")
    ((whole,),) = pages_of(shard, whole="record")
    ((head,),) = pages_of(shard, whole="head")
    ((plan,),) = pages_of(shard, whole="plan")
    assert job.found == shard.run(shard.scripts.get(shard.k, "j"))
    assert (whole.found, whole.record) == (None, record)
    assert (head.found, head.record) == (None, record.rpartition(b"\n")[0] + b"\nnull")
    assert (plan.found, plan.record) == (None, b"")
    assert job.deliveries == whole.deliveries == head.deliveries == plan.deliveries
    nonce = record.split(b"\n")[4].decode()
    assert plan.deliveries == f"000000000001{nonce}|default:d000000000001/1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attempts", 1), ("attempts", 1.5), ("attempts", -(10**400)), ("attempts", 10**400), ("attempts", "1"),
        ("attempts", True), ("attempts", None), ("error", "late"), ("error", "la"), ("error", "lates"), ("error", ""),
        ("error", "Zürich"), ("error", "a|b"), ("error", 7), ("error", None), ("reason", "failed"), ("reason", [1]),
    ],
)  # fmt: skip
def test_what_a_group_knows(shard: Shard, name: str, value: Any) -> None:
    """Each job whose own field fulfills the condition, as it does for a field of a body."""
    fields: dict[str, dict[str, Any]] = {
        "new": {"attempts": 0}, "running": {"attempts": 1}, "no-error": {"attempts": 1},
        "late": {"attempts": 1, "error": "late"}, "odd": {"attempts": 1, "error": "Zürich|a"},
        "dead": {"attempts": 1, "error": "a|b", "reason": "failed"},
        "silent": {"attempts": 1, "error": "", "reason": "failed"},
    }  # fmt: skip
    shard.enqueue("running", "no-error", "late", "odd", "dead", "silent")
    shard.enqueue("new", delay="1h")
    rows = {row.id.decode(): row for row in shard.claim(count=10).rows}
    for id in ("no-error", "late", "odd"):
        shard.retry(rows[id], delay_ms=1000, error=fields[id].get("error", ""))
    for id in ("dead", "silent"):
        shard.bury(rows[id], reason="failed", error=fields[id]["error"])
    for how in ("=", "!=", "<", "<=", ">", ">="):
        condition = Condition((name,), how, value)
        fulfill = [id for id in fields if Condition(("body", name), how, value).holds_in(fields[id])]
        assert found(shard, of_groups=[condition.in_script()]) == sorted(fulfill), how


def test_what_is_asked_of_groups_is_true_in_one_of_them(two: Shard) -> None:
    late, broken = condition_in("error=late").in_script(), condition_in("error=broken").in_script()
    two.enqueue("j")
    two.retry(two.take("a"), delay_ms=5000, error="late")
    two.bury(two.take("b"), group="b", reason="failed", error="broken")
    due = (START_MS + 5000, START_MS + 5000)
    assert found(two, of_groups=[late]) == found(two, of_groups=[broken]) == ["j"]
    assert found(two, of_groups=[late, broken]) == []
    assert found(two, of_groups=[late], state="delayed", due=due) == ["j"]
    assert found(two, of_groups=[broken], state="delayed") == found(two, of_groups=[broken], due=due) == []
    assert found(two, of_groups=[late], group="a") == ["j"]
    assert found(two, of_groups=[late], group="b") == []


def test_when_it_is_due(shard: Shard) -> None:
    shard.enqueue("running", "dead", "retried")
    shard.enqueue("delayed", delay=4)
    rows = {row.id.decode(): row for row in shard.claim(count=10).rows}
    shard.retry(rows["retried"], delay_ms=5000)
    shard.bury(rows["dead"])
    assert found(shard, due=(START_MS, START_MS)) == ["dead", "running"]
    assert found(shard, due=(START_MS + 1, START_MS + 4999)) == ["delayed"]
    assert found(shard, due=(START_MS + 4000, START_MS + 5000)) == ["delayed", "retried"]
    assert found(shard, due=(START_MS + 4001, START_MS + 5000), state="delayed") == ["retried"]
    assert found(shard, due=(START_MS + 5001, 10**15)) == []


def test_ids_that_begin_with_a_text(shard: Shard) -> None:
    shard.enqueue("a1", "a2", "b1", "A1", "a")
    assert found(shard, prefix="a") == ["a", "a1", "a2"]
    assert found(shard, prefix="a1") == ["a1"]
    assert found(shard, prefix="*") == []


def test_records_with_all_the_texts(shard: Shard) -> None:
    put(shard, one={"user": 7, "kind": "sms"}, other={"user": 7, "kind": "mail"}, third={"user": 8, "kind": "sms"})
    assert found(shard, texts=['"user":7']) == ["one", "other"]
    assert found(shard, texts=['"user":7', '"sms"']) == ["one"]
    assert found(shard, texts=['"user":9']) == []
    assert found(shard, texts=["%d"]) == [], "it is no pattern"


NUMBERS: tuple[Any, ...] = (
    7, -7, 0, -0.0, 6.999, 7.001, 1e22, -1.5e-9, 2**53 + 1, 10**30, "7", "8 9", True, None, [8], {"user": 8},
    {"user": "x"},
)  # fmt: skip


@pytest.mark.parametrize("bound", [7, 7.0, -7, 0, 6.9995, 1e22, 2**53, 2**53 + 1, -1e-9])
def test_records_with_a_number(shard: Shard, bound: float) -> None:
    """All whose number fulfills the condition. One that is next to the bound may be taken for it, as Lua rounds."""
    put(shard, **{f"n{n}": {"a": {"user": value}, "b": 10**9} for n, value in enumerate(NUMBERS)})
    numbers = {f"n{n}": value for n, value in enumerate(NUMBERS) if type(value) in (int, float)}
    equal = {id for id, value in numbers.items() if float(value) == float(bound)}
    for how in ("=", "<", "<=", ">", ">="):
        condition = Condition(("body", "a", "user"), how, bound)
        fulfill = {id for id, value in numbers.items() if condition.holds(value)}
        inside = {f"n{NUMBERS.index({'user': 8})}"} if condition.holds(8) else set()
        assert set(found(shard, texts=[condition.text])) == fulfill | equal | inside, how


def test_a_number_of_any_that_has_the_name(shard: Shard) -> None:
    put(shard, one={"x": [{"n": 1}, {"n": "5"}, {"n": 5}]}, other={"n": None, "m": 5}, third={"n": []})
    assert found(shard, texts=['>5.0 "n":']) == ["one"]
    assert found(shard, texts=['<0.5 "n":']) == []
    assert found(shard, texts=['>5.0 "n":', '<0.5 "n":']) == []
    assert found(shard, texts=['>5.0 "n":', '"n":1']) == ["one"]


@pytest.mark.parametrize("body", ['{"n": 5}', '{"n":5.0E0}', '{"\\u006e":5}', '{"n" :5}'])
def test_a_number_of_another_program(shard: Shard, body: str) -> None:
    id, when, rest = encode(NewJob({"user": 8}, id="j"), 1000)[:3]
    shard.call("enqueue", 1, [id, when, rest.replace(b'{"user":8}', body.encode())])
    assert found(shard, texts=['>5.0 "n":']) == ["j"]


@pytest.mark.parametrize("number", ["100000", "100000.0", "1e5", "1e+05", "1E5", "1000000.0E-1"])
def test_a_number_that_another_program_has_written(shard: Shard, number: str) -> None:
    id, when, rest = encode(NewJob({"user": 8}, id="j"), 1000)[:3]
    shard.call("enqueue", 1, [id, when, rest.replace(b"8", number.encode())])
    for text in ("body.user=100000", "body.user=1e5", "body.user<=100000", "body.user>=1e5"):
        assert found(shard, texts=[condition_in(text).text]) == ["j"]
    assert found(shard, texts=[condition_in("body.user=99999").text]) == []


def test_spaces_within_texts_are_usual(shard: Shard) -> None:
    put(shard, one={"a": " b", "c": "\td", "e": "\rf", "g": '"h" i'})
    assert found(shard, texts=['"user":7']) == []


def test_an_encoded_body_is_not_looked_into(shard: Shard) -> None:
    id, when, rest = encode(NewJob({"user": 8}, id="j"), 1000)[:3]
    shard.call("enqueue", 1, [id, when, rest.replace(b'{"user":8}', ENCODED + b"2\n{}")])
    assert found(shard, texts=['"user":7']) == ["j"]


@pytest.mark.parametrize(
    "body",
    [
        '{"user": 7}', '{"user" :7}', '{"user":\t7}', '{"user"\t:7}', '{"\\u0075ser":7}', '{"u":{"user": 7}, "b": 1}',
        '{"a\\" " :7}', '{"user":\r7}', '{"user"\r:7}', '{"user" \t:7}', '{"a":" b","c":"\td","e":"\rf","user"\t\r :7}',
    ],
)  # fmt: skip
def test_a_body_of_another_program_is_not_looked_into(shard: Shard, body: str) -> None:
    """An outbox's row may be written by any: with spaces, or letters escaped."""
    id, when, rest = encode(NewJob({"user": 8}, id="j"), 1000)[:3]
    shard.call("enqueue", 1, [id, when, rest.replace(b'{"user":8}', body.encode())])
    assert found(shard, texts=['"user":7']) == ["j"]


def test_a_job_that_only_leaving_groups_have_is_not_found(two: Shard) -> None:
    two.topic(groups=["a"])
    two.enqueue("j")
    two.bury(two.take())
    two.topic(groups=["a", "b"])
    assert found(two) == ["j"]
    two.begin_to_leave("a")
    two.checked = False
    assert found(two) == []


@pytest.mark.parametrize("limit", [1, 7, 250])
def test_pages_are_all_there_is(shard: Shard, limit: int) -> None:
    shard.checked = False
    ids = [f"j{n:03}" for n in range(300)]
    shard.enqueue(*ids)
    assert sorted(set(found(shard, limit=limit, whole="plan"))) == ids


def test_of_large_jobs_a_page_has_few(shard: Shard) -> None:
    shard.checked = False
    put(shard, **{f"j{n}": "x" * 100_000 for n in range(60)})
    sizes = [len(page) for page in pages_of(shard)]
    assert sum(sizes) >= 60
    if shard.is_fake:
        assert max(sizes) == 2  # 256 KiB of them
    else:  # a server returns whole buckets, and how many jobs a bucket has is chance
        assert sum(sizes) / len(sizes) <= 12


def test_it_changes_nothing(shard: Shard) -> None:
    shard.enqueue("j", delay="1h")
    assert shard.is_fake or not shard.writes(
        shard.scripts.find_jobs(shard.k, b"0", 10, Wanted("job", "delayed", "default", texts=["x"]))
    )
