"""Dumps and tables that are not on a local disk: what fsspec reads and Spark must reach, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry
from pyspark.sql import SparkSession

from streamdq.dump.compaction import compact
from streamdq.dump.open_folder import open_folder
from streamdq_spark.analysis import analyze, chosen, plan
from streamdq_spark.dump_files import open_dump
from streamdq_spark.engines.spark import Spark
from streamdq_spark.errors import AnalysisError, BadDump
from streamdq_spark.events import read_events
from streamdq_spark.report import write_report
from tests.dumps import fill
from tests.spark.frames import written

if TYPE_CHECKING:
    from tests.s3 import Bucket

pytestmark = pytest.mark.thorough
ONE = chosen(["throughput"])
AWS = r"no file system for s3a://; start it with `spark-submit --packages org\.apache\.hadoop:hadoop-aws:\d[\d.]+`; or "


@pytest.fixture
def memory() -> Iterator[str]:
    yield "memory://elsewhere/dump"
    fsspec.filesystem("memory").rm("/elsewhere", recursive=True)


class Mounted(LocalFileSystem):  # type: ignore[misc]
    """What Hadoop has as viewfs: a folder of this machine under another name."""

    protocol = "viewfs"
    root: ClassVar[str] = ""

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return str(path).replace("viewfs://elsewhere/data", cls.root).rstrip("/")


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place that fsspec and Spark both know, each in its own way."""
    monkeypatch.setattr(Mounted, "root", str(tmp_path / "mounted"))
    (tmp_path / "mounted").mkdir()
    fsspec.register_implementation("viewfs", Mounted, clobber=True)
    link = "fs.viewfs.mounttable.elsewhere.link./data"
    spark.conf.set(link, f"file://{tmp_path / 'mounted'}")
    yield "viewfs://elsewhere/data"
    spark.conf.unset(link)
    del _registry["viewfs"]
    Mounted.clear_instance_cache()


def test_what_both_know_is_read_and_written_there(spark: SparkSession, mounted: str, tmp_path: Path) -> None:
    source, target = f"{mounted}/dump", f"{mounted}/out"
    fill(open_folder(source), files=3)
    compact(open_folder(source), grace_s=0)
    summary = analyze(Spark(spark), plan(source, target), questions=ONE)
    assert (summary.events, summary.files, summary.unlisted) == (18, 2, 0)
    assert analyze(Spark(spark), plan(source, target), questions=ONE) == summary
    assert written(tmp_path / "mounted" / "out" / "throughput")["done"].to_pylist() == [9, 9]
    assert (tmp_path / "mounted" / "out" / "analysis.json").exists()
    write_report(open_folder(target), summary, tmp_path / "report.html")
    assert "18" in (tmp_path / "report.html").read_text()
    assert read_events(spark, source).count() == 18


def test_what_spark_does_not_know_is_reported(spark: SparkSession, memory: str, tmp_path: Path) -> None:
    fill(open_folder(memory), files=2)
    found = "can't reach memory://elsewhere/dump: it has no file system for memory://; dump to a folder that is mounted"
    with pytest.raises(AnalysisError, match=found):
        analyze(Spark(spark), plan(memory, str(tmp_path / "out")), questions=ONE)
    assert not (tmp_path / "out").exists()
    with pytest.raises(AnalysisError, match=found):
        read_events(spark, memory)


def test_a_bucket_needs_hadoop_s_jar(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    source = f"{bucket.url}/dump"
    fill(open_folder(source), files=2)
    with pytest.raises(AnalysisError, match=AWS):
        analyze(Spark(spark), plan(source, str(tmp_path / "out")), questions=ONE)
    fill(open_folder(str(tmp_path / "dump")), files=1)
    with pytest.raises(AnalysisError, match=AWS):
        analyze(Spark(spark), plan(str(tmp_path / "dump"), f"{bucket.url}/out"), questions=ONE)
    assert not any(key.startswith("out/") for key in bucket.keys)


def test_a_bucket_s_files_are_checked_as_any(bucket: Bucket) -> None:
    folder = open_folder(f"{bucket.url}/dump")
    fill(folder, files=2)
    dump = open_dump(folder.url)
    assert (len(dump.files), dump.bad, dump.unlisted) == (4, [], 0)
    first, second, third = (file.path for file in dump.manifest.files[:3])
    content = folder.read(first) or b""
    folder.write(first, content[:-20])
    folder.remove(second)
    folder.write(third, bytes(len(folder.read(third) or b"")))
    problems = {file.path: file.problem for file in open_dump(folder.url, quarantine=True).bad}
    assert problems.keys() == {first, second, third}
    assert f"has {len(content) - 20} bytes where the manifest says {len(content)}" in problems[first]
    assert "is missing" in problems[second]
    assert "is no whole Parquet file" in problems[third]
    with pytest.raises(BadDump, match="3 of the dump's 4 files"):
        open_dump(folder.url)
