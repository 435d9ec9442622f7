"""All settings: of this process (environment variables ``STREAMDQ_*``) and of a topic (kept in Redis)."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from ipaddress import ip_network
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

from .job.durability import MEMORY, check_level
from .job.retry import DEFAULT_RETRY, RetrySchedule
from .keys import DEFAULT_GROUP as DEFAULT_GROUP
from .times.durations import rate_in

DEFAULT_NAMESPACE = "streamdq"
MAX_BATCH = 500
"""Jobs in one script call: the measured cost stays below 5 ms, so that no other client waits longer."""


MAX_CLAIM = 250
"""Jobs in one claim or finish, the scripts that do most work per job: a call ends within 5 ms even if Redis shares a
core and is interrupted. Twice as many jobs per call are hardly faster.
"""


NO_RATE = 10**9
"""In the shards of a topic with priorities, for no rate: every job goes through the bucket, as in a topic with one."""


MAX_KEY_CONCURRENCY = 10_000
"""Attempts of a key at once."""


START_WITHIN_S = 1.0
"""A claimed job starts within this time or goes back. So no job of a topic starts later than this after a pause."""


MAX_FILE_BYTES = 16 * 1024 * 1024
"""Of a file of tokens or settings."""


HEARTBEAT_S = 1.0
"""How often a worker sends a heartbeat while it holds claims."""


HEALTH_FILE = "STREAMDQ_HEALTH_FILE"
"""The environment variable of a worker's health file."""


