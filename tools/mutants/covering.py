"""Which tests run which lines: learned from one run of the tests, and kept for those that stay."""

import ast
import ctypes
import json
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest
from tools.mutants.changes import ROOT, Mutant, digest

PR_SET_PDEATHSIG = 1  # prctl(2)
CACHE = ROOT / ".mutants"
SLOW_SECONDS = 2.0
"""Seconds of CPU time above which a test is left out."""
CLOSEST_FILES = 8
"""Files of tests that try a mutant outside of functions: a process of its own loads them all."""
# Hypothesis is loaded before pytest could rewrite its assertions, and they are not read.
PYTEST_OPTIONS = ("-q", "-x", "--assert=plain", "-p", "no:cacheprovider")


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What one run of all tests showed."""

    seconds: Mapping[str, float]
    """CPU time of each test, and of the processes that it has run."""
    lines: Mapping[str, Mapping[int, Sequence[str]]]
    """By file and line, the tests that run it."""

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that may notice a mutant, fastest first."""
        if mutant.function:
            lines = self.lines.get(str(mutant.path), {})
            found = {test for line in mutant.statement for test in lines.get(line, ())}
        else:
            # What runs when a module is loaded shows wherever the module is used, and most likely
            # to the files of tests that run most of it.
            users = {str(mutant.path), *importers(mutant.module, self.lines)}
            closest = self._closest_files(str(mutant.path), users)
            found = {
                test
                for path in users
                for tests in self.lines.get(path, {}).values()
                for test in tests
                if file_of(test) in closest
            }
        # What is left of a mutant by all others, one of the slow would hardly notice; but each
        # survivor would run them all.
        quick = [test for test in found if self.seconds[test] <= SLOW_SECONDS]
        return sorted(quick, key=lambda test: self.seconds[test])

    def _closest_files(self, module: str, users: Iterable[str]) -> Collection[str]:
        """Return the files of tests that run most lines of a module, then of those that use it."""
        lines: Counter[str] = Counter()
        for path in users:
            weight = 1000 if path == module else 1
            for tests in self.lines.get(path, {}).values():
                for file in {*map(file_of, tests)}:
                    lines[file] += weight
        return {file for file, _ in lines.most_common(CLOSEST_FILES)}


@cache
def _imported(path: str) -> frozenset[str]:
    """Return the modules that a module may take something from."""
    found = set()
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {str(node.module), *(f"{node.module}.{each.name}" for each in node.names)}
    return frozenset(found)


def importers(module: str, paths: Iterable[str]) -> list[str]:
    """Return those of the modules that import one."""
    return [path for path in paths if Path(path).is_file() and module in _imported(path)]


NO_LIMITS: Mapping[str, float] = {}


class Plugin:
    """Lets tests run alike each time, and notes what fails."""

    def __init__(self, limits: Mapping[str, float] = NO_LIMITS) -> None:
        """`limits` are the seconds of CPU time after which a test ends its process."""
        self.limits = limits
        self.failed: str | None = None

    def pytest_sessionstart(self) -> None:
        plain = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants",
            parent=hypothesis.settings.get_profile("any-machine"),
            derandomize=True,
            database=None,
            phases=plain,
        )
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if nodeid in self.limits:
            # Of CPU time: a loaded machine is no fault of a mutant's.
            signal.setitimer(signal.ITIMER_PROF, self.limits[nodeid])


class CoveragePlugin(Plugin):
    """Runs all tests, and notes which lines each of them runs."""

    def __init__(self, packages: Sequence[str]) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}
        source = [str(ROOT / "src" / "warren" / package) for package in packages]
        self.coverage = coverage.Coverage(data_file=None, config_file=False, source=source)
        # The other ones do not tell tests apart.
        self.coverage.set_option("run:core", "ctrace")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        self.coverage.start()
        result = yield
        self.coverage.stop()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        began = cpu_time()
        result = yield
        self.seconds[item.nodeid] = cpu_time() - began
        self.coverage.switch_context("")
        return result

    def found(self) -> dict[str, dict[str, Any]]:
        """Return what the tests of each file run, by file."""
        found: dict[str, dict[str, Any]] = {}
        for test, took in self.seconds.items():
            of_file = found.setdefault(file_of(test), {"seconds": {}, "lines": {}})
            of_file["seconds"][test] = took
        data = self.coverage.get_data()
        for path in data.measured_files():
            for line, tests in data.contexts_by_lineno(path).items():
                for test in filter(None, tests):
                    by_line = found[file_of(test)]["lines"].setdefault(path, {})
                    by_line.setdefault(line, []).append(test)
        return found


def learn_coverage(packages: Sequence[str]) -> Coverage:
    """Return which tests run which lines: from the last time, or by running those that changed."""
    directory = CACHE / "coverage"
    directory.mkdir(exist_ok=True)
    texts = [file for each in ("src", "tests") for file in sorted((ROOT / each).rglob("*.py"))]
    common = digest(*(file.read_text() for file in texts if not is_test(file)))
    kept = {
        str(file.relative_to(ROOT)): directory
        / f"{digest(common, str(file), file.read_text())}.json"
        for file in texts
        if is_test(file) and file.relative_to(ROOT / "tests").parts[0] in packages
    }
    for old in {*directory.iterdir()} - {*kept.values()}:
        old.unlink()
    missing = [file for file, found in kept.items() if not found.exists()]
    if missing:
        print("running the tests once, to see which lines each of them runs", flush=True)

        def watch() -> None:
            watching = CoveragePlugin(packages)
            if pytest.main([*PYTEST_OPTIONS, *missing], plugins=[watching]) == 0:
                nothing: dict[str, Any] = {"seconds": {}, "lines": {}}
                found = watching.found()
                for file in missing:
                    kept[file].write_text(json.dumps(found.get(file, nothing)))

        os.waitpid(fork_child(watch), 0)
        if not all(kept[file].exists() for file in missing):
            sys.exit("The tests fail as they are: mutants are for tests that pass.")
    seconds: dict[str, float] = {}
    lines: dict[str, dict[int, list[str]]] = {}
    for found in kept.values():
        read = json.loads(found.read_text())
        seconds |= read["seconds"]
        for path, by_line in read["lines"].items():
            known = lines.setdefault(path, {})
            for line, tests in by_line.items():
                known.setdefault(int(line), []).extend(tests)
    return Coverage(seconds=seconds, lines=lines)


def cpu_time() -> float:
    """Return the CPU time of this process and of its children that have ended, in seconds."""
    return sum(os.times()[:4])


def file_of(test: str) -> str:
    return test.partition("::")[0]


def is_test(file: Path) -> bool:
    return file.name.startswith("test_")


def fork_child(act: Callable[[], None]) -> int:
    """Run `act` in a forked child, which ends with its parent; return the child's id."""
    sys.stdout.flush()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns where there are threads: here there are none, but in tests of this.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            act()
            sys.stdout.flush()
            status = 0
    finally:
        os._exit(status)
