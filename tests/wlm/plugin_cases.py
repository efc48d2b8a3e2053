"""What the `dws` plugin does with a job, as one table: it drives the C plugin and the Python one.

A case is what happens, step by step, and what is to come of it: the job's events, and what
the conductor is asked. The conductor is a fake that records, and answers as it is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, Protocol

Payload = Mapping[str, Any]

DIRECTIVE: Final = "#DW jobdw type=xfs capacity=1GiB name=a"
SUCCESS: Final[Payload] = {"success": True}
NOTE: Final = "DWS workflow interactions failed: "


class Driver(Protocol):
    """An instance with the plugin, of which one job is looked at."""

    async def submit(self, system: Payload, *, long: bool, urgency: int, guest: bool) -> None:
        """Submit the job, with such system attributes; a long one ends when it is killed."""
        ...

    async def until(self, event: str) -> None:
        """Wait until the job has posted an event that is told so, or begins so."""
        ...

    async def received(self, request: str) -> None:
        """Wait until the conductor was asked so."""
        ...

    async def ask(self, method: str, payload: Payload) -> str | None:
        """Ask something of the plugin about the job, as the conductor does; return the error."""
        ...

    async def answer(self, method: str, answer: Payload) -> None:
        """Have the conductor answer so from now on."""
        ...

    async def serve(self, present: bool) -> None:
        """Have the conductor be there, or not."""
        ...

    async def except_(self, type: str, severity: int, *, guest: bool) -> None:
        """Raise an exception, as the owner or as the job's user."""
        ...

    async def kill(self) -> None:
        """End the job's tasks."""
        ...

    async def memo(self, memo: Payload) -> None:
        """Note something with the job, as the conductor does."""
        ...

    async def hasten(self) -> None:
        """Let a job be scheduled that was submitted with urgency 0."""
        ...

    async def reload(self) -> None:
        """Load the plugin anew, with nothing that it has kept in memory."""
        ...

    async def log(self) -> Sequence[tuple[str, Payload]]:
        """Return the job's events."""
        ...

    async def requests(self) -> Sequence[tuple[str, Payload]]:
        """Return what the conductor was asked about the job."""
        ...

    def resources(self) -> Sequence[Payload]:
        """Return what the job asked for."""
        ...


@dataclass(frozen=True)
class Submit:
    system: Payload = field(default_factory=dict)
    long: bool = False
    urgency: int = 16
    guest: bool = False


@dataclass(frozen=True)
class Until:
    event: str


@dataclass(frozen=True)
class Received:
    request: str


@dataclass(frozen=True)
class Ask:
    """`again` asks twice. `refused` is a word of the error that is to come."""

    method: str
    payload: Payload = field(default_factory=dict)
    again: bool = False
    refused: str | None = None


@dataclass(frozen=True)
class Answer:
    method: str
    answer: Payload


@dataclass(frozen=True)
class Serve:
    present: bool


@dataclass(frozen=True)
class Raise:
    type: str
    severity: int = 0
    guest: bool = False


@dataclass(frozen=True)
class Note:
    memo: Payload


@dataclass(frozen=True)
class Kill:
    pass


@dataclass(frozen=True)
class Hasten:
    pass


@dataclass(frozen=True)
class Reload:
    pass


Step = Submit | Until | Received | Ask | Answer | Serve | Raise | Note | Kill | Hasten | Reload


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    steps: Sequence[Step]
    events: Sequence[str]
    requests: Sequence[str]
    """What the conductor is asked; what is asked twice in a row is told once."""
    embedded: Sequence[str] | None = None
    """The same on the embedded instance, whose conductor sees by itself what it was not told."""
    updates: Payload = field(default_factory=dict)
    """What the jobspec is changed to, besides its resources."""
    created: Payload = field(default_factory=dict)
    """Some of what `create` tells."""
    epilog_timeout: float | None = None
    flux: bool = False
    """Whether it is for Flux alone."""


def refusal(why: str) -> Payload:
    return {"success": False, "errstr": why}


def update(**more: Any) -> Ask:
    """The job may be scheduled. Its resources are filled in."""
    return Ask("resource-update", {"exclude": None, **more})


VARIABLES: Final = {"variables": {"DW_JOB_a": "/mnt/a"}}
CREATED: Final = (Submit(), Received("create"), update())
LONG: Final = (Submit(long=True), Received("create"), update())
READY: Final = (Received("setup"), Ask("prolog-remove", VARIABLES))
"""From the prolog to the tasks."""
GONE: Final = (Received("post_run"), Ask("epilog-remove"))
"""From the epilog to the end."""

