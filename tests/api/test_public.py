"""Nothing public changes by accident."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.api import __main__ as command
from tests.api import snapshot
from tests.api.snapshot import Snapshot, public_names
from tests.docs.reader import ROOT

ADVICE = """
Public names differ from tests/api/public.txt. `-` is what it has, `+` what the code has.

  - not meant: take the change back;
  - meant: write in CHANGELOG.md, [Unreleased], what users will notice, and run `make api`;
  - a `-` is incompatible: from 1.0 on, only after a deprecation (docs/stability.md).

"""


def test_public_names_change_with_the_changelog_alone() -> None:
    changed = [*Snapshot.stored().differences(public_names())]
    assert not changed, ADVICE + "\n".join(changed)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command works on a copy of the changelog and writes into this file."""
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    monkeypatch.setattr(snapshot, "ROOT", tmp_path)
    monkeypatch.setattr(snapshot, "FILE", tmp_path / "public.txt")
    monkeypatch.setattr(command, "public_names", lambda: ["python one", "python three"])
    return tmp_path


def test_a_change_is_written_when_the_changelog_has_one(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Snapshot(["python one", "python two"], snapshot.unreleased()).write()
    before = (elsewhere / "public.txt").read_text()

    assert command.main() == 1
    assert (elsewhere / "public.txt").read_text() == before
    assert "[Unreleased]" in capsys.readouterr().err

    assert command.main("--covered") == 0
    (elsewhere / "public.txt").write_text(before)
    capsys.readouterr()

    changelog = elsewhere / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n- three\n", 1))
    assert command.main() == 0
    assert capsys.readouterr().out == "- python two\n+ python three\n"
    assert Snapshot.stored() == Snapshot(["python one", "python three"], snapshot.unreleased())


@pytest.mark.usefixtures("elsewhere")
def test_words_alone_change_nothing() -> None:
    Snapshot(["python one", "python three"], "other words").write()
    assert command.main() == 0
    assert Snapshot.stored().changelog == "other words"
