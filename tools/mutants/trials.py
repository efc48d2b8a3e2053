"""Trying mutants: each in a forked child, with the tests that run its line, fastest first."""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from tools.mutants.changes import Mutant, mutated
from tools.mutants.covering import PYTEST_OPTIONS, Plugin, file_of, fork_child

WORKERS = 2
MEMORY = 4 << 30
TIME_LIMIT = "time limit"
DIED = "died"
NOT_REPLACEABLE = "unfit"
"""What is said of a mutant that cannot be put in the place of a function that was loaded."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    mutant: Mutant
    tests: Sequence[str]
    limits: Mapping[str, float]
    """How much CPU time each test may take, in seconds: tests on virtual time never sleep."""
    seconds: float
    """How long all of it may take."""


Report = Callable[[Trial, str | None], None]


class InPlace(Plugin):
    """Collects all tests once; children change a function in place and run the tests for it."""

    def __init__(self, trials: Sequence[Trial], report: Report) -> None:
        super().__init__()
        self._trials = trials
        self._report = report

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                code = each.__code__
                where = (code.co_filename, code.co_qualname, code.co_firstlineno)
                functions.setdefault(where, []).append(each)
        gc.freeze()

        def attempt(trial: Trial) -> str | None:
            mutant = trial.mutant
            assert mutant.function is not None
            code = code_of(mutant)
            there = functions.get((str(mutant.path), mutant.function, mutant.first_line), [])
            # Without its last `super()`, a function does not fit into the class it comes from.
            if not there or any(each.__code__.co_freevars != code.co_freevars for each in there):
                return NOT_REPLACEABLE
            for each in there:
                each.__code__ = code
            # Functions in it that were made when its module was loaded.
            for inner in nested(code):
                where = (str(mutant.path), inner.co_qualname, inner.co_firstlineno)
                for each in functions.get(where, ()):
                    if each.__code__.co_freevars == inner.co_freevars:
                        each.__code__ = inner
            self.limits = trial.limits
            chosen = [items[test] for test in trial.tests]
            for item, following in zip(chosen, [*chosen[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.failed:
                    break
            return self.failed

        try_each(self._trials, attempt, self._report)
        return True


def code_of(mutant: Mutant) -> CodeType:
    """Return the changed code of a mutant's function."""
    tree = mutated(mutant.path.read_text(), mutant.number)
    codes: list[Any] = [compile(tree, str(mutant.path), "exec")]
    for code in codes:
        if (code.co_qualname, code.co_firstlineno) == (mutant.function, mutant.first_line):
            return code  # type: ignore[no-any-return]
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    raise ValueError(f"{mutant.function} is not in {mutant.path}")


def nested(code: CodeType) -> Iterator[CodeType]:
    """Yield the codes of all functions within a function."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from nested(each)


class Reloaded(Plugin):
    """Runs the tests for a mutant outside of functions, which shows when its module is loaded."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.limits)
        self._order = {test: index for index, test in enumerate(trial.tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._order]
        items.sort(key=lambda item: self._order[item.nodeid])


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(mutant.path))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        path = self._mutant.path
        return compile(mutated(path.read_text(), self._mutant.number), str(path), "exec")


class Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        return importlib.util.spec_from_file_location(fullname, loader=Loader(self._mutant))


def attempt_reloaded(trial: Trial) -> str | None:
    """Run the tests of a mutant in a process that has not loaded its module yet."""
    sys.meta_path.insert(0, Finder(trial.mutant))
    plugin = Reloaded(trial)
    files = sorted({file_of(test) for test in trial.tests})
    status = pytest.main([*PYTEST_OPTIONS, *files], plugins=[plugin])
    return plugin.failed or (None if status == 0 else "loading")


def try_each(
    trials: Sequence[Trial], attempt: Callable[[Trial], str | None], report: Report
) -> None:
    """Try all, some at a time, each in a child of its own; report what killed each."""
    waiting = list(reversed(trials))
    running: dict[int, RunningTrial] = {}  # by pidfd
    while waiting or running:
        while waiting and len(running) < WORKERS:
            trial = waiting.pop()
            one = RunningTrial(trial, attempt)
            running[one.pidfd] = one
        until = min(one.deadline for one in running.values())
        ended, _, _ = select.select(list(running), [], [], max(0, until - time.monotonic()))
        late = [fd for fd, one in running.items() if one.deadline <= time.monotonic()]
        for fd in {*ended, *late}:
            one = running.pop(fd)
            report(one.trial, one.end(late=fd not in ended))


class RunningTrial:
    """A trial in a child of its own, with a directory for what its tests leave."""

    def __init__(self, trial: Trial, attempt: Callable[[Trial], str | None]) -> None:
        self.trial = trial
        self.deadline = time.monotonic() + trial.seconds
        self._scratch = tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True)
        self._answer, told = os.pipe()
        self._pid = fork_child(lambda: self._run(attempt, told))
        os.close(told)
        self.pidfd = os.pidfd_open(self._pid)

    def _run(self, attempt: Callable[[Trial], str | None], told: int) -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.environ["PYTEST_DEBUG_TEMPROOT"] = self._scratch.name
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        os.write(told, json.dumps(attempt(self.trial)).encode())

    def end(self, *, late: bool) -> str | None:
        """Remove what is left of it; return what killed the mutant."""
        killer: str | None = TIME_LIMIT
        if not late:
            with open(self._answer, "rb", closefd=False) as file:
                said = file.read()
            # A child that says nothing has died of its mutant.
            killer = json.loads(said) if said else DIED
        # All of its group: tests may have processes, too.
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # before it has a group of its own
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self.pidfd)
        os.close(self._answer)
        self._scratch.cleanup()
        return killer
