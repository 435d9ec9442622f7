"""Which node of a Cluster a command goes to, and what a redirection changes."""

from __future__ import annotations

from typing import Any

import pytest
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

from streamdq.link.cluster import Slots, address, learned, routed
from streamdq.link.command import Behind, Command
from streamdq.link.failures import LinkError, PoolExhausted
from streamdq.link.session import Op, Request

A, B, C = "a:1", "b:1", "c:1"
LOW, HIGH = [0, 8191], [8192, 16383]
KEYS = {"low": next(f"k{n}" for n in range(99) if key_slot(f"k{n}".encode()) <= 8191)}
KEYS["high"] = next(f"k{n}" for n in range(99) if key_slot(f"k{n}".encode()) > 8191)
LOW_SLOT = key_slot(KEYS["low"].encode())
LOST = LinkError(ConnectionError("refused"), sent=False)
UNSURE = LinkError(TimeoutError("no reply"), sent=True)


def known() -> Slots:
    slots = Slots([("a", 1), ("b", 1)])
    slots.learn([[*LOW, [b"a", 1, b"id"]], [*HIGH, [b"b", 1, b"id"], [b"c", 1, b"replica"]]], A)
    return slots


def commands(*names: str) -> list[Command]:
    return [Command(KEYS[name], ("GET", name)) for name in names]


