"""What people look for by the words of other queues leads to an answer, also where the answer is no."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.cases import each
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
    "dead-letter queue": "faq#where-are-failed-jobs-is-there-a-dead-letter-queue-dlq",
    "debounce": "glossary#words-from-other-queues",
    "debugger": "local-development#debug-a-handler",
    "deduplication": "glossary#words-from-other-queues",
    "depends_on": "faq#are-there-chains-groups-and-chords",
    "DLQ": "faq#where-are-failed-jobs-is-there-a-dead-letter-queue-dlq",
    "encrypt": "faq#is-data-encrypted",
    "ETA": "glossary#words-from-other-queues",
    "exactly once": "faq#is-a-job-run-exactly-once-or-can-it-run-twice",
    "exponential backoff": "faq#is-there-exponential-backoff-or-jitter",
    "fairness": "faq#is-there-fairness-between-topics-customers-or-tenants",
    "FIFO": "faq#are-jobs-in-order-fifo",
    "Flower": "glossary#words-from-other-queues",
    "fork": "faq#can-i-use-gevent-or-fork",
    "GDPR": "faq#what-about-gdpr-personal-data-and-the-right-to-be-forgotten",
    "gevent": "faq#can-i-use-gevent-or-fork",
    "GIL": "handlers#cpu-bound-work",
    "healthcheck": "faq#how-do-i-healthcheck-a-worker",
    "heartbeat": "handlers#touch-the-heartbeat-of-a-long-handler",
    "idempotency key": "idempotency#pass-an-idempotency-key",
    "jitter": "faq#is-there-exponential-backoff-or-jitter",
    "Kafka": "when-not#very-high-rates",
    "kill": "faq#can-i-cancel-abort-or-kill-a-running-job",
    "memory": "faq#how-much-memory-does-a-job-take-and-a-million-jobs",
    "multi-tenant": "faq#how-do-i-make-it-multi-tenant",
    "OAuth": "faq#is-there-sso-oauth-or-ldap-for-the-operations-page",
    "payload": "glossary#words-from-other-queues",
    "pickle": "faq#can-i-use-pickle-or-pass-objects",
    "poison": "handlers#dead-letters",
    "PostgreSQL": "faq#can-i-use-rabbitmq-sqs-kafka-or-postgresql-instead",
    "prefetch": "glossary#words-from-other-queues",
    "permissions": "faq#who-may-see-retry-or-purge-jobs",
    "priority": "faq#can-a-job-have-a-priority-so-that-urgent-jobs-run-first",
    "progress": "abort#report-progress",
    "RabbitMQ": "faq#can-i-use-rabbitmq-sqs-kafka-or-postgresql-instead",
    "rate": "faq#can-i-limit-the-rate",
    "redrive": "glossary#words-from-other-queues",
    "requeue": "glossary#words-from-other-queues",
    "result backend": "faq#how-do-i-get-a-jobs-result-or-return-value",
    "results": "faq#how-do-i-get-a-jobs-result-or-return-value",
    "retention": "faq#how-long-is-the-retention",
    "revoke": "glossary#words-from-other-queues",
    "SSO": "faq#is-there-sso-oauth-or-ldap-for-the-operations-page",
    "stalled": "glossary#words-from-other-queues",
    "throttle": "glossary#words-from-other-queues",
    "timezone": "faq#which-timezone-applies",
    "TLS": "redis#connect-with-a-password-and-tls",
    "twice": "faq#is-a-job-run-exactly-once-or-can-it-run-twice",
    "unique": "uniqueness#recipes",
    "visibility timeout": "faq#what-is-the-difference-between-ttr-and-a-visibility-timeout",
    "webhook": "any-language#receive-webhooks",
    "Windows": "faq#does-it-run-on-windows",
    "workflow": "when-not#workflows",
}
"""By a term, the page and section that answers it."""

SENTENCES = {
    "10 million jobs": "faq#how-many-jobs-a-second-can-it-handle-throughput-capacity-planning",
    "429": "callbacks#a-receiver-that-answers-429",
    "add a field to a body": "body-versions#add-a-field-to-a-body",
    "call a webhook later": "callbacks",
    "cancel a job that is running": "faq#can-i-cancel-abort-or-kill-a-running-job",
    "capacity planning": "faq#how-many-jobs-a-second-can-it-handle-throughput-capacity-planning",
    "change the delay of a job": "faq#can-i-change-the-delay-of-a-waiting-job",
    "clocks change": "schedules#when-clocks-change-daylight-saving-time",
    "connect to Redis with a password": "redis#connect-with-a-password-and-tls",
    "delete all jobs of a topic": "reference/python/queue#streamdq.Queue.delete_topic",
    "delete data of one person": "personal-data#erase-one-persons-data",
    "different rate per merchant": "keys#a-different-rate-per-merchant",
    "encrypt job data": "bodies#compress-and-encrypt",
    "enqueue a thousand jobs at once": "pipelines",
    "enqueue in a database transaction": "outbox#enqueue",
    "expire jobs that are too old": "faq#can-a-job-expire-if-it-is-too-old",
    "get an alert when jobs fail": "runbook/failing-jobs#streamdqfailing",
    "get return value of job": "faq#how-do-i-get-a-jobs-result-or-return-value",
    "handler takes longer than an hour": "handlers#how-long-a-handler-may-take",
    "how fast is it": "benchmarks",
    "how long are finished jobs kept": "faq#how-long-is-the-retention",
    "how many jobs are waiting": "monitoring#see-how-many-jobs-are-waiting",
    "how many jobs per second": "faq#how-many-jobs-a-second-can-it-handle-throughput-capacity-planning",
    "http call hangs timeout": "faq#what-if-a-webhook-or-another-call-of-a-handler-hangs",
    "hung worker kubernetes": "kubernetes#restart-a-hung-worker",
    "job result in a request": "fastapi#wait-for-a-jobs-result-in-a-request",
    "job runs twice": "faq#is-a-job-run-exactly-once-or-can-it-run-twice",
    "jobs are stuck": "faq#jobs-are-late-or-stuck-what-now",
    "limit concurrent jobs per customer": "keys#limits",
    "limit requests per second": "faq#can-i-limit-the-rate",
    "list failed jobs": "faq#where-are-failed-jobs-is-there-a-dead-letter-queue-dlq",
    "memory of a million jobs": "faq#how-much-memory-does-a-job-take-and-a-million-jobs",
    "monitor with Prometheus": "monitoring#scrape",
    "one database connection per worker": "handlers#share-a-database-connection-and-other-resources",
    "pass a file to a job": "large-bodies",
    "pause a topic for maintenance": "reference/cli/topics#streamdq-topic-pause",
    "prevent duplicate jobs": "uniqueness#notice-a-duplicate",
    "protect the operations page": "operations-page#who-may-do-what",
    "redis down": "faq#what-happens-when-redis-is-down-or-restarts",
    "redis outage": "faq#what-happens-when-redis-is-down-or-restarts",
    "Redis runs out of memory": "redis#memory-and-when-redis-runs-out-of-it",
    "results in Django": "django#wait-for-a-jobs-result-in-a-request",
    "results in FastAPI": "fastapi#wait-for-a-jobs-result-in-a-request",
    "results in fastapi/django": "django#wait-for-a-jobs-result-in-a-request",
    "retry all failed jobs": "faq#where-are-failed-jobs-is-there-a-dead-letter-queue-dlq",
    "retry only on some errors": "handlers#retry-only-some-errors",
    "right to be forgotten": "faq#what-about-gdpr-personal-data-and-the-right-to-be-forgotten",
    "roll back a deployment": "body-versions#roll-back-a-deployment",
    "run a job after another": "flows",
    "run a job every morning": "faq#how-do-i-run-a-job-every-morning",
    "run a worker in Docker": "deploying#docker",
    "run jobs in order": "faq#are-jobs-in-order-fifo",
    "see why a job failed": "handlers#see-why-a-job-failed",
    "server clock wrong": "faq#what-if-the-clock-of-a-server-is-wrong",
    "share one Redis between applications": "faq#can-several-applications-share-one-redis",
    "show progress of a job": "abort#report-progress",
    "stop a worker gracefully": "deploying#stop-a-worker-gracefully",
    "test without Redis": "testing",
    "throughput": "faq#how-many-jobs-a-second-can-it-handle-throughput-capacity-planning",
    "tomorrow at nine": "faq#how-do-i-run-a-job-every-morning",
    "unit test a handler": "testing#call-a-handler-directly",
    "upgrade without downtime": "upgrading#within-one-format",
    "urgent jobs first": "faq#can-a-job-have-a-priority-so-that-urgent-jobs-run-first",
    "use result in next job": "flows#use-their-results",
    "wait for a job in FastAPI": "fastapi#wait-for-a-jobs-result-in-a-request",
    "wait until all jobs are done": "results#wait-until-all-jobs-are-done",
    "webhook hangs": "faq#what-if-a-webhook-or-another-call-of-a-handler-hangs",
    "worker does not pick up jobs": "faq#why-does-my-worker-not-pick-up-jobs",
}
"""By what newcomers type, the page or section that answers it. The words need not be those of the section."""

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


@each("term", ANSWERS)
def test_a_term_leads_to_its_answer(term: str) -> None:
    name, _, wanted = ANSWERS[term].partition("#")
    found = {anchor: f"{title}\n{text}" for anchor, title, text in sections(name)}
    assert wanted in found
    assert re.search(rf"\b{re.escape(term)}", found[wanted], re.IGNORECASE)


@each("sentence", [one for one in SENTENCES if not SENTENCES[one].startswith("reference/")])
def test_a_sentence_leads_to_a_section_that_exists(sentence: str) -> None:
    name, _, wanted = SENTENCES[sentence].partition("#")
    assert not wanted or wanted in {anchor for anchor, _, _ in sections(name)}


def test_each_question_has_an_answer() -> None:
    questions = [(title, text) for _, title, text in sections("faq") if title.endswith("?")]
    assert len(questions) > 30
    assert [title for title, text in questions if not text.strip()] == []


def test_the_glossary_is_in_order() -> None:
    words = re.findall(r"^(\w[\w ]*)\n: ", page("glossary").read_text(), re.MULTILINE)
    assert len(words) > 25
    assert words == sorted(words, key=str.lower)
