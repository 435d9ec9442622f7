"""What has the options of ``enqueue``, ``schedule`` or ``configure`` has all of them, and describes them alike."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, NamedTuple, get_type_hints

import pytest
from typer.main import get_command

from streamdq import AsyncQueue, NewJob, Queue, Topic, outbox
from streamdq.cli import app as cli
from streamdq.http.api.bulk import JobLine
from streamdq.http.api.jobs import put_job
from streamdq.http.api.models.jobs import JobIn
from streamdq.http.api.models.schedules import ScheduleIn
from streamdq.http.api.models.topics import TopicIn
from streamdq.operations.jobs.enqueue import enqueue
from streamdq.operations.schedules.define import ScheduleOptions, planned
from streamdq.operations.topics.configure import configure
from streamdq.options import OF_JOB, OF_SCHEDULE, OF_TOPIC, on_command_line
from streamdq.schedules.definition import define
from streamdq.topic import JobOptions, RowOptions

BY_TABLE: dict[str, Mapping[str, str]] = {"job": OF_JOB, "schedule": OF_SCHEDULE, "topic": OF_TOPIC}
OF_CALL = {"on_conflict", "durable"}  # of one call, whatever number of jobs it enqueues


def named(function: Any, *without: str) -> dict[str, inspect.Parameter]:
    """The arguments that are passed by name."""
    parameters = inspect.signature(function).parameters
    return {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY and n not in without}


def defaults(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in parameters.items()}


def types_of(parameters: Mapping[str, inspect.Parameter]) -> dict[str, str]:
    return {name: parameter.annotation for name, parameter in parameters.items()}


OF_NEW_JOB = {field.name: field for field in fields(NewJob) if field.name != "body"}
DEFAULTS: dict[str, dict[str, Any]] = {
    "job": defaults(named(enqueue)),
    "schedule": defaults(named(define, "declared"))
    | {name: OF_NEW_JOB[name].default for name in ("ttr", "retry", "url", "expire", "version", "priority")},
    "topic": defaults(named(configure)),
}


@pytest.mark.parametrize("table", BY_TABLE)
def test_each_has_a_text(table: str) -> None:
    assert BY_TABLE[table].keys() == DEFAULTS[table].keys()


# -- Python


@pytest.mark.parametrize("owner", [Queue, AsyncQueue])
@pytest.mark.parametrize("operation", [enqueue, configure])
def test_both_queues_show_each_with_type_and_default(owner: type, operation: Any) -> None:
    assert named(getattr(owner, operation.__name__)) == named(operation)


def test_a_new_job_has_each_but_those_of_a_call() -> None:
    assert all(field.default is not MISSING for field in OF_NEW_JOB.values())
    of_enqueue = named(enqueue, *OF_CALL)
    assert {name: field.default for name, field in OF_NEW_JOB.items()} == defaults(of_enqueue)
    assert {name: field.type for name, field in OF_NEW_JOB.items()} == types_of(of_enqueue)


def test_enqueue_describes_each() -> None:
    described = set(re.findall(r"``(\w+)``", inspect.getdoc(enqueue) or ""))
    assert OF_JOB.keys() <= described


def test_configure_describes_each() -> None:
    described = set(re.findall(r"``(\w+)``", inspect.getdoc(configure) or ""))
    assert OF_TOPIC.keys() - described == {"ttr", "retry"}  # these say what they say of a job


def test_type_checkers_know_each_of_a_topics_enqueue() -> None:
    """All but ``version``, which the topic has."""
    of_enqueue = named(enqueue, "version")
    assert JobOptions.__annotations__.keys() == of_enqueue.keys()
    known = {name: hint.__forward_arg__ for name, hint in JobOptions.__annotations__.items()}
    assert known == types_of(of_enqueue)


def test_an_outbox_has_each_that_needs_nothing_in_redis() -> None:
    of_outbox = named(outbox.enqueue, "namespace")
    assert of_outbox.keys() == {*RowOptions.__annotations__, "version"}
    assert of_outbox == {name: one for name, one in named(enqueue).items() if name in of_outbox}


def test_type_checkers_know_each_of_a_schedule() -> None:
    assert ScheduleOptions.__annotations__.keys() == OF_SCHEDULE.keys()


def test_a_topic_has_options_of_its_settings_and_its_jobs() -> None:
    settings, jobs = named(configure), named(enqueue)
    for name, one in named(Topic.__init__, "result").items():  # which is a type there
        if name == "version":  # None: not stated
            assert one.annotation == f"{jobs[name].annotation} | None"
        else:
            assert one == settings[name] == jobs[name]


def test_the_options_of_a_schedule_reach_it_and_its_jobs() -> None:
    reported: Any = {
        "cron": "0 9 * * *", "tz": "Europe/Paris", "dst": "both", "jitter": 1, "start": 1_800_000_000_000,
        "until": 1_900_000_000_000, "overlap": "skip", "catch_up": 5, "ttr": 1, "retry": "1s", "url": "http://a",
        "expire": 3, "version": 4, "priority": "low",
    }  # fmt: skip
    assert {*reported, "every"} == OF_SCHEDULE.keys()
    definition, new = planned({}, reported)
    assert (definition.cron, definition.tz, definition.dst) == ("0 9 * * *", "Europe/Paris", "both")
    assert (definition.jitter_ms, definition.start_ms, definition.until_ms) == (
        1000,
        reported["start"],
        reported["until"],
    )
    assert (definition.overlap, definition.catch_up) == ("skip", 5000)
    assert (new.ttr, new.retry, new.url, new.expire, new.version, new.priority) == (1, "1s", "http://a", 3, 4, "low")
    assert planned({}, {"every": "10m"})[0].every_ms == 600_000


# -- the command line


class Command(NamedTuple):
    """``others``: its options that are not of the table."""

    words: tuple[str, ...]
    others: frozenset[str]


COMMANDS = {
    "job": Command(("enqueue",), frozenset({"file"})),
    "schedule": Command(("schedule", "add"), frozenset({"id", "dry_run"})),
    "topic": Command(("topic", "configure"), frozenset()),
}
FLAGS = {"version": "--body-version", "groups": "--group"}


def options_of(words: tuple[str, ...]) -> dict[str, Any]:
    command: Any = get_command(cli.app)
    for word in words:
        command = command.commands[word]
    shared = {"as_json", "help"}
    return {one.name: one for one in command.params if one.param_type_name == "option" and one.name not in shared}


@pytest.mark.parametrize("table", BY_TABLE)
def test_a_command_has_each_with_its_default_and_text(table: str) -> None:
    texts, command = BY_TABLE[table], COMMANDS[table]
    options = options_of(command.words)
    assert options.keys() - command.others == texts.keys()
    for name, text in texts.items():
        one = options[name]
        assert one.opts == [FLAGS.get(name, f"--{name.replace('_', '-')}")]
        assert one.secondary_opts == []
        assert one.help.startswith(on_command_line(name, texts, FLAGS)), text
        default = one.default.value if isinstance(one.default, Enum) else one.default
        assert default == DEFAULTS[table][name]


def test_a_file_of_jobs_may_have_each_field_that_the_command_names() -> None:
    command: Any = get_command(cli.app)
    text = re.sub(r"\s+", " ", command.commands["enqueue"].help)
    (listed,) = re.findall(r"The object may have ([\w, ]+)\.", text)
    assert set(re.split(r", | and ", listed)) == OF_NEW_JOB.keys() - {"window"}  # which looks at the other jobs


def test_names_are_shown_as_the_command_line_has_them() -> None:
    options = {"on_conflict": "", "a": "With `on_conflict=keep` or `a`: `b c`, or `none`."}
    shown = on_command_line("a", options, {"a": "--an-a"})
    assert shown == "With --on-conflict keep or --an-a: 'b c', or none."


# -- HTTP

MODELS: dict[str, tuple[Any, set[str]]] = {
    "job": (JobIn, {"id", "window", *OF_CALL}),  # a part of the path; as in a file of jobs; parameters of the query
    "schedule": (ScheduleIn, set()),
    "topic": (TopicIn, {"create"}),  # always
}


@pytest.mark.parametrize("table", BY_TABLE)
def test_a_request_has_each_with_its_default_and_text(table: str) -> None:
    texts, (model, without) = BY_TABLE[table], MODELS[table]
    found = model.model_fields
    assert found.keys() - {"body"} == texts.keys() - without
    for name in texts.keys() - without:
        assert found[name].default == DEFAULTS[table][name]
        assert found[name].description.startswith(texts[name])


def test_a_request_has_the_options_of_a_call_as_parameters() -> None:
    given = inspect.signature(put_job).parameters
    hints = get_type_hints(put_job, include_extras=True)
    for name in OF_CALL:
        assert given[name].default == DEFAULTS["job"][name]
        (query,) = hints[name].__metadata__
        assert query.description.startswith(OF_JOB[name])


def test_what_a_request_says_of_a_job_reaches_it() -> None:
    reported: dict[str, Any] = {
        "delay": 1, "ttr": 2, "retry": "3s", "url": "http://a", "expire": 4, "tz": "UTC", "quiet": "21:00-22:00",
        "version": 5, "unique_for": 6, "rate_of_id": "7/h", "at_most": 8, "key": "k", "unique_after": "finish",
        "after": [{"topic": "t", "id": "p", "key": None}], "on_failure": "run", "priority": "high",
    }  # fmt: skip
    assert {*reported, "at", "id"} == OF_JOB.keys() - {"window", *OF_CALL}
    assert JobIn(body={}, **reported).new_job("a") == NewJob({}, id="a", **reported)
    assert JobLine(body={}, id="b", at=1_900_000_000_000).new_job("b") == NewJob({}, id="b", at=1_900_000_000_000)


def test_what_a_request_says_of_a_schedule_reaches_it() -> None:
    reported: dict[str, Any] = {
        "cron": "0 9 * * *", "tz": "Europe/Paris", "dst": "both", "jitter": 1, "start": 1_800_000_000_000,
        "until": 1_900_000_000_000, "overlap": "skip", "catch_up": 5, "ttr": 1, "retry": "1s", "url": "http://a",
        "expire": 3, "version": 4, "priority": "low",
    }  # fmt: skip
    assert ScheduleIn(body={"a": 1}, **reported).planned() == planned({"a": 1}, reported)  # type: ignore[arg-type]
    assert ScheduleIn(every="10m").planned() == planned(None, {"every": "10m"})