class Nodes:
    """What each node answers, in turn; a LinkError: it does not."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = {f"{name}:1": list(replies) for name, replies in answers.items()}
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.learned = 0

    def carry_out(self, op: Op[Any]) -> Any:
        """As a link does."""
        try:
            step = next(op)
            while True:
                assert isinstance(step, Request)
                assert step.timeout_s > 0
                if step.commands[0].args == ("CLUSTER", "SLOTS"):
                    self.learned += 1
                self.asked.append((step.node, tuple(command.args[0] for command in step.commands)))
                answers = self.answers[step.node]
                got = [answers.pop(0) for _ in step.commands if answers]
                failed = bool(got) and isinstance(got[0], LinkError)
                step = op.throw(got[0]) if failed else op.send(got)
        except StopIteration as stop:
            return stop.value


def sent(slots: Slots, commands: list[Command]) -> Op[list[Any]]:
    return routed(slots, Request(commands, 5))


def test_each_command_goes_to_its_node_and_the_replies_are_in_order() -> None:
    nodes = Nodes(a=[b"1", b"3"], b=[b"2"])
    assert nodes.carry_out(sent(known(), commands("low", "high", "low"))) == [b"1", b"2", b"3"]
    assert nodes.asked == [(A, ("GET", "GET")), (B, ("GET",))]


def test_a_slot_that_moved_is_asked_for_where_it_is_from_then_on() -> None:
    slots, nodes = known(), Nodes(a=[MovedError(f"{LOW_SLOT} c:1")], c=[b"1", b"again"])
    assert nodes.carry_out(sent(slots, commands("low"))) == [b"1"]
    assert nodes.carry_out(sent(slots, commands("low"))) == [b"again"]
    assert (nodes.learned, len(slots.names)) == (0, 3)


def test_only_what_was_redirected_is_sent_again() -> None:
    slots, nodes = known(), Nodes(a=[b"1", MovedError(f"{LOW_SLOT} c:1")], b=[b"2"], c=[b"3"])
    assert nodes.carry_out(sent(slots, commands("low", "high", "low"))) == [b"1", b"2", b"3"]


def test_a_slot_on_its_way_is_asked_for_there_this_once() -> None:
    slots, nodes = known(), Nodes(a=[AskError(f"{LOW_SLOT} c:1"), b"here again"], c=[b"OK", b"1"])
    assert nodes.carry_out(sent(slots, commands("low"))) == [b"1"]
    assert nodes.asked[-1] == (C, ("ASKING", "GET"))
    assert nodes.carry_out(sent(slots, commands("low"))) == [b"here again"]


@pytest.mark.parametrize("reply", [TryAgainError("Multiple keys"), ClusterDownError("Hash slot not served")])
def test_what_has_to_wait_was_not_run(reply: ResponseError) -> None:
    nodes = Nodes(a=[reply])
    with pytest.raises(LinkError) as raised:
        nodes.carry_out(sent(known(), commands("low")))
    assert raised.value.sent is False


@pytest.mark.parametrize(
    "answers",
    [
        {"a": [b"1"], "b": [LOST]},  # the other node's command has run
        {"a": [TryAgainError("Multiple keys"), b"1"]},
        {"a": [b"1", TryAgainError("Multiple keys")]},
        {"a": [UNSURE]},
    ],
)
def test_what_may_have_run_in_part_counts_as_sent(answers: dict[str, list[Any]]) -> None:
    names = ("low", "high") if "b" in answers else ("low", "low")
    with pytest.raises(LinkError) as raised:
        Nodes(**answers).carry_out(sent(known(), commands(*names)))
    assert raised.value.sent is True


@pytest.mark.parametrize(
    ("low", "answered"),
    [
        ([b"1", b"2"], {0: b"1", 1: b"2"}),
        ([b"1", ResponseError("WAIT")], {}),  # what is behind a command is asked for with it
        ([ResponseError("OOM"), b"2"], {}),
        ([MovedError(f"{LOW_SLOT} c:1")] * 2, {}),
    ],
)
def test_what_other_nodes_answered_is_known(low: list[Any], answered: dict[int, Any]) -> None:
    batch = [*commands("low"), Behind(KEYS["low"], ("WAIT",)), *commands("high")]
    with pytest.raises(LinkError) as raised:
        Nodes(a=low, b=[LOST]).carry_out(sent(known(), batch))
    assert raised.value.answered == answered


def test_nodes_that_name_one_another_are_not_followed_for_ever() -> None:
    nodes = Nodes(a=[MovedError(f"{LOW_SLOT} b:1")] * 9, b=[MovedError(f"{LOW_SLOT} a:1")] * 9)
    with pytest.raises(LinkError, match="name one another") as raised:
        nodes.carry_out(sent(known(), commands("low")))
    assert raised.value.sent is False


def test_who_needs_a_suspect_learns_first_and_nobody_else() -> None:
    slots, nodes = known(), Nodes(a=[b"1", LOST], b=[LOST, b"2"])
    slots.suspect(B)
    assert nodes.carry_out(sent(slots, commands("low"))) == [b"1"]
    assert nodes.learned == 0
    assert nodes.carry_out(sent(slots, commands("high"))) == [b"2"]  # nothing better is known
    assert nodes.learned == 2, "each of the nodes was asked"


def test_a_node_that_did_not_answer_is_a_suspect_unless_too_many_called_it() -> None:
    slots = known()
    for error, node in ((LOST, None), (PoolExhausted(1, blocking=False), A)):
        slots.learn([[*LOW, [b"a", 1]], [*HIGH, [b"b", 1]]], A)
        with pytest.raises(LinkError):
            Nodes(a=[error]).carry_out(sent(slots, commands("low")))
        assert slots.node_of(KEYS["low"]) == node


def test_only_one_asks_who_serves_what() -> None:
    slots = Slots([("a", 1)])
    first, second = sent(slots, commands("low")), sent(slots, commands("high"))
    assert isinstance(asks := next(first), Request)
    assert asks.node == A
    waits = next(second)
    assert isinstance(waits, Request)
    assert (waits.commands, waits.after_s) == ((), 0.005)
    assert isinstance(goes := first.send([[[0, 16383, [b"a", 1]]]]), Request)
    assert goes.commands[0].args == ("GET", "low")
    assert isinstance(goes := second.send([]), Request)
    assert goes.commands[0].args == ("GET", "high"), "it has not asked"


def test_who_waits_for_another_that_asks_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may be one that a forked child doesn't have."""
    now_s = 100.0
    monkeypatch.setattr("streamdq.link.cluster.time.monotonic", lambda: now_s)
    slots = Slots([("a", 1)])
    first, second = learned(slots, 5), learned(slots, 5)
    next(first)
    while not (step := next(second)).commands:  # type: ignore[union-attr]
        now_s += step.after_s  # type: ignore[union-attr, operator]
    assert 101 <= now_s < 102