class FromEnvironment(BaseModel):
    """Settings from environment variables; what is given comes before them."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    env_prefix: ClassVar[str]

    def __init__(self, **given: Any) -> None:
        there = {name.upper(): value for name, value in os.environ.items()}
        names = {name: f"{self.env_prefix}{name.upper()}" for name in type(self).model_fields}
        super().__init__(**{name: there[theirs] for name, theirs in names.items() if theirs in there} | given)


class Settings(FromEnvironment):
    """The settings of a process, from environment variables with the prefix ``STREAMDQ_``."""

    env_prefix = "STREAMDQ_"

    url: str = Field(default="embedded://", repr=False, description="Where Redis is.")
    credential_provider: Any = Field(
        default="",
        repr=False,
        description="What gives user name and password for Redis, as `MODULE:OBJECT`: a `CredentialProvider` of "
        "redis-py, or a function that returns one.",
    )
    namespace: str = Field(
        default=DEFAULT_NAMESPACE,
        description="The prefix of all keys; queues with different namespaces share a Redis without seeing each other.",
    )
    call_timeout_s: float = Field(
        default=5.0, gt=0, le=86_400, description="One overall deadline for a call, retries included."
    )
    durable: str = Field(
        default=MEMORY,
        description="Where a producer's change is for certain when the call returns: `memory`, `disk` or `replicas:N`; "
        "a topic's own setting and the call's take precedence.",
    )
    max_connections: int = Field(
        default=50, ge=1, description="Connections to one Redis node in use at once; further calls wait in line."
    )
    max_blocked_reads: int = Field(
        default=1_000, ge=1, description="The same for calls that wait in Redis: reads of workers, `take`."
    )
    max_body_bytes: int = Field(default=256 * 1024, ge=1, description="A body that takes more in Redis is refused.")
    max_decoded_bytes: int = Field(
        default=4 * 1024 * 1024, ge=1, description="A body with codecs is refused, and not read, if its JSON is larger."
    )
    codec: str = Field(
        default="", description="What new bodies are encoded with, in this order, such as `trace zstd encrypt offload`."
    )
    body_keys: str = Field(
        default="",
        repr=False,
        description="Keys of encrypted bodies, as `streamdq bodies key` makes them; the first one encrypts.",
    )
    body_keys_file: str = Field(default="", description="A file with more of them, such as a mounted secret.")
    offload: str = Field(
        default="",
        repr=False,
        description="Where large bodies are kept: a URL that fsspec knows, such as `s3://bucket/jobs`.",
    )
    offload_over_bytes: int = Field(
        default=32 * 1024, ge=0, description="Bodies that take more, after the other codecs, are kept there."
    )
    offload_timeout_s: float = Field(
        default=30.0, gt=0, le=86_400, description="Enqueuing fails if no large body gets there for so long."
    )
    history_length: int = Field(
        default=100_000,
        ge=0,
        le=10**15,
        description="About how many history rows each shard keeps; 0 keeps none.",
    )
    history_age_s: int = Field(
        default=7 * 86_400,
        ge=0,
        le=10**10,
        description="About how many seconds history rows are kept; 0 sets no limit.",
    )
    failures_length: int = Field(
        default=5_000,
        ge=0,
        le=10**15,
        description="Of about how many failed attempts each shard keeps the message and traceback, for as long as "
        "history rows; 0 keeps none.",
    )
    lease_ms: int = Field(
        default=1300,
        ge=500,
        le=600_000,
        description="A mover that was killed is replaced within this time and a second.",
    )
    worker_timeout_s: float = Field(
        default=3.0,
        ge=0,
        le=3600,
        description="A worker without a heartbeat for so long loses its claims, at least 2; 0: only when their TTR "
        "has passed.",
    )
    hung_exit_s: float = Field(
        default=60.0,
        ge=0,
        le=10**6,
        description="How long handlers may hang beyond their TTR, in all slots of a worker or by blocking its event "
        "loop. After that the worker ends with exit code 4; 0: never.",
    )
    grace_s: float = Field(
        default=10.0,
        ge=0,
        description="How long SIGTERM waits for running handlers. Give the supervisor more time before it kills.",
    )
    metrics: bool = Field(default=True, description="Count and time jobs; false is there to measure what it costs.")
    max_topics: int = Field(default=10_000, ge=1, description="The most topics in a namespace; more are refused.")
    metrics_topics: int = Field(
        default=200, ge=1, description="Topics with labels of their own; all others share the label `other`."
    )

    @field_validator("namespace")
    @classmethod
    def _set(cls, namespace: str) -> str:
        return namespace or DEFAULT_NAMESPACE

    @field_validator("durable")
    @classmethod
    def _level(cls, level: str) -> str:
        return check_level(level or MEMORY) or MEMORY

    @field_validator("worker_timeout_s")
    @classmethod
    def _longer_than_a_start(cls, timeout_s: float) -> float:
        """Within this time a claim starts or never will, and a live worker sends at least one heartbeat."""
        least_s = START_WITHIN_S + HEARTBEAT_S
        if 0 < timeout_s < least_s:
            raise ValueError(f"at least {least_s:g}, or 0")
        return timeout_s


class HttpSettings(FromEnvironment):
    """The settings of the HTTP server, from environment variables with the prefix ``STREAMDQ_HTTP_``."""

    model_config = ConfigDict(defer_build=True)  # only servers need it
    env_prefix = "STREAMDQ_HTTP_"

    tokens: str = Field(default="", description="Lines as in a file of tokens, ended by newlines or semicolons.")
    max_request_bytes: int = Field(default=1024 * 1024, ge=1024, description="A larger body is refused.")
    max_bulk_bytes: int = Field(default=1024**3, ge=1024, description="The same for a body of lines.")
    body_timeout_s: float = Field(default=20.0, gt=0, description="For a body to arrive, or its next part of lines.")
    header_timeout_s: float = Field(
        default=10.0, gt=0, description="For a request's head to arrive, or some of an answer to be read."
    )
    max_takes: int = Field(default=500, ge=1, description="How many requests may wait for a job at once.")
    max_searches: int = Field(default=2, ge=1, description="How many requests may look through jobs at once.")
    failures_per_minute: float = Field(
        default=60, ge=0, description="Of an address, requests without a valid token; then 429. 0 for no limit."
    )
    token_rate: float = Field(default=1000, ge=0, description="Requests a second with one token; 0 for no limit.")
    address_rate: float = Field(default=0, ge=0, description="Requests a second from one address; 0 for no limit.")
    trusted_proxies: str = Field(
        default="", description="Addresses and networks, with commas, whose X-Forwarded-For and -Proto are believed."
    )
    sso_proxies: str = Field(
        default="", description="Addresses and networks, with commas, of the proxy that signs in users of the page."
    )
    sso_user_header: str = Field(
        default="X-Forwarded-User", min_length=1, description="The header in which that proxy names the user."
    )
    sso_groups_header: str = Field(
        default="X-Forwarded-Groups", min_length=1, description="The one with the user's groups, separated by commas."
    )
    sso_roles: str = Field(
        default="", description="Lines of GROUP ROLES as for tokens; the first that fits counts; * is everyone."
    )
    sso_sign_out: str = Field(default="", description="The path that signs out of the proxy, for a link on the page.")
    ssl_keyfile_password: str = Field(default="", description="What the key of --ssl-keyfile is encrypted with.")

    prometheus_url: str = Field(
        default="",
        description="A Prometheus that scrapes this namespace: the page's charts are from it, not the history.",
    )

    @field_validator("prometheus_url")
    @classmethod
    def _of_http(cls, url: str) -> str:
        if url and not url.startswith(("http://", "https://")):
            raise ValueError("begins neither with http:// nor with https://")
        return url

    @field_validator("trusted_proxies", "sso_proxies")
    @classmethod
    def _networks(cls, text: str) -> str:
        for part in filter(None, map(str.strip, text.split(","))):
            ip_network(part)
        return text

    max_connections: int = Field(default=2000, ge=1, description="How many connections callers may have at once.")


MOST_FORMER = 3
"""Earlier numbers of shards that a topic may have at once: each is another place to ask for an id."""


class Layout(NamedTuple):
    """How a topic's jobs are spread over its shards. ``former``: earlier numbers of shards, oldest first, by which jobs
    may still be where they were put. ``since``: the version that the last change of a topic with jobs followed, 0 =
    none did. Two changes never have the same layout, so a process that slept since the first change can't act in the
    second.
    """

    shards: int
    former: tuple[int, ...] = ()
    since: int = 0

    @property
    def text(self) -> str:
        """What every caller tells the scripts: ``8``; or ``8<4@17``, while jobs may be where they were among four."""
        return self.stored_text if self.former else str(self.shards)

    @property
    def stored_text(self) -> str:
        """What shards store: as ``text``, also with the version of a change that is complete."""
        return f"{self.shards}<{','.join(map(str, self.former))}@{self.since}" if self.since else str(self.shards)

    @property
    def in_use(self) -> int:
        """How many shards may have jobs."""
        return max(self.shards, *self.former, 0)

    def changes(self) -> dict[str, Any]:
        """The fields of the registry."""
        return {"shards": self.shards, "former": self.former or None, "since": self.since or None}


def layout_in(text: str) -> Layout:
    """The layout in a shard's settings, from its ``stored_text``; without shards, if it is closed or knows
    none.
    """
    shards, _, rest = text.partition("<")
    former, _, since = rest.partition("@")
    return Layout(int(shards or 0), tuple(int(count) for count in former.split(",") if count), int(since or 0))


class GroupSettings(BaseModel):
    """A group's own settings; None stands for the topic's."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ttr_ms: int | None = None
    retry: str | None = None
    result_ms: int | None = None  # how long the results of its jobs are kept; None: it keeps none


