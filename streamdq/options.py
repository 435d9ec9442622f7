"""What each option of ``enqueue``, ``schedule`` and ``configure`` is for, in a sentence or two, for all that show it:
the command line and the HTTP API.

In Python, options have their types and defaults in explicit signatures: those of ``enqueue``, ``NewJob`` and
``configure``, and in ``ScheduleOptions`` and ``JobOptions``. Editors and ``help()`` show signatures best, and Python
binds them fastest. A test compares all of these with each other and with the tables here: whatever lacks an option, or
has another default or text, fails (tests/unit/test_options.py).

In the texts, an option's name stands in backticks, as do values. The command line shows it as it is written there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_OF_EVERY_JOB = {
    "ttr": "Time to run: how long an attempt may take.",
    "retry": "Delays between attempts, such as `15s 3m 10m`, or `none`.",
    "expire": "Give an attempt up if it would start this long after its due time.",
    "url": "The URL to which a callback worker POSTs the body.",
    "version": "The version of the body's shape.",
    "priority": "Among the jobs of the topic that are ready: `high` first, then `normal`, then `low`.",
}
MOMENT = "Unix milliseconds, or ISO 8601 with its zone."

OF_JOB: Mapping[str, str] = {
    "delay": "Due after this long, by Redis's clock.",
    "at": f"Due at this time: {MOMENT}",
    "id": "The job's id; random if not given.",
    **_OF_EVERY_JOB,
    "tz": "The time zone in which an `at` without one is a local time.",
    "quiet": "Hours of the zone `tz`. If `at` lies within them, the job is due when they end.",
    "window": "Due up to this much later, in the minute in which the fewest jobs are.",
    "key": "What the job belongs to, such as a customer.",
    "unique_for": "The id stays taken for this long from now on, also after the job has ended.",
    "unique_after": "Whether `unique_for` counts from now, or from when the job has ended in every group.",
    "rate_of_id": "How many jobs may get the id in any span of this length.",
    "at_most": "With `on_conflict=postpone`: no later than this after its first due time.",
    "after": "The jobs that it waits for: it is due `delay` after all of them are done.",
    "on_failure": "What to do if one of them fails: `block` it, `run` it once all have ended, or `cancel` it.",
    "on_conflict": "What to do if a job that has not ended has this id.",
    "durable": "Where the change is for certain when this is answered: in the `memory` of Redis, on its `disk`, or "
    "also in the memory of `replicas:N`. Left out: as the topic is configured.",
}
"""Of a job that is enqueued."""

OF_SCHEDULE: Mapping[str, str] = {
    "cron": "Minute, hour, day of month, month, day of week; six fields begin with the second.",
    "every": "An interval of at least a second.",
    "tz": "The time zone of `cron`.",
    "dst": "How often a local time runs that comes twice, as clocks are set back.",
    "jitter": "Each occurrence is due up to this much later.",
    "start": f"No occurrence before. {MOMENT}",
    "until": f"No occurrence after. {MOMENT}",
    "overlap": "What happens to an occurrence if the job of the last one has not ended.",
    "catch_up": "Which missed occurrences run: `none`, the `last`, or those that are at most so late.",
    **_OF_EVERY_JOB,
}
"""Of a schedule, and of its jobs."""

OF_TOPIC: Mapping[str, str] = {
    "ttr": _OF_EVERY_JOB["ttr"],
    "retry": _OF_EVERY_JOB["retry"],
    "shards": "Jobs that are there stay where they are; refused if their keys have limits.",
    "max_deliveries": "Bury a job that was lost with its consumer this often.",
    "groups": "Exactly these groups; others are removed, and their open jobs end.",
    "rate": "Jobs per second at most; 0: no limit.",
    "durable": "Where a job is for certain when its producer is answered: `memory`, `disk` or `replicas:N`; `default`: "
    "as the producer's process is configured.",
    "key_concurrency": "Attempts of a key that run at once at most, for each group; 0: no limit.",
    "key_order": "Jobs of a key start by their due times; `pass`: retries let others pass.",
    "key_rate": 'Attempts of a key that start in a time at most: "5/s", "100/10m"; "0": no limit.',
    "result": "For how long what handlers return is kept; `0`: no longer. If the topic has several groups, for those "
    "that are named.",
    "dead_for": "For how long dead letters are kept; `0`: until somebody kicks or purges them.",
    "create": "Create the topic, even if its name is nearly that of another one.",
}
"""Of a topic's settings."""


def on_command_line(name: str, options: Mapping[str, str], flags: Mapping[str, str]) -> str:
    """An option's text, with names as the command line has them: ``--on-conflict postpone``. ``flags``: those that are
    not made of the option's name.
    """

    def shown(found: re.Match[str]) -> str:
        word, _, value = found[1].partition("=")
        if word in options:
            flag = flags.get(word, f"--{word.replace('_', '-')}")
            return f"{flag} {value}" if value else flag
        return f"'{found[1]}'" if " " in found[1] else found[1]

    return re.sub(r"`([^`]+)`", shown, options[name])


def suggesting(function: F) -> F:
    """The function; called with a keyword argument that it does not have, it suggests the one that was meant. Python
    does so itself from 3.13 on. Not for what is made for each job, such as NewJob: there it would cost time.
    """

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # from inside the function
            from inspect import signature  # only errors need it

            known = [name for name in signature(function).parameters if name != "self"]
            wrong = next((name for name in kwargs if name not in known), None)
            if wrong is None:
                raise
            name = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
            raise unknown(name, wrong, known) from None

    return cast("F", called)


def unknown(call: str, name: str, known: Collection[str]) -> TypeError:
    """What a call raises that is given an option which does not exist."""
    return TypeError(f"{call}() got an unexpected keyword argument {name!r}{meant(name, known)}")


def meant(name: str, known: Collection[str]) -> str:
    """What an error says of a name that does not exist: which one it is like, or nothing."""
    from difflib import get_close_matches  # only errors need it

    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