def test_a_slot_that_nobody_serves() -> None:
    slots = Slots([("a", 1)])
    with pytest.raises(LinkError, match="no Cluster node serves"):
        Nodes(a=[[[*HIGH, [b"a", 1]]]]).carry_out(sent(slots, commands("low")))


def test_the_first_node_that_answers_is_believed() -> None:
    slots = Slots([("a", 1), ("b", 1), ("c", 1)])
    nodes = Nodes(a=[LOST], b=[ResponseError("ERR cluster support disabled")], c=[[[0, 16383, [b"d", 1]]]])
    nodes.carry_out(learned(slots, 5))
    assert slots.names == {"d:1"}


def test_when_none_answers_what_was_known_stays() -> None:
    slots, nodes = known(), Nodes(a=[LOST] * 2, b=[LOST] * 2)
    nodes.carry_out(learned(slots, 5))
    assert slots.names == {A, B}
    with pytest.raises(LinkError, match="refused"):
        nodes.carry_out(learned(Slots([("a", 1), ("b", 1)]), 5))


def test_those_that_failed_are_asked_last() -> None:
    slots = known()
    slots.suspect(A)
    assert slots.candidates()[-1] == A


@pytest.mark.parametrize("host", [None, b"", "", b"?"])
def test_a_node_that_does_not_know_its_name(host: bytes | str | None) -> None:
    assert address(host, 7001, "10.0.0.1:7000") == "10.0.0.1:7001"
    assert address("::1", 7001, "x:1").rpartition(":")[0] == "::1"


# -- a write, and what is to be asked behind it on the same connection


def write_and_wait() -> list[Command]:
    return [Command(KEYS["low"], ("SET",)), Behind(KEYS["low"], ("WAIT",))]


def test_what_is_behind_a_command_that_moved_goes_with_it() -> None:
    """What the old node said to it is of no account."""
    slots, nodes = known(), Nodes(a=[MovedError(f"{LOW_SLOT} c:1"), 1], c=[b"OK", 0])
    assert nodes.carry_out(sent(slots, write_and_wait())) == [b"OK", 0]
    assert nodes.asked == [(A, ("SET", "WAIT")), (C, ("SET", "WAIT"))]


def test_what_is_behind_a_command_whose_slot_is_on_its_way_follows_it() -> None:
    nodes = Nodes(a=[AskError(f"{LOW_SLOT} c:1"), 1], c=[b"OK", b"OK", 0])
    assert nodes.carry_out(sent(known(), write_and_wait())) == [b"OK", 0]
    assert nodes.asked[-1] == (C, ("ASKING", "SET", "WAIT"))


@pytest.mark.parametrize("reply", [TryAgainError("Multiple keys"), ClusterDownError("Hash slot not served")])
def test_an_answer_behind_a_command_that_has_not_run_says_nothing(reply: ResponseError) -> None:
    with pytest.raises(LinkError) as raised:
        Nodes(a=[reply, 1]).carry_out(sent(known(), write_and_wait()))
    assert raised.value.sent is False


def test_several_writes_with_something_behind_each() -> None:
    several = [*write_and_wait(), Command(KEYS["high"], ("DEL",)), *write_and_wait()]
    nodes = Nodes(
        a=[MovedError(f"{LOW_SLOT} c:1"), 1, MovedError(f"{LOW_SLOT} c:1"), 1], b=[b"b"], c=[b"1", 2, b"3", 4]
    )
    assert nodes.carry_out(sent(known(), several)) == [b"1", 2, b"b", b"3", 4]
