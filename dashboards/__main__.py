"""Builds the dashboards and rules: ``python -m dashboards [--pages URL]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from .alerts import PAGES
from .coming_load import coming_load
from .overview import overview
from .rules import rules
from .topic import topic

HERE = Path(__file__).parent


def built(pages: str = PAGES) -> Mapping[Path, str]:
    """Every built file and its content."""
    return {
        HERE / "grafana" / "overview.json": overview(),
        HERE / "grafana" / "topic.json": topic(),
        HERE / "grafana" / "coming-load.json": coming_load(),
        HERE / "prometheus" / "streamdq.rules.yml": rules(pages=pages),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="dashboards", description="Build Grafana dashboards and Prometheus rules.")
    parser.add_argument("--pages", default=PAGES, help="where alerts link to: the address of docs/runbook")
    pages = parser.parse_args().pages
    if pages != PAGES and not pages.startswith(("https://", "http://")):
        parser.error(f"--pages {pages}: alerts can only link to an http or https address")
    for path, text in built(pages).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(HERE.parent)}\n")


if __name__ == "__main__":
    main()
