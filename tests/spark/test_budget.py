"""The error budget of 28 days, on histories of which the figures are known."""

import pytest

from tests.spark import plain
from tests.spark.answers import answer
from tests.spark.frames import assert_same
from tests.spark.logs import MONDAY, done
from tests.spark.plain import DAY, HOUR, Happened

END = MONDAY + 28 * DAY  # the last hour begins an hour before
LATE, SLO, OBJECTIVE = 5000, 1000, 0.99


def hourly(topic: str, late: dict[int, int], each: int = 10, days: int = 28) -> list[Happened]:
    """So many attempts in each hour; `late`: how many of those that were so many hours before the last one are."""
    log = []
    for ago in range(days * 24):
        for n in range(each):
            at = END - (ago + 1) * HOUR + n * 1000
            log.append(done(topic, at, id=f"{ago}.{n}", due=at - (LATE if n < late.get(ago, 0) else 50)))
    return log


@pytest.mark.thorough
def test_what_is_known_of_a_history_is_reported() -> None:
    log = [
        *hourly("fine", {}),
        *hourly("now", {0: 10, 1: 3}),  # 10 of 10 in the last hour
        *hourly("six hours", {0: 1, 1: 2, 2: 2, 3: 1, 4: 1, 5: 2}),
        *hourly("over", dict.fromkeys(range(100, 107), 10)),  # long ago
        *hourly("slowly", dict.fromkeys((0, 5, 20, 30, 40, 50, 60), 1)),
        *hourly("hardly any", {0: 1}, each=1),
        *hourly("begun", {2: 4}, days=1),
    ]
    rows = {row["topic"]: row for row in answer(log, "budget", slo_ms=SLO, objective=OBJECTIVE)}
    whole = 28 * 24 * 10
    assert {topic: (row["attempts"], row["late"], row["alert"]) for topic, row in rows.items()} == {
        "fine": (whole, 0, "none"),
        "now": (whole, 13, "page"),
        "six hours": (whole, 9, "page"),
        "over": (whole, 70, "none"),
        "slowly": (whole, 7, "ticket"),
        "hardly any": (28 * 24, 1, "none"),
        "begun": (240, 4, "none"),
    }
    assert abs(rows["now"]["burn_1h"] - 100) < 1e-6
    assert abs(rows["over"]["spent"] - 70 / 67.2) < 1e-9
    assert abs(rows["over"]["left"] + 2.8 / 67.2) < 1e-9
    assert (rows["fine"]["left"], rows["fine"]["days"], rows["begun"]["days"]) == (1, 28, 1)
    assert_same(list(rows.values()), plain.budget(log, SLO, OBJECTIVE))
