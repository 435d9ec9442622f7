"""The TypeScript client: its types are those of the server's description, and it works with a live server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from streamdq.http import create_app
from streamdq.http.auth import Role, new_token
from streamdq.http.problems import KINDS
from tests.http.live import Live

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "typescript"
OLDEST_NODE = (20, 3)
NO_NETWORK = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH)\b")


def node_version() -> tuple[int, ...]:
    output = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return tuple(map(int, output.strip().removeprefix("v").split(".")))


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200, check=False
    )


def checked(*command: str, cwd: Path, **environment: str) -> str:
    done = run(*command, cwd=cwd, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, installed as the lock file says."""
    if missing := [program for program in ("node", "npm") if shutil.which(program) is None]:
        pytest.skip(f"no {' and no '.join(missing)} on this machine")
    if node_version() < OLDEST_NODE:
        pytest.skip(f"the client needs Node {'.'.join(map(str, OLDEST_NODE))} or later")
    copy = tmp_path_factory.mktemp("client") / "typescript"
    shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "build"))
    done = run("npm", "ci", "--ignore-scripts", "--prefer-offline", cwd=copy)
    if done.returncode and (found := NO_NETWORK.search(done.stderr)):
        pytest.skip(f"the npm registry can't be reached: {found[0]}")
    assert done.returncode == 0, done.stdout + done.stderr
    return copy


def described() -> dict[str, Any]:
    """What ``streamdq serve`` answers at /openapi.json."""
    found: dict[str, Any] = create_app("memory://unused", authentication="mine").openapi()
    return found


def test_the_description_that_is_kept_is_the_servers() -> None:
    kept = json.loads((CLIENT / "openapi.json").read_text())
    assert kept == described(), "run `make client`"


def test_each_problem_of_the_server_has_a_class() -> None:
    source = (CLIENT / "src" / "errors.ts").read_text()
    classes = source.partition("export const CLASSES = {")[2].partition("} as const")[0]
    assert set(re.findall(r"^  \"?([a-z-]+)\"?: \w+,$", classes, re.MULTILINE)) == KINDS.keys()


def test_the_lock_file_has_checksums_and_leaves_the_registry_to_npms_configuration() -> None:
    lock = json.loads((CLIENT / "package-lock.json").read_text())
    assert len(lock["packages"]) > 10
    for name, package in lock["packages"].items():
        assert "resolved" not in package, name
        assert name == "" or package["integrity"], name


@pytest.mark.thorough
def test_the_types_are_those_of_the_description(package: Path) -> None:
    (package / "openapi.json").write_text(json.dumps(described(), indent=2) + "\n")
    checked("npm", "run", "generate", cwd=package)
    made, kept = ((folder / "src" / "schema.ts").read_text() for folder in (package, CLIENT))
    assert made == kept, "run `make client`"


@pytest.mark.thorough
def test_the_examples_of_its_page_compile(package: Path) -> None:
    blocks = re.findall(r"^```ts\n(.+?)^```$", (package / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 2
    for number, block in enumerate(blocks):
        (package / "test" / f"page{number}.ts").write_text(block)
    checked("npm", "run", "build", cwd=package)
    checked("npx", "tsc", "--noEmit", "--project", "tsconfig.test.json", cwd=package)
    for number in range(len(blocks)):
        (package / "test" / f"page{number}.ts").unlink()


@pytest.mark.thorough
def test_it_works_with_a_live_server(package: Path, tmp_path: Path) -> None:
    """Types, build, and its own tests; a server with an embedded Redis."""
    checked("npm", "run", "check", cwd=package)
    tokens = {role: new_token(role.value, [role]) for role in (Role.ADMIN, Role.PRODUCER)}
    (tmp_path / "tokens").write_text("".join(f"{line}\n" for _, line in tokens.values()))
    with Live(f"embedded://{tmp_path}/data", "--tokens-file", str(tmp_path / "tokens")) as live:
        output = checked(
            "npm", "test", cwd=package,
            STREAMDQ_TEST_URL=live.url,
            STREAMDQ_TEST_ADMIN=tokens[Role.ADMIN][0],
            STREAMDQ_TEST_PRODUCER=tokens[Role.PRODUCER][0],
        )  # fmt: skip
    passed = re.search(r"^\S* ?pass (\d+)$", output, re.MULTILINE)
    assert passed is not None, output
    assert int(passed[1]) > 10
