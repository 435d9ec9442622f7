"""Whether the settings of this Redis are safe for jobs: the doctor shows all of it, a worker warns of the worst."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...errors import AuthenticationFailed, StreamdqError, UnsupportedServer
from ...link.session import Op
from ...store import namespace
from ...store.redis_store import RedisStore

_SOON_S = 1.0

Verdict = Literal["ok", "advice", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``problem``: jobs are stuck, or are lost when this Redis restarts or fills up;
    ``advice``: this may become a problem.
    """

    verdict: Verdict
    what: str
    advice: str = ""


def dangers(store: RedisStore) -> Op[list[Finding]]:
    """For a worker's start: a restart of Redis loses all jobs, or Redis deletes some when it is full. Nothing is found
    where this user may not ask, as with some managed servers, or where Redis does not answer soon.
    """
    if store.session.is_fake:
        return []
    try:
        info = yield from namespace.redis_info(store.session, _SOON_S)
        found = [memory_of(info)] if _evicts(info) else []
        if info.get("aof_enabled") == "0" and not (yield from namespace.snapshots(store.session, _SOON_S)):
            found.append(Finding("problem", "no append-only file and no snapshots", persistence_of(info).advice))
    except StreamdqError:
        return []
    return found


def version_of(info: Mapping[str, str]) -> Finding:
    name = info.get("server_name", "redis")
    version = info.get("valkey_version") or info.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < (6, 2):
        return Finding("problem", f"{name} {version}", "streamdq needs Redis 6.2 or later, or Valkey")
    return Finding("ok", f"{name} {version}, {info.get('redis_mode', 'standalone')}")


def persistence_of(info: Mapping[str, str]) -> Finding:
    if info.get("aof_enabled") == "1":
        if info.get("aof_last_write_status") == "err":
            return Finding("problem", "the AOF can't be written", "free space on Redis's disk, or fix its permissions")
        return Finding("ok", "append-only file is on")
    if info.get("rdb_last_bgsave_status") == "err":
        return Finding("problem", "the last snapshot failed", "free space on Redis's disk; CONFIG SET appendonly yes")
    return Finding(
        "problem",
        "no append-only file",
        "a restart of Redis loses jobs: CONFIG SET appendonly yes, and in redis.conf",
    )


def without_aof(store: RedisStore, info: Mapping[str, str]) -> Op[Finding]:
    """What a restart does to jobs, if ``persistence_of`` has found no append-only file. A managed service has no
    CONFIG; it keeps data by means that Redis does not tell of.
    """
    try:
        yield from namespace.snapshots(store.session)
    except UnsupportedServer:
        return Finding(
            "advice",
            "no append-only file, and CONFIG is no command here, as with managed services: whether a restart loses "
            "jobs can't be checked",
            "turn on persistence or replicas in the service's settings; with replicas, use durable='replicas:1'",
        )
    except AuthenticationFailed:
        found = persistence_of(info)
        return Finding(
            "problem", f"{found.what}; snapshots can't be checked, as this user lacks +config|get", found.advice
        )
    return persistence_of(info)


def memory_of(info: Mapping[str, str]) -> Finding:
    policy, limit = info.get("maxmemory_policy"), int(info.get("maxmemory", -1))
    if "maxmemory_policy" not in info:
        what = "INFO does not tell maxmemory-policy, so it can't be checked"
        return Finding(
            "advice", what, "it must be noeviction, or Redis may delete jobs: look at the service's settings"
        )
    if _evicts(info):
        return Finding("problem", f"maxmemory-policy is {policy}", "Redis may delete jobs: set it to noeviction")
    if limit == 0:
        half = int(info.get("total_system_memory", 0)) // 2 >> 20
        return Finding(
            "advice",
            "maxmemory is not set: when jobs fill the memory, the system kills Redis",
            f"set it well below the machine's memory, as in CONFIG SET maxmemory {half or 1024}mb, and in redis.conf: "
            "then Redis refuses new jobs, and workers go on",
        )
    used = int(info.get("used_memory", 0))
    if used > 0.9 * limit > 0:
        return Finding("problem", f"memory is {used / limit:.0%} full", "raise maxmemory: Redis will refuse new jobs")
    return Finding("ok", "maxmemory-policy is noeviction")


def _evicts(info: Mapping[str, str]) -> bool:
    return info.get("maxmemory_policy", "noeviction") != "noeviction"


def role_of(info: Mapping[str, str]) -> list[Finding]:
    if info.get("role") == "slave":
        return [Finding("problem", "this is a replica", "connect to its primary, or through Sentinel")]
    return []
