"""A hook's run as PBS's mom gives it, without PBS: what it asks, logs and decides.

Started as a script of its own, isolated and optimized as the mom starts hooks, with a
`Scenario` on standard input. What happens comes out at once, a JSON object a line, so that it
is there even if the hook is killed:

    {"log": [LEVEL, TEXT]}  {"asked": VNODE}  {"outcome": "accept|reject|error", "message": TEXT}

It needs nothing but Python, as does what it stands in for. It behaves as PBS 23.06 does:
`tests/interop/test_pbs.py` has the same table of outcomes from a real one.
"""

import json
import signal
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn, TypedDict

EVENTS: Final = {"execjob_begin": 0x40, "execjob_end": 0x200}

LEVELS: Final = {
    "EVENT_ERROR": 0x1,
    "EVENT_DEBUG": 0x80,
    "EVENT_DEBUG2": 0x100,
    "EVENT_DEBUG3": 0x400,
    "EVENT_DEBUG4": 0x800,
}

SHARING: Final = {
    "ND_DEFAULT_SHARED": 1,
    "ND_DEFAULT_EXCL": 2,
    "ND_IGNORE_EXCL": 3,
    "ND_FORCE_EXCL": 4,
    "ND_DEFAULT_EXCLHOST": 5,
    "ND_FORCE_EXCLHOST": 6,
}


class JobFields(TypedDict):
    id: str
    euser: str
    place: str | None


class VnodeFields(TypedDict):
    sharing: int | None
    vntype: str | None


class Scenario(TypedDict):
    """What a mom would tell the hook."""

    hook: str
    """The hook's file."""
    hook_name: str
    event: str
    job: JobFields
    node: str
    vnodes: dict[str, VnodeFields] | None
    """What the server knows; None if it does not answer."""
    config: str | None
    """The configuration's file."""
    alarm: float
    """Seconds after which the hook is killed."""


ReportSink = Callable[[dict[str, Any]], None]


class HookRun:
    """A run of a hook in which this plays PBS: `report` is called with each thing that happens."""

    def __init__(self, scenario: Scenario, report: ReportSink) -> None:
        self.scenario = scenario
        self.report = report
        self.outcome = "accept"
        self.message = ""
        self.globals: dict[str, Any] = {"__name__": "builtins"}
        """What the hook defines. It is no main program, and has no file."""

    def pbs_module(self) -> types.ModuleType:
        """Return the module `pbs` as a hook on a mom sees it."""
        event = _Event(self)
        server_answers = self.scenario["vnodes"] is not None
        pbs = types.ModuleType("pbs")
        pbs.__dict__.update(
            {
                **LEVELS,
                **SHARING,
                **{name.upper(): value for name, value in EVENTS.items()},
                "event": lambda: event,
                "server": lambda: _Server(self) if server_answers else None,
                "logmsg": lambda level, text: self.report({"log": [level, text]}),
                "get_local_nodename": lambda: self.scenario["node"],
                "hook_config_filename": self.scenario["config"],
            }
        )
        return pbs

    def run(self, hook: types.CodeType) -> None:
        """Run a hook to its end, and tell of its outcome."""
        before = sys.modules.get("pbs")
        sys.modules["pbs"] = self.pbs_module()
        try:
            with suppress(SystemExit):
                exec(hook, self.globals)
        except BaseException as error:
            self.outcome, self.message = "error", str(error)
        finally:
            del sys.modules["pbs"]
            if before is not None:
                sys.modules["pbs"] = before
        self.report({"outcome": self.outcome, "message": self.message})


class _Event:
    """The verdict is what was called last; the exception is only the way out of the hook."""

    def __init__(self, run: HookRun) -> None:
        self._run = run
        self.type = EVENTS.get(run.scenario["event"], 0)
        self.hook_name = run.scenario["hook_name"]
        self.job = _Job(run.scenario["job"])

    def accept(self) -> NoReturn:
        self._run.outcome, self._run.message = "accept", ""
        raise SystemExit("0")

    def reject(self, message: str = "") -> NoReturn:
        if "\0" in message:
            raise ValueError("embedded null character")
        # The mom reads verdicts line by line: a second line is an error of the hook's, or worse.
        self._run.outcome = "error" if "\n" in message else "reject"
        self._run.message = message
        raise SystemExit("255")


class _Job:
    def __init__(self, fields: JobFields) -> None:
        self.id = fields["id"]
        self.euser = fields["euser"]
        self.Resource_List = _Resources(place=fields["place"])


class _Resources(dict[str, Any]):
    """Resources, None where one is not set. One that PBS does not know is no name at all."""

    def __missing__(self, name: str) -> NoReturn:
        raise AttributeError(f"'pbs_resource' object has no attribute '{name}'")


class _Server:
    def __init__(self, run: HookRun) -> None:
        self._run = run

    def vnode(self, name: str) -> types.SimpleNamespace | None:
        self._run.report({"asked": name})
        fields = (self._run.scenario["vnodes"] or {}).get(name)
        if fields is None:
            return None
        return types.SimpleNamespace(
            sharing=fields["sharing"], resources_available=_Resources(vntype=fields["vntype"])
        )


def compile_hook(path: str) -> types.CodeType:
    """Compile a hook's file, as PBS does."""
    with open(path, encoding="utf-8") as file:
        return compile(file.read(), "<embedded code object>", "exec")


def main() -> None:
    """Run the hook in the scenario of standard input, with its alarm."""
    scenario: Scenario = json.load(sys.stdin)

    def write_report(report: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()

    hook = compile_hook(scenario["hook"])
    signal.setitimer(signal.ITIMER_REAL, scenario["alarm"])
    HookRun(scenario, write_report).run(hook)


if __name__ == "__main__":
    main()
