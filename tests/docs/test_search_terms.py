"""What people look for by the words of other queues leads to an answer, also where the answer is no."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.test_pages import page

ANSWERS = {
    "abort": "abort#abort-a-running-job",
    "acks_late": "glossary#words-from-other-queues",
    "audit log": "faq#is-there-an-audit-log-of-what-operators-did",
    "autoscale": "faq#does-it-autoscale",
    "backoff": "handlers#when-a-handler-fails",
    "beat": "faq#is-there-a-beat-or-cron-process",
    "chain": "faq#are-there-chains-groups-and-chords",
    "chord": "faq#are-there-chains-groups-and-chords",
    "countdown": "glossary#words-from-other-queues",
    "CPU-bound": "handlers#cpu-bound-work",
    "cron": "faq#is-there-a-beat-or-cron-process",
    "DAG": "faq#are-there-chains-groups-and-chords",
    "daylight saving": "faq#which-timezone-applies",
    "dead-letter queue": "faq#is-there-a-dead-letter-queue-dlq",
    "debounce": "glossary#words-from-other-queues",
    "debugger": "local-development#debug-a-handler",
    "deduplication": "glossary#words-from-other-queues",
    "depends_on": "faq#are-there-chains-groups-and-chords",
    "DLQ": "faq#is-there-a-dead-letter-queue-dlq",
    "encrypt": "faq#is-data-encrypted",
    "ETA": "glossary#words-from-other-queues",
    "exactly once": "faq#is-a-job-run-exactly-once-or-can-it-run-twice",
    "exponential backoff": "faq#is-there-exponential-backoff-or-jitter",
    "fairness": "faq#is-there-fairness-between-topics-customers-or-tenants",
    "FIFO": "faq#are-jobs-in-order-fifo",
    "Flower": "glossary#words-from-other-queues",
    "fork": "faq#can-i-use-gevent-or-fork",
    "GDPR": "faq#what-about-gdpr-and-personal-data",
    "gevent": "faq#can-i-use-gevent-or-fork",
    "GIL": "handlers#cpu-bound-work",
    "healthcheck": "faq#how-do-i-healthcheck-a-worker",
    "heartbeat": "handlers#touch-the-heartbeat-of-a-long-handler",
    "idempotency key": "idempotency#pass-an-idempotency-key",
    "jitter": "faq#is-there-exponential-backoff-or-jitter",
    "Kafka": "when-not#very-high-rates",
    "kill": "faq#can-i-cancel-abort-or-kill-a-running-job",
    "memory": "faq#how-much-memory-does-a-job-take",
    "multi-tenant": "faq#how-do-i-make-it-multi-tenant",
    "OAuth": "faq#is-there-sso-oauth-or-ldap-for-the-operations-page",
    "payload": "glossary#words-from-other-queues",
    "pickle": "faq#can-i-use-pickle-or-pass-objects",
    "poison": "handlers#dead-letters",
    "PostgreSQL": "faq#can-i-use-rabbitmq-sqs-kafka-or-postgresql-instead",
    "prefetch": "glossary#words-from-other-queues",
    "permissions": "faq#who-may-see-retry-or-purge-jobs",
    "priority": "faq#can-a-job-have-a-priority",
    "progress": "abort#report-progress",
    "RabbitMQ": "faq#can-i-use-rabbitmq-sqs-kafka-or-postgresql-instead",
    "rate": "faq#can-i-limit-the-rate",
    "redrive": "glossary#words-from-other-queues",
    "requeue": "glossary#words-from-other-queues",
    "result backend": "faq#where-are-results",
    "results": "faq#where-are-results",
    "retention": "faq#how-long-is-the-retention",
    "revoke": "glossary#words-from-other-queues",
    "SSO": "faq#is-there-sso-oauth-or-ldap-for-the-operations-page",
    "stalled": "glossary#words-from-other-queues",
    "throttle": "glossary#words-from-other-queues",
    "timezone": "faq#which-timezone-applies",
    "TLS": "redis#tls",
    "twice": "faq#is-a-job-run-exactly-once-or-can-it-run-twice",
    "unique": "uniqueness#recipes",
    "visibility timeout": "faq#what-is-the-difference-between-ttr-and-a-visibility-timeout",
    "webhook": "any-language#receive-webhooks",
    "Windows": "faq#does-it-run-on-windows",
    "workflow": "when-not#workflows",
}
"""By a term, the page and section that answers it."""

_TITLE = re.compile(r"^(#+) +(.+?)(?: +\{.*\})?$", re.MULTILINE)
_CODE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def sections(name: str) -> Iterator[tuple[str, str, str]]:
    """The anchor, the title and the text of each section of a page, without blocks of code."""
    text = _CODE.sub("", page(name).read_text())
    titles = list(_TITLE.finditer(text))
    for title, following in zip(titles, [*titles[1:], None], strict=True):
        yield anchor(title[2]), title[2], text[title.end() : following.start() if following else None]


def anchor(title: str) -> str:
    """As the site and GitHub make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("term", ANSWERS)
def test_a_term_leads_to_its_answer(term: str) -> None:
    name, _, wanted = ANSWERS[term].partition("#")
    found = {anchor: f"{title}\n{text}" for anchor, title, text in sections(name)}
    assert wanted in found
    assert re.search(rf"\b{re.escape(term)}", found[wanted], re.IGNORECASE)


def test_each_question_has_an_answer() -> None:
    questions = [(title, text) for _, title, text in sections("faq") if title.endswith("?")]
    assert len(questions) > 30
    assert [title for title, text in questions if not text.strip()] == []


def test_the_glossary_is_in_order() -> None:
    words = re.findall(r"^(\w[\w ]*)\n: ", page("glossary").read_text(), re.MULTILINE)
    assert len(words) > 25
    assert words == sorted(words, key=str.lower)