class TopicSettings(BaseModel):
    """A topic's settings as the registry holds them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = 0
    shards: int = 1
    ttr_ms: int = 60_000
    retry: str = DEFAULT_RETRY
    max_deliveries: int = 5
    dead_for_ms: int | None = None  # dead letters that are older are removed; None: none is
    rate: float | None = None
    durable: str | None = None
    key_concurrency: int | None = None
    key_order: Literal["hold", "pass"] | None = None
    key_rate: str | None = None
    key_limited: bool = False  # it has, or had, a limit of keys: jobs may wait for them
    paused: bool = False
    scheduled: bool = False  # its first shard may have schedules
    linked: bool = False  # jobs may wait for others, or others for them
    prioritized: bool = False  # jobs may have a priority
    sharded_by_key: bool = False  # jobs may be in the shards of their keys, not of their ids
    groups: Mapping[str, GroupSettings] = Field(default_factory=dict)
    # Changes that have begun and are not complete; the process that meets them completes them (Topics).
    leaving: Mapping[str, bool] = Field(default_factory=dict)
    resharding: int | None = None  # only while the topic is empty
    relimiting: bool = False
    deleting: Literal["empty", "force"] | None = None
    most_shards: int = 0
    # Where jobs may be, if the number of shards was changed while there were some: see Layout.
    former: tuple[int, ...] = ()
    since: int = 0

    @field_validator("groups", "leaving", mode="before")
    @classmethod
    def _empty_tables(cls, groups: Mapping[str, Any]) -> dict[str, Any]:
        """Lua has one empty table: fakeredis writes it as ``[]``, where Redis writes ``{}``."""
        return {name: own or {} for name, own in groups.items()} if groups else {}

    @property
    def layout(self) -> Layout:
        return Layout(self.shards, self.former, self.since)

    @property
    def reach(self) -> int:
        """How many shards have data of the topic, including those it no longer uses: they keep counters and history."""
        return max(self.layout.in_use, self.most_shards)

    @property
    def spread(self) -> str:
        """The layout that producers must name; 0 refuses all, because the number of shards is being changed."""
        return "0" if self.resharding is not None else self.layout.text

    @property
    def leads_to_keys(self) -> bool:
        """Whether jobs are looked for in the shards of their keys."""
        return self.sharded_by_key or self._is_one_shard

    def named(self, *, by_key: bool) -> str:
        """How jobs are spread, as scripts take it that add jobs. ``by_key``: one is in the shard of its key."""
        text = self.layout.text if self.former else str(self.shards)
        return f"{text}k" if by_key and not self._is_one_shard else text

    @property
    def _is_one_shard(self) -> bool:
        return self.shards == 1 and not self.former

    @cached_property
    def group_names(self) -> tuple[str, ...]:
        """Sorted, so that every client and every script names them in the same order."""
        return tuple(sorted(self.groups))

    def retry_of(self, group: str) -> RetrySchedule:
        own = self.groups.get(group)
        return RetrySchedule.of(own.retry if own and own.retry is not None else self.retry)

    def ttr_of(self, group: str) -> int:
        own = self.groups.get(group)
        return own.ttr_ms if own and own.ttr_ms is not None else self.ttr_ms

    def by_value(self, of: Callable[[str], str]) -> dict[str, list[str]]:
        """Which groups have which value: what applies to a job without its own."""
        found: dict[str, list[str]] = {}
        for group in self.group_names:
            found.setdefault(of(group), []).append(group)
        return found

    @property
    def results(self) -> dict[str, int]:
        """The groups that keep results, and for how long, in ms."""
        return {name: self.groups[name].result_ms or 0 for name in self.group_names if self.groups[name].result_ms}

    def shard_fields(self) -> list[str | int | float]:
        """The settings that a shard's scripts read, as fields and values for HSET ('' removes a field)."""
        fields: list[str | int | float] = [
            "paused", int(self.paused),
            "rate", self.rate or (NO_RATE if self.prioritized else 0),
            "ttr", self.ttr_ms,
            "key_limit", self._key_limit,
            "key_order", self.key_order or "",
            "results", ",".join(f"{name}={ms}" for name, ms in self.results.items()),
            "dead_for", self.dead_for_ms or "",
        ]  # fmt: skip
        if self.sharded_by_key:  # otherwise a mark stays: a registry that was lost does not know of it
            fields += ["sharded_by_key", 1]
        if self.prioritized:
            fields += ["prioritized", 1]
        for name, group in self.groups.items():
            fields += [f"ttr:{name}", "" if group.ttr_ms is None else group.ttr_ms]
        return fields

    @property
    def _key_limit(self) -> str:
        """``"3"`` attempts of a key at once; ``"3/200.0"``: and 200 ms from the start of one to that of the next."""
        if not self.key_limited:
            return ""
        if self.key_rate is None:
            return str(self.key_concurrency or 0)
        times, span_ms = rate_in(self.key_rate, "key_rate")
        return f"{self.key_concurrency or MAX_KEY_CONCURRENCY}/{span_ms / times:.3f}"


def read_text(path: Path | str) -> str:
    """The text of a file of tokens or settings. A pipe will do.

    Raises:
        OSError: it can't be read, or is too large: a device may never end.
        UnicodeDecodeError
    """
    with Path(path).open("rb") as file:
        text = file.read(MAX_FILE_BYTES + 1)
    if len(text) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return text.decode()


def topic_patch(
    changes: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]],
    removed: Iterable[str] = (),
    left: Iterable[str] = (),
) -> tuple[str, str, str, str]:
    """The JSON arguments of ``register_topic``: settings to change, groups to add or change, groups to remove, and
    those that are gone from every shard.
    """
    return (
        json.dumps(dict(changes)),
        json.dumps({name: dict(own) for name, own in groups.items()}),
        json.dumps(dict.fromkeys(removed, True)),
        json.dumps(dict.fromkeys(left, True)),
    )
