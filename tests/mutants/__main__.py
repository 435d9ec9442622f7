"""``python -m tests.mutants``: which small changes to the scripts, and to pure decisions in Python, no test notices."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from rich.console import Console

from . import lua, python
from .mutant import ROOT, Mutant
from .run import Options, Result, try_mutants
from .survivors import FILE, Listed, entry_of
from .worker import HUNG

OUT = Console(highlight=False, soft_wrap=True, markup=False)
COLUMNS = ("mutants", "killed", "equivalent", "alive")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--lua", action="store_true", help="only the scripts")
    parser.add_argument("--python", action="store_true", help="only the decisions in Python")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="only these files: claim, lib/fence, retry"
    )
    parser.add_argument("--sample", type=int, help="so many of the mutants that are not listed")
    parser.add_argument("--seed", type=int, help="of the sample; a new one without it")
    parser.add_argument("--workers", type=int, default=2, help="how many are tried at once (2)")
    parser.add_argument("--quick", action="store_true", help="with one server, and no simulation")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="only these tests")
    parser.add_argument(
        "--at-least", type=float, default=100.0, metavar="PERCENT", help="of those not listed, killed (100)"
    )
    parser.add_argument("--skip-listed", action="store_true", help="without those that are listed")
    return parser.parse_args()


def mutants_in(files: Iterable[str]) -> list[Mutant]:
    found = []
    for file in files:
        source = (ROOT / file).read_text()
        found += (lua.lua_mutants if file.endswith(".lua") else python.python_mutants)(file, source)
    return found


def chosen_files(options: argparse.Namespace) -> list[str]:
    both = options.lua == options.python
    files = [*(lua.files() if both or options.lua else []), *(python.files() if both or options.python else [])]
    if not options.only:
        return files
    chosen = [file for name in options.only for file in files if _is_named(file, name)]
    if not chosen:
        sys.exit(f"no file is named {' or '.join(options.only)}")
    return chosen


def _is_named(file: str, name: str) -> bool:
    return f"/{file.rpartition('.')[0]}".endswith(f"/{name}")


def sampled(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


def table(results: Sequence[Result], listed: Listed) -> None:
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, killer in results:
        how = "killed" if killer else "equivalent" if mutant in listed else "alive"
        for name in (mutant.file, f"all of {'Lua' if mutant.file.endswith('.lua') else 'Python'}"):
            counted[name].update([how, "mutants"])
    OUT.print(f"{'file':<36}" + "".join(f"{column:>12}" for column in COLUMNS))
    for name in sorted(counted, key=lambda name: (name.startswith("all"), name.count("/"), name)):
        row = counted[name]
        share = (
            f"{row['killed'] / max(1, row['mutants'] - row['equivalent']):>8.1%} of the others" if "all" in name else ""
        )
        OUT.print(f"{name:<36}" + "".join(f"{row[column]:>12,}" for column in COLUMNS) + share)


def main() -> int:
    options = arguments()
    listed = Listed(FILE.read_text())
    everything = mutants_in(chosen_files(options))
    for file, was, now in listed.gone(everything):
        OUT.print(f"listed, but there is no such mutant any more: {file}\n  - {was}\n  + {now}")
    mutants = everything
    if options.sample or options.skip_listed:
        mutants = [mutant for mutant in mutants if mutant not in listed]
    if options.sample:
        seed = int(time.time()) if options.seed is None else options.seed
        mutants = sampled(mutants, options.sample, seed)
        OUT.print(f"{len(mutants)} of {len(everything):,} mutants, --seed {seed}")
    results: list[Result] = []

    def tell(result: Result) -> None:
        results.append(result)
        if result.killer is None and result.mutant not in listed:
            OUT.print(f"alive: {result.mutant}")
        elif result.killer and result.mutant in listed:
            OUT.print(f"listed, but killed by {result.killer}: {result.mutant}")

    began = time.monotonic()
    if broken := try_mutants(mutants, Options(options.workers, options.quick, tuple(options.tests)), tell):
        OUT.print(
            "nothing was tried, as these tests fail without a mutant (on a busy machine, try again):",
            *broken,
            sep="\n  ",
        )
        return 2
    table(results, listed)
    alive = [mutant for mutant, killer in results if killer is None and mutant not in listed]
    hung = sum(killer is not None and killer.endswith(HUNG) for _, killer in results)
    OUT.print(f"{time.monotonic() - began:.0f} s; {len(alive)} alive; {hung} killed as a test did not end, twice")
    if alive:
        OUT.print(
            f"\nWrite a test for each; or list it in {FILE.relative_to(ROOT)}, with the reason why no test can tell:\n"
        )
        for mutant in alive:
            OUT.print(entry_of(mutant))
    return 1 if 100 * len(alive) > (100 - options.at_least) * len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
