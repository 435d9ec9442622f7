"""Where the locale is not UTF-8, as under cron, uWSGI and mod_wsgi, everything works: files and pipes name their
encoding.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import HANG_S

ROOT = Path(__file__).parents[2]
PRODUCT = [path for folder in ("streamdq", "spark") for path in sorted((ROOT / folder).rglob("*.py"))]
PLACES = {"open": 0, "fdopen": 1, "NamedTemporaryFile": 0, "TemporaryFile": 0, "SpooledTemporaryFile": 1}
"""Where the mode stands among the arguments; for the function ``open``, one later than for the method."""
BYTES = {
    "LocalFolder", "folder", "_folder", "_system", "ProcessFiles", "EmbeddedServer", "os", "webbrowser", "tarfile",
    "Link",
}  # fmt: skip
"""Whose ``open`` returns bytes, or no file."""
ANY_TEXT = {"getpreferredencoding", "getoutput", "getstatusoutput", "popen"}
_LOOKS_LIKE_ONE = re.compile(
    rf"\b(?:{'|'.join([*PLACES, *ANY_TEXT])}|read_text|write_text|TextIOWrapper)\(|\b(?:text|universal_newlines)="
)


def unnamed(code: str) -> list[str]:
    """Calls that read or write text, in the encoding of the locale."""
    if not _LOOKS_LIKE_ONE.search(code):  # to parse all files takes a second
        return []
    return [ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call) and is_unnamed(node)]


def is_unnamed(call: ast.Call) -> bool:
    made = call.func
    name = made.attr if isinstance(made, ast.Attribute) else made.id if isinstance(made, ast.Name) else ""
    given = {keyword.arg for keyword in call.keywords}
    if "encoding" in given:
        return False
    if name in ANY_TEXT:
        return True
    if name in ("read_text", "TextIOWrapper"):
        return len(call.args) == (name == "TextIOWrapper")
    if name == "write_text":
        return len(call.args) == 1
    if name in PLACES:
        return is_of_text(call, PLACES[name] + (name == "open" and isinstance(made, ast.Name)), name)
    return bool(given & {"text", "universal_newlines"}) and name not in ("VariableOption", "ValueMappingResult")


def is_of_text(call: ast.Call, place: int, name: str) -> bool:
    made = call.func
    if isinstance(made, ast.Attribute) and ast.unparse(made.value).rpartition(".")[2] in BYTES and name == "open":
        return False
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] + call.args[place : place + 1]
    default = "w+b" if name.endswith("TemporaryFile") else "r"
    mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else default
    return "b" not in str(mode)


def test_every_file_and_pipe_of_the_product_names_its_encoding() -> None:
    found = {str(path.relative_to(ROOT)): unnamed(path.read_text(encoding="utf-8")) for path in PRODUCT}
    assert {file: calls for file, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    "call",
    [
        "open('a')", "open('a', 'w')", "path.open()", "path.open('a')", "path.read_text()", "path.write_text('a')",
        "subprocess.run([], text=True)", "os.fdopen(1, 'w')", "io.TextIOWrapper(a)", "NamedTemporaryFile('w')",
        "locale.getpreferredencoding()",
    ],
)  # fmt: skip
def test_one_that_does_not_is_found(call: str) -> None:
    assert unnamed(call) == [call]


@pytest.mark.parametrize(
    "call",
    [
        "open('a', 'rb')", "open('a', encoding='utf-8')", "path.open('wb')", "path.read_text('utf-8')",
        "path.write_text('a', encoding='utf-8')", "subprocess.run([])", "NamedTemporaryFile()", "os.fdopen(1, 'wb')",
        "os.open('a', 0)",
    ],
)  # fmt: skip
def test_bytes_need_none(call: str) -> None:
    assert unnamed(call) == []


# -- in the locale C

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SMOKE = """
import sys, warnings
warnings.filterwarnings("error", category=EncodingWarning, module=r"streamdq(\\..*)?$")
from zoneinfo import ZoneInfo
from streamdq import Queue, Worker
url = "embedded://" + sys.argv[1]
worker = Worker(url)

@worker.handler("ört", retry="none")
def handle(body: dict) -> None:
    raise ValueError("Größe " + body["größe"])

with Queue(url) as queue:
    queue.enqueue("ört", {"größe": "ä\\u4e16"}, id="jöb")
    queue.schedule("ört", {"größe": "x"}, id="täglich", cron="0 9 * * *", tz="Europe/Berlin")
    worker.run(burst="due")
    (dead,) = queue.dead("ört")
    assert (dead.id, dead.body) == ("jöb", {"größe": "ä\\u4e16"}), dead
    assert queue.audit().balanced
"""


@pytest.mark.thorough
def test_jobs_run_in_the_locale_c(tmp_path: Path) -> None:
    environment = {**os.environ, **C_LOCALE}
    home = tmp_path / "größe"
    python = [sys.executable, "-X", "warn_default_encoding"]

    def run(*arguments: str) -> str:
        ran = subprocess.run(
            [*python, *arguments], env=environment, cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=HANG_S,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    (tmp_path / "smoke.py").write_text(SMOKE, encoding="utf-8")
    run("smoke.py", str(home))
    assert "\\xf6rt" in run(
        "-m", "streamdq", "--url", f"embedded://{home}", "stats"
    )  # stdout's encoding lacks the letter
