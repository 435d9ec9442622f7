"""The settings that the docs list are those that there are, with their defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from docs.generate import parts
from streamdq.callback import CallbackSettings
from streamdq.config import HttpSettings, Settings

ROOT = Path(__file__).parents[2]
UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def number(cell: str) -> float | None:
    """What a cell begins with: 10 s, 1 MiB, 500, each with …; None: no number."""
    found = re.match(r"([\d, ]+)(KiB|MiB|GiB)?", cell.strip())
    return float(found[1].replace(",", "")) * UNITS.get(found[2] or "", 1) if found and found[1].strip() else None


@pytest.mark.parametrize("settings", [Settings, HttpSettings, CallbackSettings])
def test_every_setting_is_described_and_has_its_row_in_the_reference(settings: type[BaseModel]) -> None:
    made = {Settings: parts.settings, HttpSettings: parts.http_settings, CallbackSettings: parts.callback_settings}
    rows = re.findall(r"^\| `STREAMDQ_(?:HTTP_|CALLBACK_)?(\w+)` \| (.+?) \| (.*) \|$", made[settings](), re.MULTILINE)

    defaults = {name.upper(): field.default for name, field in settings.model_fields.items()}
    assert [name for name, _, _ in rows] == list(defaults)
    assert all(text.endswith(".") for _, _, text in rows)
    for name, reported, _ in rows:
        assert reported in ("none", f"`{defaults[name]}`", f"`{defaults[name]}`".lower())
    assert f"<!-- generated: {made[settings].__name__} -->" in page("reference/settings.md")


def test_the_page_of_the_server_has_all_its_limits() -> None:
    rows = dict(re.findall(r"`STREAMDQ_HTTP_(\w+)` \| (.+) \|$", page("serve.md"), re.MULTILINE))

    defaults = {name.upper(): field.default for name, field in HttpSettings.model_fields.items()}
    numbers = {name: value for name, value in defaults.items() if not isinstance(value, str)}
    assert rows.keys() == numbers.keys()
    for name, reported in rows.items():
        assert number(reported) == (numbers[name] or None), name
    for name in defaults.keys() - numbers.keys():
        assert f"STREAMDQ_HTTP_{name}" in page("serve.md")


def test_the_callback_page_has_all_settings() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", page("callbacks.md"), re.MULTILINE))

    assert rows.keys() == CallbackSettings.model_fields.keys()
    for name, reported in rows.items():
        default = CallbackSettings.model_fields[name].default
        assert not isinstance(default, int | float) or number(reported) == default


@pytest.mark.parametrize(
    ("settings", "prefix"),
    [
        (Settings, Settings.env_prefix),
        (HttpSettings, HttpSettings.env_prefix),
        (CallbackSettings, CallbackSettings.env_prefix),
    ],
)
def test_no_page_names_a_setting_that_is_none(settings: type[BaseModel], prefix: str) -> None:
    others = (
        {"HTTP", "CALLBACK", "ARCHIVE", "OUTBOX", "REDIS_SERVER", "SPARK_MEMORY", "LOG_FORMAT", "HEALTH_FILE"}
        if settings is Settings
        else set()
    )
    known = {name.upper() for name in settings.model_fields}
    known |= {"WORKER"} if settings is Settings else set()  # of Django's settings (streamdq.contrib.django)
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]:
        for name in re.findall(rf"{prefix}([A-Z]\w*[A-Z])\b", path.read_text()):
            assert name in known or any(name == other or name.startswith(f"{other}_") for other in others), path
