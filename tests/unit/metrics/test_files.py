"""What a parent makes of the figures that its worker processes left in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.values import MultiProcessValue

from streamdq.exporter.exporter import ProcessFiles
from streamdq.metrics import declared
from streamdq.metrics.declared import TopicLabels

NAME = "streamdq_schedule_last_success_timestamp_seconds"


def test_the_latest_of_all_processes_also_where_topics_share_a_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(declared, "topic_labels", lambda: TopicLabels(1))
    files = ProcessFiles(tmp_path)
    for process, topic, at_s in ((1, "a", 10.0), (2, "a", 20.0), (1, "b", 30.0), (2, "c", 15.0)):
        value = MultiProcessValue(lambda process=process: process)
        value("gauge", NAME, NAME, ("namespace", "topic"), ("n", topic), "help", multiprocess_mode="max").set(at_s)

    (metric,) = files.collector().collect()

    found = {sample.labels["topic"]: sample.value for sample in metric.samples}
    assert len(found) == 2
    assert found["other"] in (20.0, 30.0), "not their sum"


def test_commands_that_share_a_directory_keep_their_figures_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those of other programs stay, too. What a killed command has left, the next one removes."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    (tmp_path / "counter_77.db").touch()  # of a web server, say
    left = tmp_path / "streamdq-metrics-left"
    left.mkdir()
    (left / "in-use").touch()
    with ProcessFiles.open() as one:
        (first,) = {Path(one.environment(0)["PROMETHEUS_MULTIPROC_DIR"])}
        (first / "counter_0.db").touch()
        with ProcessFiles.open() as other:
            assert first != Path(other.environment(0)["PROMETHEUS_MULTIPROC_DIR"])
            assert {path.name for path in tmp_path.iterdir()} >= {first.name, "counter_77.db"}
        assert (first / "counter_0.db").exists()
        assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["counter_77.db"]
