"""PySpark is used by what it offers in public: nothing private, and nothing that Spark Connect does not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each

ROOT = Path(__file__).parents[2]
FOLDERS = ("spark", "streamdq/cli", "streamdq/demo", "benchmarks", "tests/spark", "docs")
STARTED_ANEW = ROOT / "tests/spark/shared.py"
"""Ends a Java process that does not answer any more, which PySpark keeps until the end."""
PRIVATE = re.compile(
    r"_j[A-Z]\w*|_(?:gateway|jvm|jsc|jdf|jc|jconf|jsparkSession|jreader|jwrite|jseq|sc|instantiatedSession)"
)
OF_JAVA = {"sparkContext", "rdd", "toJavaRDD"}
"""What a session or DataFrame has of Spark's core, which a client of Spark Connect has not."""
MODULES = ("pyspark.java_gateway", "pyspark.core", "pyspark.rdd", "pyspark.context", "pyspark.sql.classic")
NAMES = {"SparkContext", "RDD", "SparkConf", "SQLContext"}


def files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if "spark" in path.read_text("utf-8") and path != STARTED_ANEW:
                yield path


def broken(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(attr=name) if name in OF_JAVA or PRIVATE.fullmatch(name):
                yield f"{node.lineno}: .{name}"
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("pyspark"):
                private = any(part.startswith("_") for part in module.split("."))
                if private or module.startswith(MODULES):
                    yield f"{node.lineno}: {module}"
                yield from (
                    f"{node.lineno}: {one.name}" for one in names if one.name in NAMES or one.name.startswith("_")
                )
            case ast.Import(names=names):
                yield from (f"{node.lineno}: {one.name}" for one in names if one.name.startswith(MODULES))
            case ast.Constant(value=str(text)) if "pyspark" in text and "import " in text and "\n" in text:
                # A program that a test starts.
                try:
                    yield from (f"{node.lineno} + {line}" for line in broken(text))
                except SyntaxError:
                    continue


@each("path", files)
def test_pyspark_is_used_in_public(path: Path) -> None:
    assert list(broken(path.read_text("utf-8"))) == []
