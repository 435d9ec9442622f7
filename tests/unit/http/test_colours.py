"""The contrast of the page's colours, light and dark, as WCAG 2.2 AA asks: 4.5 of text, 3 of shapes."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = (files("streamdq.http") / "static" / "app.css").read_text()
BEHIND = ("card", "page", "hover")
TEXT = ("text", "quiet", "link", "delayed", "ready", "running", "dead", "good", "fair", "bad")
SHAPES = ("accent", "control", "mover-bar", "worker-bar", "ran-bar", "done-bar", "failed-bar", "good", "fair", "bad")


def colours(block: str) -> dict[str, str]:
    found = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{3,6})\b", block))
    return {
        name: "#" + "".join(2 * c for c in value[1:]) if len(value) == 4 else value for name, value in found.items()
    }


LIGHT_BLOCK, DARK_BLOCK = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
THEMES = {"light": colours(LIGHT_BLOCK), "dark": colours(LIGHT_BLOCK) | colours(DARK_BLOCK)}


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_measure_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
def test_text_can_be_read(theme: str) -> None:
    known = THEMES[theme]
    pairs = [(text, behind) for text in TEXT for behind in BEHIND]
    pairs += [("text", "note"), ("bad", "note"), ("link", "note"), ("accent-text", "accent")]
    for text, behind in pairs:
        assert contrast(known[text], known[behind]) >= 4.5, (text, behind)


@pytest.mark.parametrize("theme", THEMES)
def test_shapes_stand_out_from_what_is_behind_them(theme: str) -> None:
    known = THEMES[theme]
    for shape in SHAPES:
        for behind in ("card", "page"):
            assert contrast(known[shape], known[behind]) >= 3, (shape, behind)


def test_every_colour_is_one_of_these() -> None:
    """A rule below the themes names no colour of its own, so no pair is left out."""
    rules = CSS[CSS.index("* { box-sizing") :]
    assert re.findall(r"#[0-9a-f]{3,8}\b(?!-)", rules) == []
    for name in set(re.findall(r"var\(--([\w-]+)\)", rules)) - {"mono", "shadow"}:
        for theme, known in THEMES.items():
            assert name in known, (theme, name)
