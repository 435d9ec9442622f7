"""Whatever is built from the checkout has one version, that of streamdq/version.py."""

import json
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from zipfile import Path as ZipPath

import pytest
import yaml
from packaging.version import Version

from streamdq.version import __version__

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "typescript"


def as_semver(version: str) -> str:
    """As npm and Helm write it: 0.2.0-dev.0 for 0.2.0.dev0."""
    parsed = Version(version)
    return parsed.base_version if parsed.dev is None else f"{parsed.base_version}-dev.{parsed.dev}"


@pytest.mark.parametrize(("python", "others"), [("0.2.0.dev0", "0.2.0-dev.0"), ("1.0.0", "1.0.0")])
def test_npm_and_helm_write_versions_in_their_own_way(python: str, others: str) -> None:
    assert as_semver(python) == others


@pytest.mark.thorough
def test_the_wheel_takes_it_from_the_code(wheel: Path) -> None:
    found: Distribution = PathDistribution(ZipPath(wheel) / f"streamdq-{__version__}.dist-info/")
    assert found.version == __version__


def test_the_chart_runs_this_version() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "streamdq" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (as_semver(__version__), __version__)


def test_the_image_has_the_chart_s_tag() -> None:
    """1.0.0rc1 is no semantic version, and of one that is none the action would make no tag."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    (tags,) = [step["with"]["tags"] for step in jobs["image"]["steps"] if step.get("id") == "meta"]
    assert "type=pep440,pattern={{version}}" in tags.splitlines()


def test_the_client_was_made_of_this_version() -> None:
    package, lock, api = (
        json.loads((CLIENT / name).read_text()) for name in ("package.json", "package-lock.json", "openapi.json")
    )
    assert package["version"] == lock["version"] == lock["packages"][""]["version"] == as_semver(__version__)
    assert api["info"]["version"] == __version__
    assert f"streamdq-{package['version']}.tgz" in (CLIENT / "README.md").read_text()
