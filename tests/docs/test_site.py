"""The documentation site: no link in it is broken, and it needs nothing from elsewhere. That it builds strictly is what
`make docs` tells; what needs a built site is tried by `make test-all`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

import streamdq
from docs.generate.__main__ import main as print_part
from docs.generate.links import with_links
from docs.generate.methods import _apart
from docs.generate.openapi import operations
from docs.generate.parts import PARTS, filled
from docs.generate.sections import split
from docs.generate.terminal import typed_in, with_copies
from docs.images.diagrams import DRAWINGS, drawn
from streamdq import errors
from streamdq.cli.app import app
from tests.docs.reader import blocks
from tests.docs.test_questions import QUESTIONS
from tests.docs.test_search_terms import ANSWERS, SENTENCES
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[2]


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(site)]
    return subprocess.run(
        words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=200
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


class Seen(HTMLParser):
    """What a page links to, loads, and can be linked to by."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loaded.add(given["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loaded.add(given["src"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Seen]:
    """By path, as a server would be asked for it."""
    found = {f"/{path.relative_to(site)}": Seen(path.read_text()) for path in site.rglob("*.html")}
    return {path.removesuffix("index.html"): seen for path, seen in found.items()}


@pytest.mark.thorough
def test_no_link_and_no_anchor_is_broken(site: Path, pages: dict[str, Seen]) -> None:
    broken, checked = [], 0
    for path, seen in pages.items():
        if path == "/404.html":  # its links begin at the root, wherever it is shown
            continue
        for link in seen.links | seen.loaded:
            there = urlsplit(urljoin(f"http://here{path}", link))
            if there.netloc != "here":
                continue
            checked += 1
            target = unquote(there.path)
            fragment = unquote(there.fragment)
            if target in pages:
                fine = not fragment or fragment in pages[target].anchors
            else:
                fine = (site / target.lstrip("/")).is_file()
            if not fine:
                broken.append((path, link))
    assert broken == []
    assert checked > 2000


@pytest.mark.thorough
def test_a_browser_loads_nothing_from_elsewhere(site: Path, pages: dict[str, Seen]) -> None:
    for seen in pages.values():
        assert not [url for url in seen.loaded if urlsplit(url).netloc]
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?https?:", style.read_text()), style


def test_links_to_files_lead_to_pages() -> None:
    text = "[a](../CHANGELOG.md) [b](../lua/claim.lua#x) [c](keys.md)\n```sh\n[d](../README.md)\n```\n[e](http://x/)"
    there, sources = with_links(text, "docs/a.md", "deeper/a.md")
    assert there.splitlines() == [
        "[a](../changelog.md) [b](../source/lua/claim.lua.md#x) [c](../keys.md)",
        "```sh", "[d](../README.md)", "```",
        "[e](http://x/)",
    ]  # fmt: skip
    assert sources == {"lua/claim.lua"}


PAGE = """# Reference

Begin with [b](#lib.B), [a method](#lib.A.do), or [elsewhere](../keys.md#x).

## The first

::: lib.A

See [b](#b-and-more).

## Second

::: lib.B

### `b` and more

```console
$ # no title
## nor this
```

### Named { #own-name }
"""


def test_a_section_has_a_page_and_links_find_it() -> None:
    found = split("reference/it.md", PAGE)
    index, first, second = (text for _, text in found.pages())
    assert [uri for uri, _ in found.pages()] == [f"reference/it/{one}.md" for one in ("index", "the-first", "second")]
    assert "[b](second.md#lib.B), [a method](the-first.md#lib.A.do), or [elsewhere](../../keys.md#x)" in index
    assert re.findall(r'id="(.+?)"></a>\[', index) == ["lib.A", "lib.B", "b-and-more", "own-name"], "for old links"
    assert first.startswith(
        "# The first – Reference { #the-first }\n\nA part of [Reference](index.md).\n\n::: lib.A\n\nSee [b]("
    )
    assert "## nor this" in second
    assert found.page_with("second") == "reference/it/second.md"
    assert found.page_with("") == "reference/it/index.md"


def test_the_button_of_a_terminal_copies_what_is_typed() -> None:
    assert typed_in("$ a | b \\\n    --c\nprinted\n\n$ d\nmore $ e") == "a | b \\\n    --c\nd"
    shown = '<code><span class="gp">$ </span>a<span class="w"> </span>&#39;b&#39;\n<span class="go">out</span>\n</code>'
    assert with_copies(shown) == shown.replace("<code>", '<code data-copy="a &#x27;b&#x27;">', 1)
    assert with_copies("<code>$ a</code>") == "<code>$ a</code>"


def test_code_to_compare_is_seen_whole_on_a_small_screen() -> None:
    guides = sorted((ROOT / "docs" / "migrating").glob("*.md"))
    code = [
        (page.name, line) for page in guides for block in blocks(page) if block.title for line in block.text.split("\n")
    ]
    assert len(code) > 100
    assert [one for one in code if len(one[1]) > 80] == []


# -- what is generated


@pytest.mark.thorough
def test_all_that_is_public_is_in_the_reference(pages: dict[str, Seen]) -> None:
    names = set(streamdq.__all__) - {"__version__", "CallNext", "Settings"}
    raised = {name for name in names if hasattr(errors, name)}
    index = pages["/reference/python/"].anchors
    sections = {
        anchor for path, seen in pages.items() if path.startswith("/reference/python/") for anchor in seen.anchors
    }
    assert {f"streamdq.{name}" for name in names - raised} <= index & sections
    assert {name.lower() for name in raised} <= pages["/reference/errors/"].anchors
    assert len(raised) > 30


@pytest.mark.thorough
def test_the_methods_of_a_queue_are_shown_with_their_signatures(site: Path, pages: dict[str, Seen]) -> None:
    methods = {name for name, value in vars(streamdq.Queue).items() if not name.startswith("_") and callable(value)}
    assert {f"streamdq.Queue.{name}" for name in methods} <= pages["/reference/python/queue/"].anchors
    text = re.sub(r"<[^>]+>|\s", "", (site / "reference/python/queue/index.html").read_text())
    assert "enqueue(topic:str,body:Any=NO_BODY,*,delay:Duration|None=None" in text


@pytest.mark.thorough
def test_every_command_is_in_the_reference(site: Path) -> None:
    text = "".join(page.read_text() for page in (site / "reference/cli").glob("*/index.html"))
    names = [
        command.name
        for part in app.registered_groups
        if part.typer_instance
        for command in part.typer_instance.registered_commands
    ]
    assert len(names) > 15
    assert [name for name in names if name and f"streamdq {name}" not in text] == []


@pytest.mark.thorough
def test_a_search_finds_titles_and_names(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    titles = {one["location"]: re.sub("<[^>]+>", "", one["title"]) for one in found}
    assert titles["analytics/#plan-workers"] == "Plan workers"
    assert titles["reference/python/queue/#streamdq.Queue.enqueue"] == "enqueue"
    assert titles["reference/cli/jobs/#streamdq-enqueue"] == "streamdq enqueue"
    assert titles["reference/analytics/failures/#advice"] == "advice"


NAMES = {
    "STREAMDQ_URL": "reference/settings/",
    "StaleClaim": "reference/errors/",
    "enqueue_many": "reference/python/queue/",
    "key_concurrency": "keys/",
    "on_conflict": "uniqueness/",
    "streamdq worker": "reference/cli/workers/",
    "streamdq_jobs": "metrics/",
}
"""By a name, the page that explains it."""


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
def test_the_search_of_the_site_leads_to_the_answers(site: Path) -> None:
    """The script that a browser runs, with the index that it loads. Five pages are seen without scrolling."""
    wanted = ANSWERS | SENTENCES | dict(QUESTIONS.values())
    found = search(site, [*wanted, *NAMES])
    sections = {query: [one for page in found[query][:5] for one in page] for query in wanted}
    assert {query for query in wanted if _address(wanted[query]) not in sections[query]} == set()
    assert {
        name for name, page in NAMES.items() if not any(one[0].startswith(page) for one in found[name][:3])
    } == set()


def _address(section: str) -> str:
    page, _, anchor = section.partition("#")
    return f"{page}/#{anchor}" if anchor else f"{page}/"


def search(site: Path, queries: list[str]) -> dict[str, list[list[str]]]:
    """By query, the addresses that are found, page by page."""
    words = ["node", str(Path(__file__).with_name("site_search.mjs")), str(site)]
    done = subprocess.run(words, input=json.dumps(queries), capture_output=True, text=True, check=True, timeout=HANG_S)
    return dict(json.loads(done.stdout))


def test_a_model_of_one_tag_is_on_its_page() -> None:
    def refers(*models: str) -> dict[str, object]:
        schemas = [{"$ref": f"#/components/schemas/{model}"} for model in models]
        content = {"application/json": {"schema": {"anyOf": schemas}}}
        return {"description": "", "content": content}

    def operation(tag: str, *models: str) -> dict[str, object]:
        return {"tags": [tag], "summary": tag, "operationId": tag, "responses": {"200": refers(*models)}}

    part = {"properties": {"part": {"$ref": "#/components/schemas/Part"}}}
    text = operations({
        "paths": {"/a": {"get": operation("jobs", "Job", "Both")}, "/b": {"get": operation("topics", "Topic", "Both")}},
        "components": {"schemas": {"Both": {}, "Job": part, "Part": {}, "Topic": {}}},
    })  # fmt: skip
    titles = re.findall(r"^#+ (\w+(?: models)?)", text, re.MULTILINE)
    assert titles == ["Jobs", "jobs", "Job", "Part", "Topics", "topics", "Topic", "Common models", "Both"]


@pytest.mark.parametrize("page", ["metrics", *(f"reference/{name}" for name in ("cli", "errors", "http", "settings"))])
def test_a_generated_page_says_in_a_checkout_what_shows_the_same(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert re.search(r"^In a checkout, this .+?`.+?`", text, re.MULTILINE | re.DOTALL)
    for part in re.findall(r"`python -m docs\.generate (\w+)`", text):
        assert part in PARTS
    assert "In a checkout" not in filled(text)


def test_a_part_of_the_reference_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_part(["settings"]) == 0
    assert "`STREAMDQ_URL`" in capsys.readouterr().out
    assert print_part(["nothing"]) == 2


def test_exceptions_that_share_a_line_get_one_each() -> None:
    assert _apart("    A, B: why\n    not.\n    Cd\n") == "    A:\n    B: why\n        not.\n    Cd:"


@pytest.mark.thorough
def test_llms_txt_has_every_page(site: Path, pages: dict[str, Seen]) -> None:
    listed = re.findall(r"^- \[.+\]\((.+)\): \S", (site / "llms.txt").read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed)) > 30
    assert all((site / page).is_file() for page in listed)
    navigable = {path for path in pages if not path.startswith("/source/")} - {"/404.html"}
    assert len(listed) == len(navigable)
    everything = (site / "llms-full.txt").read_text()
    assert all(f"<!-- {page} -->" in everything for page in listed)
    assert "\n<!-- generated" not in everything


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_diagram_is_what_its_source_draws(name: str) -> None:
    assert (ROOT / "docs" / "images" / f"diagram-{name}.svg").read_text() == drawn(name)
