"""Break the code, one small change at a time, and show which changes no test notices.

A mutant is tried by the tests that run its line, and is killed when one of them fails or does not
end. What was found is kept in `.mutants/`, by the texts of the function and of the tests, so that a
second run does what has changed. A change elsewhere may make an old result untrue: `rm -r .mutants`
forgets all. `tools/mutants/explained.toml` lists mutants that no test can kill, with reasons.
"""

import argparse
import os
import random
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from tools.mutants.changes import ROOT, Mutant, mutants_of
from tools.mutants.covering import (
    CACHE,
    PYTEST_OPTIONS,
    Coverage,
    file_of,
    fork_child,
    learn_coverage,
)
from tools.mutants.results import Results
from tools.mutants.trials import NOT_REPLACEABLE, InPlace, Trial, attempt_reloaded, try_each

PACKAGES = ("dws", "directives", "conductor", "controllers", "scheduling", "lifecycle")
EXPLAINED = ROOT / "tools" / "mutants" / "explained.toml"


def main() -> None:
    arguments = argparse.ArgumentParser(description=str(__doc__).split("\n\n")[0])
    arguments.add_argument("--only", default="", help="mutants whose line below says PATTERN")
    arguments.add_argument("--sample", type=int, help="so many of each package")
    arguments.add_argument("--seed", type=int, default=0, help="which ones the sample takes")
    options = arguments.parse_args()
    os.chdir(ROOT)
    CACHE.mkdir(exist_ok=True)
    mutants = [one for one in unexplained(all_mutants()) if options.only in str(one)]
    if options.sample is not None:
        mutants = sample_of(mutants, options.sample, options.seed)
        print(f"a sample: up to {options.sample} of each package, seed {options.seed}")
    coverage = learn_coverage(PACKAGES)
    try_all(mutants, coverage)
    print_survivors(mutants, coverage)


def all_mutants() -> list[Mutant]:
    files = (
        file
        for package in PACKAGES
        for file in sorted((ROOT / "src" / "warren" / package).rglob("*.py"))
    )
    return [one for file in files for one in mutants_of(file, file.read_text())]


def unexplained(mutants: Sequence[Mutant], file: Path = EXPLAINED) -> list[Mutant]:
    """Return the mutants without a reason to survive. Exits where a reason is for none."""
    listed = tomllib.loads(file.read_text()).get("explained", [])
    reasons = {(one["module"], one["line"], one["change"]) for one in listed}
    named = {(one.module, one.source, one.change): one for one in mutants}
    for module, line, change in sorted(reasons - named.keys()):
        print(f"{file.name} explains what is not there: {module}: {line}: {change}")
    if reasons - named.keys():
        sys.exit(1)
    return [one for one in mutants if (one.module, one.source, one.change) not in reasons]


def sample_of(mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """Return up to `size` mutants of each package: the same ones for the same seed."""
    found = []
    for package in PACKAGES:
        of_it = [one for one in mutants if one.package == package]
        chosen = random.Random(seed).sample(range(len(of_it)), min(size, len(of_it)))
        found += [of_it[index] for index in sorted(chosen)]
    return found


def try_all(mutants: Sequence[Mutant], coverage: Coverage) -> None:
    """Try all mutants of which the result is not known, and keep what comes of each."""
    results = Results()
    in_functions: list[Trial] = []
    others: list[Trial] = []
    for mutant in mutants:
        found = coverage.tests(mutant)
        if results.holds(mutant, found):
            continue
        if not found:
            results.add(mutant, found, None)
            continue
        limits = {test: 5 + 10 * coverage.seconds[test] for test in found}
        # A mutant that sleeps is rare, and a machine may be loaded: this may take its time.
        seconds = 60 + 4 * sum(limits.values())
        trial = Trial(mutant=mutant, tests=found, limits=limits, seconds=seconds)
        (in_functions if mutant.function else others).append(trial)
    done, total = 0, len(in_functions) + len(others)

    def report(trial: Trial, killer: str | None) -> None:
        nonlocal done
        done += 1
        if killer != NOT_REPLACEABLE:
            results.add(trial.mutant, trial.tests, killer)
        if done % 200 == 0:
            print(f"{done} of {total} tried", file=sys.stderr, flush=True)

    if in_functions:
        files = sorted({file_of(test) for trial in in_functions for test in trial.tests})
        plugin = InPlace(in_functions, report)
        options = (*PYTEST_OPTIONS, "-qq", "-s")
        os.waitpid(
            fork_child(lambda: sys.exit(pytest.main([*options, *files], plugins=[plugin]))), 0
        )
        known = Results()
        others += [one for one in in_functions if not known.holds(one.mutant, one.tests)]
    try_each(others, attempt_reloaded, report)


def print_survivors(mutants: Sequence[Mutant], coverage: Coverage) -> None:
    """Print the survivors, and how many were killed."""
    results = Results()
    missing = [one for one in mutants if not results.holds(one, coverage.tests(one))]
    if missing:
        sys.exit(f"{len(missing)} mutants were not tried, the first one is {missing[0]}")
    survivors = [one for one in mutants if results.killer(one) is None]
    for one in survivors:
        print(one)
    for package in PACKAGES:
        of_it = sum(one.package == package for one in mutants)
        left = sum(one.package == package for one in survivors)
        print(f"{package}: {share(of_it - left, of_it)}")
    print(share(len(mutants) - len(survivors), len(mutants)))


def share(killed: int, of: int) -> str:
    return f"killed {killed} of {of}, {100 * killed // of if of else 100} %"


if __name__ == "__main__":
    main()