HELD: Final = ("dependency-add dws-create",)
LET_GO: Final = (*HELD, "jobspec-update", "dependency-remove dws-create")
PLACED: Final = (*LET_GO, "alloc", "prolog-start dws-setup")
RUN: Final = (*PLACED, "dws_environment DW_JOB_a=/mnt/a", "prolog-finish dws-setup 0", "start")
RAN: Final = (*RUN, "finish")
ENDING: Final = (*RAN, "epilog-start dws-epilog")
END: Final = ("epilog-finish dws-epilog 0", "clean")
WHOLE: Final = (*ENDING, *END)
NOT_PLACED: Final = ("epilog-start dws-epilog", *END)
FAILED: Final = ("prolog-finish dws-setup 1", *NOT_PLACED)
"""From an exception in the prolog to the end."""

ALL: Final = ("create", "setup", "post_run ran")

BAD_NODE: Final = {"not": [{"properties": ["badrabbit"]}]}
GOOD: Final = {"properties": ["good"]}

CASES: Final = [
    Case(
        name="a job is held until its storage is ready, and until it was given back",
        steps=[*CREATED, *READY, *GONE],
        events=WHOLE,
        requests=ALL,
        created={"dw_directives": DIRECTIVE, "failure_tolerance": 0},
    ),
    Case(
        name="directives may be a list, and a tolerance is told",
        steps=[
            Submit({"dw": [DIRECTIVE, DIRECTIVE], "dw_failure_tolerance": 2}),
            Received("create"),
            update(),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
        created={"dw_directives": [DIRECTIVE, DIRECTIVE], "failure_tolerance": 2},
    ),
    Case(
        name="a job without directives is left alone",
        steps=[Submit({"dw": None}), Until("clean")],
        events=["alloc", "start", "finish", "clean"],
        requests=[],
    ),
    Case(
        name="directives that say nothing are for the conductor to judge",
        steps=[Submit({"dw": ""}), Received("create"), update(), *READY, *GONE],
        events=WHOLE,
        requests=ALL,
        created={"dw_directives": ""},
    ),
    # Refusals
    Case(
        name="a job whose Workflow is refused fails with the reason",
        steps=[Answer("create", refusal("no such profile")), Submit(), *GONE],
        events=[*HELD, f"exception dws-create 0 {NOTE}no such profile", *NOT_PLACED],
        requests=["create", "post_run never"],
    ),
    Case(
        name="a negative tolerance is the conductor's to refuse",
        steps=[
            Answer("create", refusal("must be a positive integer")),
            Submit({"dw": DIRECTIVE, "dw_failure_tolerance": -1}),
            *GONE,
        ],
        events=[*HELD, f"exception dws-create 0 {NOTE}must be a positive integer", *NOT_PLACED],
        requests=["create", "post_run never"],
        created={"failure_tolerance": -1},
    ),
    Case(
        name="a job whose storage cannot be made never starts",
        steps=[Answer("setup", refusal("no rabbit")), *CREATED, *GONE],
        events=[*PLACED, f"exception dws-setup 0 {NOTE}no rabbit", *FAILED],
        requests=["create", "setup", "post_run never"],
    ),
    Case(
        name="a job whose PostRun is refused has its storage torn down",
        steps=[
            Answer("post_run", refusal("no")),
            *CREATED,
            *READY,
            Received("teardown"),
            Ask("epilog-remove"),
        ],
        events=[*ENDING, f"exception dws-epilog 0 {NOTE}no", *END],
        requests=[*ALL, "teardown"],
    ),
    Case(
        name="a refused Teardown changes nothing",
        steps=[
            Answer("teardown", refusal("no")),
            *CREATED,
            *READY,
            Until("epilog-start"),
            Received("post_run"),
            Raise("cancel"),
            Received("teardown"),
            Raise("note", severity=7),
            Ask("epilog-remove"),
        ],
        events=[*ENDING, "exception cancel 0 enough", "exception note 7 enough", *END],
        requests=[*ALL, "teardown"],
    ),
    Case(
        name="an error in place of resources fails the job with the reason",
        steps=[Submit(), Received("create"), update(errmsg="too large"), *GONE],
        events=[*HELD, f"exception dws-create 0 {NOTE}too large", *NOT_PLACED],
        requests=["create", "post_run never"],
    ),
    # The conductor is away, or of another version
    Case(
        name="a job whose conductor is away waits for it",
        steps=[
            Serve(False),
            Submit(),
            Until("dependency-add"),
            Serve(True),
            Received("create"),
            update(),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
        embedded=ALL[1:],
    ),
    Case(
        name="a job that is cancelled while its conductor is away waits for it to clean up",
        steps=[
            Serve(False),
            Submit(),
            Until("dependency-add"),
            Raise("cancel"),
            Until("epilog-start"),
            Serve(True),
            *GONE,
        ],
        events=[*HELD, "exception cancel 0 enough", *NOT_PLACED],
        requests=["post_run never"],
        embedded=[],
    ),
    Case(
        name="an answer that is not understood costs no job",
        steps=[
            Answer("create", {}),
            Answer("setup", {"success": "yes"}),
            Answer("post_run", {"success": False, "errstr": 3}),
            *CREATED,
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
    ),
    # Exceptions
    Case(
        name="a job that is cancelled while it is held gives back what was made",
        steps=[Submit(), Received("create"), Raise("cancel"), *GONE],
        events=[*HELD, "exception cancel 0 enough", *NOT_PLACED],
        requests=["create", "post_run never"],
    ),
    Case(
        name="a job that is cancelled in the prolog does not start",
        steps=[*CREATED, Received("setup"), Raise("cancel"), *GONE],
        events=[*PLACED, "exception cancel 0 enough", *FAILED],
        requests=["create", "setup", "post_run never"],
    ),
    Case(
        name="storage is given back when the tasks of a job that is cancelled are gone",
        steps=[*LONG, *READY, Until("start"), Raise("cancel"), *GONE],
        events=[*RUN, "exception cancel 0 enough", "finish", "epilog-start dws-epilog", *END],
        requests=ALL,
    ),
    Case(
        name="a job that is cancelled in the epilog skips what is left",
        steps=[
            *CREATED,
            *READY,
            Received("post_run"),
            Raise("cancel"),
            Received("teardown"),
            Ask("epilog-remove"),
        ],
        events=[*ENDING, "exception cancel 0 enough", *END],
        requests=[*ALL, "teardown"],
    ),
    Case(
        name="exceptions that are not fatal change nothing",
        steps=[
            *CREATED,
            Received("setup"),
            Raise("warning", severity=1),
            *READY,
            Received("post_run"),
            Raise("dws-epilog-timeout", severity=1),
            Ask("epilog-remove"),
        ],
        events=[
            *PLACED,
            "exception warning 1 enough",
            *RAN[len(PLACED) :],
            "epilog-start dws-epilog",
            "exception dws-epilog-timeout 1 enough",
            *END,
        ],
        requests=ALL,
    ),
    Case(
        name="the owner lets a job go before its storage",
        steps=[
            *CREATED,
            *READY,
            Received("post_run"),
            Raise("dws-epilog-timeout"),
            Received("abort"),
        ],
        events=[
            *ENDING,
            "exception dws-epilog-timeout 0 enough",
            "epilog-finish dws-epilog 1",
            "clean",
        ],
        requests=[*ALL, "abort"],
    ),
    Case(
        name="a guest does not let a job go before its storage",
        steps=[
            Submit(guest=True),
            Received("create"),
            update(),
            *READY,
            Received("post_run"),
            Raise("dws-epilog-timeout", guest=True),
            Received("teardown"),
            Ask("epilog-remove"),
        ],
        events=[*ENDING, "exception dws-epilog-timeout 0 enough", *END],
        requests=[*ALL, "teardown"],
    ),
    Case(
        name="an epilog that takes too long lets the job go",
        epilog_timeout=0.1,
        steps=[*CREATED, *READY, Received("abort")],
        events=[
            *ENDING,
            "exception dws-epilog-timeout 0 DWS epilog timed out",
            "epilog-finish dws-epilog 1",
            "clean",
        ],
        requests=[*ALL, "abort"],
    ),
    # Repetitions and mistakes
    Case(
        name="what is asked twice happens once",
        steps=[
            Submit(),
            Received("create"),
            Ask("resource-update", {"exclude": None}, again=True),
            Received("setup"),
            Ask("prolog-remove", VARIABLES, again=True),
            Received("post_run"),
            Ask("resource-update", {"exclude": None}),
            Ask("prolog-remove", VARIABLES),
            Ask("epilog-remove", again=True),
        ],
        events=WHOLE,
        requests=ALL,
    ),
    Case(
        name="what is asked too early changes nothing",
        steps=[
            Submit(),
            Received("create"),
            Ask("prolog-remove", VARIABLES),
            Ask("epilog-remove"),
            update(),
            Received("setup"),
            Ask("epilog-remove"),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
    ),
    Case(
        name="a malformed request is refused, and changes nothing",
        steps=[
            Submit(),
            Received("create"),
            Ask("resource-update", refused="malformed"),
            Ask("resource-update", {"exclude": None, "resources": 3}, refused="malformed"),
            Ask("resource-update", {"exclude": 3}, refused="malformed"),
            Ask("resource-update", {"exclude": None, "errmsg": 3}, refused="malformed"),
            update(),
            Received("setup"),
            Ask("prolog-remove", {"variables": {"a": 3}}, refused="malformed"),
            Ask("prolog-remove", refused="malformed"),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
    ),
    # Jobspecs
    Case(
        name="nodes are excluded by a constraint",
        steps=[Submit(), Received("create"), update(exclude=BAD_NODE), *READY, *GONE],
        events=WHOLE,
        requests=ALL,
        updates={"constraints": BAD_NODE},
    ),
    Case(
        name="nodes are excluded besides what the job asks for",
        steps=[
            Submit({"dw": DIRECTIVE, "constraints": {"not": [GOOD]}}),
            Received("create"),
            update(exclude=BAD_NODE),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
        updates={"constraints": {"and": [{"not": [GOOD]}, BAD_NODE]}},
    ),
    Case(
        name="rabbits that a job may use are not excluded",
        steps=[
            Submit({"dw": DIRECTIVE, "allow_rabbits": True}),
            Received("create"),
            update(exclude=BAD_NODE),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
        updates={"constraints": {"or": [{"properties": ["rabbit"]}, BAD_NODE]}},
        flux=True,
    ),
    Case(
        name="what the flash demands of rabbits, and of daemons, is written into the jobspec",
        steps=[
            Submit(),
            Received("create"),
            update(dw_constraints={"a": {"rabbits": ["r0"]}}, requires=["copy-offload"]),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
        updates={"dw_constraints": {"a": {"rabbits": ["r0"]}}, "dw_requires": ["copy-offload"]},
    ),
    Case(
        name="what a job's author has demanded in their place is not asked for",
        steps=[
            Submit({"dw": DIRECTIVE, "dw_constraints": {"a": {}}, "dw_requires": ["root"]}),
            Received("create"),
            update(),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
        updates={"dw_constraints": {}, "dw_requires": []},
    ),
    # Plugins that are loaded anew
    Case(
        name="a plugin loaded anew in DEPEND holds on",
        steps=[Submit(), Received("create"), Reload(), update(), *READY, *GONE],
        events=WHOLE,
        requests=ALL,
    ),
    Case(
        name="a Workflow that is there already is no failure after that",
        steps=[
            Submit(),
            Received("create"),
            Answer("create", refusal('workflows "fluxjob-1" already exists')),
            Reload(),
            Received("create"),
            update(),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
    ),
    Case(
        name="a job that is refused after that in words of its author's fails with the reason",
        steps=[
            Submit(),
            Received("create"),
            Answer("create", refusal("name=existing has no capacity")),
            Reload(),
            *GONE,
        ],
        events=[*HELD, f"exception dws-create 0 {NOTE}name=existing has no capacity", *NOT_PLACED],
        requests=["create", "post_run never"],
        flux=True,  # the embedded plugin asks once
    ),
    Case(
        name="a plugin loaded anew in SCHED goes on",
        steps=[
            Submit(urgency=0),
            Received("create"),
            update(),
            Until("dependency-remove"),
            Reload(),
            Hasten(),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
    ),
    Case(
        name="a plugin loaded anew in the prolog holds on",
        steps=[*CREATED, Received("setup"), Reload(), *READY, *GONE],
        events=WHOLE,
        requests=ALL,
    ),
    Case(
        name="a job that is cancelled in the prolog after that does not start",
        steps=[*CREATED, Received("setup"), Reload(), Received("setup"), Raise("cancel"), *GONE],
        events=[*PLACED, "exception cancel 0 enough", *FAILED],
        requests=["create", "setup", "post_run never"],
    ),
    Case(
        name="a plugin loaded anew while the tasks run holds the job at its end",
        steps=[*LONG, *READY, Until("start"), Reload(), Kill(), *GONE],
        events=WHOLE,
        requests=ALL,
    ),
    Case(
        name="a job that is cancelled while it runs after that is held at its end",
        steps=[*LONG, *READY, Until("start"), Reload(), Raise("cancel"), *GONE],
        events=[*RUN, "exception cancel 0 enough", "finish", "epilog-start dws-epilog", *END],
        requests=ALL,
    ),
    Case(
        name="a plugin loaded anew in the epilog holds on",
        steps=[*CREATED, *READY, Received("post_run"), Reload(), *GONE],
        events=WHOLE,
        requests=ALL,
    ),
    Case(
        name="a job that is cancelled in the epilog after that skips what is left",
        steps=[
            *CREATED,
            *READY,
            Received("post_run"),
            Reload(),
            Received("post_run"),
            Raise("cancel"),
            Received("teardown"),
            Ask("epilog-remove"),
        ],
        events=[*ENDING, "exception cancel 0 enough", *END],
        requests=[*ALL, "teardown"],
    ),
    Case(
        name="a plugin loaded anew twice holds on",
        steps=[
            *CREATED,
            Received("setup"),
            Reload(),
            Reload(),
            *READY,
            Received("post_run"),
            Reload(),
            Reload(),
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
    ),
    Case(
        name="a job that the conductor knows is not told of again",
        steps=[
            Submit(),
            Received("create"),
            Note({"rabbit_workflow": "fluxjob-1"}),
            Reload(),
            update(),
            Received("setup"),
            Note({"rabbits": "rabbit-0"}),
            Reload(),
            *READY,
            *GONE,
        ],
        events=WHOLE,
        requests=ALL,
    ),
]


async def play(case: Case, driver: Driver, requests: Sequence[str]) -> None:
    """Play a case, and look at what has come of it; `requests` are those of the instance."""
    for step in case.steps:
        await _do(step, driver)
    await driver.until("clean")
    log = await driver.log()

    events = [said for name, context in log if (said := told(name, context))]
    assert events == list(case.events), log
    updates = [dict(context) for name, context in log if name == "jobspec-update"]
    wanted = {f"attributes.system.{key}": value for key, value in case.updates.items()}
    assert updates in ([], [{"resources": list(driver.resources()), **wanted}]), updates
    asked = await driver.requests()
    assert [said for said, _ in groupby(request(*each) for each in asked)] == list(requests), asked
    for method, payload in asked:
        if method == "create":
            assert case.created.items() <= payload.items()
            assert payload["resources"] == driver.resources()
        if method == "setup":
            assert payload["R"]["execution"]["nodelist"]


async def _do(step: Step, driver: Driver) -> None:
    match step:
        case Submit(system, long, urgency, guest):
            given = {"dw": DIRECTIVE, **system}
            if given["dw"] is None:
                del given["dw"]
            await driver.submit(given, long=long, urgency=urgency, guest=guest)
        case Until(event):
            await driver.until(event)
        case Received(request):
            await driver.received(request)
        case Ask():
            for _ in range(2 if step.again else 1):
                error = await driver.ask(step.method, step.payload)
                assert (step.refused or "") in (error or "")
                assert (error is None) == (step.refused is None), error
        case Answer(method, answer):
            await driver.answer(method, answer)
        case Serve(present):
            await driver.serve(present)
        case Raise(type, severity, guest):
            await driver.except_(type, severity, guest=guest)
        case Note(memo):
            await driver.memo(memo)
        case Kill():
            await driver.kill()
        case Hasten():
            await driver.hasten()
        case Reload():
            await driver.reload()


_TOLD: Final = frozenset(
    [
        *["dependency-add", "jobspec-update", "dependency-remove", "alloc", "prolog-start"],
        *["dws_environment", "prolog-finish", "start", "exception", "finish", "epilog-start"],
        *["epilog-finish", "clean"],
    ]
)


def told(name: str, context: Payload) -> str:
    """Return an event with what matters of its context; nothing for those that do not matter."""
    if name not in _TOLD:
        return ""
    return " ".join([name, *_words(name, context)])


def _words(name: str, context: Payload) -> Iterator[str]:
    if name == "dws_environment":
        yield from (f"{key}={value}" for key, value in context["variables"].items())
    if name == "exception":
        yield from (str(context[key]) for key in ("type", "severity", "note"))
    if "description" in context:
        yield context["description"]
        if "status" in context:
            yield str(context["status"])


def request(method: str, payload: Payload) -> str:
    if method != "post_run":
        return method
    return f"post_run {'ran' if payload['run_started'] else 'never'}"
