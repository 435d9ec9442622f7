"""Questions that newcomers ask: each has a section that answers it, and a search for a word or two leads there."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest

from tests.docs.reader import ROOT, pages
from tests.docs.test_pages import name_of
from tests.docs.test_search_terms import sections

QUESTIONS = {
    "How do I run one job later, in half an hour?": ("job later time delay", "schedules#one-job-at-a-later-time"),
    "How do I run a job every day at nine?": ("cron expressions", "schedules#cron-expressions"),
    "How do I avoid enqueuing the same job twice?": ("duplicate job", "uniqueness#notice-a-duplicate"),
    "My handler failed. What happens next?": ("handler fails", "handlers#when-a-handler-fails"),
    "Where are failed jobs, and how do I run them again?": ("dead letters", "handlers#dead-letters"),
    "How do I test a handler that waits for a day?": ("test handler clock", "testing#the-clock"),
    "How do I see whether my code enqueued a job?": ("test check enqueued", "testing#check-what-was-enqueued"),
    "How many workers do I need?": ("how many workers", "faq#how-many-workers-do-i-need"),
    "What happens when Redis restarts?": ("Redis restarts", "faq#what-happens-when-redis-is-down-or-restarts"),
    "How do I stop a worker without losing jobs?": ("stop a worker SIGTERM", "deploying#stop-a-worker-gracefully"),
    "How do I use it from PHP?": ("curl", "http#try-it-with-curl"),
    "Jobs are late. What do I do?": ("late", "faq#jobs-are-late-or-stuck-what-now"),
}
"""By question, what one types into the search, and the section that answers."""

_FIRST = 5
"""As many results are seen without scrolling."""
_WORD = re.compile(r"[a-z0-9]+")
_TITLE_COUNTS = 8


class Section(NamedTuple):
    address: str
    title: Counter[str]
    text: Counter[str]


@cache
def index() -> list[Section]:
    """Every section of the guides. The reference is left out: newcomers read pages first."""
    found = []
    for path in pages():
        if ROOT / "docs" in path.parents and not {"reference", "decisions"} & {*path.parts}:
            for anchor, title, text in sections(name_of(path)):
                found.append(Section(f"{name_of(path)}#{anchor}", _words(title), _words(text)))
    return found


def _words(text: str) -> Counter[str]:
    return Counter(word.removesuffix("s") for word in _WORD.findall(text.lower()))


def search(query: str) -> list[str]:
    """The first sections, by how often they have the words; rare words and titles count more, long sections less."""
    found = index()
    scores: Counter[str] = Counter()
    for word in _words(query):
        having = [one for one in found if word in one.title or word in one.text]
        rare = math.log(1 + len(found) / (1 + len(having)))
        for one in having:
            times = one.text[word] + _TITLE_COUNTS * one.title[word]
            long = 0.5 + one.text.total() / 150
            scores[one.address] += rare * times / (times + long)  # type: ignore[assignment]
    return [address for address, _ in scores.most_common(_FIRST)]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_search_leads_to_the_answer(question: str) -> None:
    query, answer = QUESTIONS[question]
    assert answer in search(query)


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_read_in_two_minutes(question: str) -> None:
    answer = QUESTIONS[question][1]
    (section,) = (one for one in index() if one.address == answer)
    assert 20 < section.text.total() < 400, "at two hundred words a minute"
