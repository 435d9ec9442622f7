import pytest

from streamdq.job.ttr import cut_before_ms


@pytest.mark.parametrize(("ttr_ms", "before_ms"), [(1, 0.1), (500, 50), (2000, 200), (2001, 200), (86_400_000, 200)])
def test_a_handler_is_cancelled_a_tenth_of_its_ttr_early_and_at_most_200_ms(ttr_ms: int, before_ms: float) -> None:
    assert cut_before_ms(ttr_ms) == pytest.approx(before_ms)
