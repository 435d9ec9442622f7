"""What the forge reads: workflows, forms and the citation are valid, and the workflows have no known weakness."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.turns import others_later
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
FILES = {
    "vendor.github-workflows": [".github/workflows/ci.yml", ".github/workflows/release.yml"],
    "custom.github-workflows-require-timeout": [".github/workflows/ci.yml", ".github/workflows/release.yml"],
    "vendor.github-issue-forms": [".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/feature.yml"],
    "vendor.github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "vendor.dependabot": [".github/dependabot.yml"],
    "vendor.citation-file-format": ["CITATION.cff"],
    "vendor.compose-spec": ["examples/compose/compose.yaml", "examples/production/compose.yaml"],
}


def test_each_file_has_a_schema() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / ".github").rglob("*.yml")} - {".github/zizmor.yml"}
    assert files <= {file for names in FILES.values() for file in names}


@pytest.mark.parametrize("schema", others_later(FILES, "vendor.github-workflows"))
def test_they_are_valid(schema: str) -> None:
    _run("check-jsonschema", "--builtin-schema", schema, *(ROOT / name for name in FILES[schema]))


def test_the_workflows_have_no_known_weakness() -> None:
    _run("zizmor", "--offline", "--no-progress", ROOT / ".github")


def _run(program: str, *words: str | Path) -> None:
    done = subprocess.run([BIN / program, *words], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
