"""The C plugin in a real Flux: the table of cases, and what is Flux's alone."""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson
import pytest

from tests.flux.broker import Broker, Refused
from tests.wlm.plugin_cases import (
    CASES,
    DIRECTIVE,
    VARIABLES,
    Case,
    Payload,
    play,
    request,
    told,
)
from warren.rfc import jobspec, signed_request

OWNER = os.getuid()
GUEST = OWNER + 1


_LONGEST = 120
"""Seconds in which what tests wait for is to come."""


class News(NamedTuple):
    """What is known of a job."""

    log: list[tuple[str, Payload]]
    requests: list[tuple[str, Payload]]


class Real:
    """A `Driver`: one job in a real Flux."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._answers: dict[str, Payload] = {}
        self._conf: dict[str, Any] = {}
        self._present = False
        self.spec: dict[str, Any] = {}
        self.job = 1  # which there is not
        self._long = False

    def begin(self, **conf: Any) -> None:
        """Load the plugin, with a conductor that is there and agrees to everything."""
        self._conf = conf
        self.broker.load(**conf)
        self.broker.do("answer", answers={})
        self._serve(True)

    def end(self) -> None:
        """Let a job go that a failure has left."""
        if self._present:
            for topic, payload in (
                ("job-manager.raise", {"type": "cancel", "severity": 0}),
                ("job-manager.dws.epilog-remove", {}),
            ):
                try:
                    self.broker.rpc(topic, {"id": self.job, **payload})
                except Refused:
                    break  # it is over
        self._serve(False)

    def _serve(self, present: bool) -> None:
        if present != self._present:
            self.broker.do("serve", present=present)
        self._present = present

    async def submit(self, system: Payload, *, long: bool, urgency: int, guest: bool) -> None:
        # Tasks that are to be killed are processes; others only take time.
        self._long = long
        test = {} if long else {"exec": {"test": {"run_duration": "0.01s"}}}
        self.spec = jobspec.make(["sleep", "3600"], tasks=1, attributes={**system, **test})
        if guest:
            self.job = self.broker.do("accept", jobspec=self.spec, userid=GUEST)["id"]
        else:
            token = signed_request.wrap(orjson.dumps(self.spec), OWNER)
            request = {"J": token, "urgency": urgency, "flags": 0}
            self.job = self.broker.do("submit", request=request)["id"]

    def _news(self, known: int = -1) -> "News":
        found = self.broker.do("news", job=self.job, known=known, seconds=_LONGEST)
        return News(*([(name, context) for name, context in told] for told in found.values()))

    def wait(self, condition: Callable[["News"], bool]) -> None:
        """Wait until what is known of the job is so."""
        news = self._news()
        while not condition(news):
            known = len(news.log) + len(news.requests)
            news = self._news(known)
            assert len(news.log) + len(news.requests) > known, news

    async def until(self, event: str) -> None:
        self.wait(lambda news: any(told(*each).startswith(event) for each in news.log))
        if event == "start" and self._long:
            # A shell that has no tasks yet may lose a signal, or fail to start what is cancelled.
            wait = ["flux", "job", "wait-event", "-p", "guest.exec.eventlog"]
            self.broker.do("run", command=[*wait, str(self.job), "shell.start"])

    async def received(self, wanted: str) -> None:
        self.wait(lambda news: any(request(*each).startswith(wanted) for each in news.requests))

    async def ask(self, method: str, payload: Payload) -> str | None:
        resources = {"resources": self.resources()} if method == "resource-update" else {}
        try:
            self.broker.rpc(f"job-manager.dws.{method}", {"id": self.job, **resources, **payload})
        except Refused as error:
            return str(error)
        return None

    async def answer(self, method: str, answer: Payload) -> None:
        self._answers[method] = answer
        self.broker.do("answer", answers=self._answers)

    async def serve(self, present: bool) -> None:
        self._serve(present)

    async def except_(self, type: str, severity: int, *, guest: bool) -> None:
        asked = {"id": self.job, "type": type, "severity": severity, "note": "enough"}
        self.broker.rpc("job-manager.raise", asked, GUEST if guest else None)

    async def kill(self) -> None:
        self.broker.rpc("job-manager.kill", {"id": self.job, "signum": 15})

    async def memo(self, memo: Payload) -> None:
        self.broker.rpc("job-manager.memo", {"id": self.job, "volatile": False, "memo": memo})

    async def hasten(self) -> None:
        self.broker.rpc("job-manager.urgency", {"id": self.job, "urgency": 16})

    async def reload(self) -> None:
        self.broker.load(**self._conf)

    async def log(self) -> Sequence[tuple[str, Payload]]:
        return self._news().log

    async def requests(self) -> Sequence[tuple[str, Payload]]:
        return self._news().requests

    def resources(self) -> Sequence[Payload]:
        found: Sequence[Payload] = self.spec["resources"]
        return found


@pytest.fixture
def real(broker: Broker) -> Iterator[Real]:
    driver = Real(broker)
    yield driver
    driver.end()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_plugin_of_flux(case: Case, real: Real) -> None:
    timeout = {} if case.epilog_timeout is None else {"epilog-timeout": case.epilog_timeout}
    real.begin(**timeout)
    asyncio.run(play(case, real, case.requests))


# What is Flux's alone


def submitted(real: Real, **system: Any) -> None:
    given = {"dw": DIRECTIVE, **system}
    asyncio.run(real.submit(given, long=False, urgency=16, guest=False))


def ask(real: Real, method: str, **payload: Any) -> str | None:
    return asyncio.run(real.ask(method, payload))


def went_through(real: Real) -> list[str]:
    """Have the conductor do its part for a job until it is over; return what it was asked."""
    asyncio.run(real.received("create"))
    assert ask(real, "resource-update", exclude=None) is None
    asyncio.run(real.received("setup"))
    assert ask(real, "prolog-remove", **VARIABLES) is None
    asyncio.run(real.received("post_run"))
    assert ask(real, "epilog-remove") is None
    asyncio.run(real.until("clean"))
    return [request(*each) for each in asyncio.run(real.requests())]


def test_a_conductor_that_knows_the_job_is_told_once(real: Real) -> None:
    real.begin()
    submitted(real)
    asyncio.run(real.received("create"))
    asyncio.run(real.memo({"rabbit_workflow": "fluxjob-1"}))
    asyncio.run(real.reload())
    assert ask(real, "resource-update", exclude=None) is None
    asyncio.run(real.received("setup"))
    asyncio.run(real.memo({"rabbits": "rabbit-0"}))
    asyncio.run(real.reload())
    assert ask(real, "prolog-remove", **VARIABLES) is None
    asyncio.run(real.received("post_run"))
    assert ask(real, "epilog-remove") is None
    asyncio.run(real.until("clean"))

    asked = [request(*each) for each in asyncio.run(real.requests())]
    assert asked == ["create", "setup", "post_run ran"]


def test_many_jobs_wait_for_a_conductor_and_each_is_told_of_once(broker: Broker) -> None:
    jobs = [Real(broker) for _ in range(100)]
    jobs[0].begin()
    asyncio.run(jobs[0].serve(False))
    for each in jobs:
        submitted(each)
    asyncio.run(jobs[-1].until("dependency-add"))
    told_of = broker.query()
    assert told_of["conductor-away"]
    assert [each["holds"] for each in told_of["jobs"]] == [["dws-create"]] * 100
    assert {each["unanswered"] for each in told_of["jobs"]} == {"dws.create"}

    asyncio.run(jobs[0].serve(True))
    asked = [went_through(each) for each in jobs]
    assert asked == [["create", "setup", "post_run ran"]] * 100
    told_of = broker.query()
    assert (told_of["jobs"], told_of["conductor-away"]) == ([], False)
    jobs[0].end()


def test_requests_wait_for_no_place_of_one_that_was_given_up(broker: Broker) -> None:
    jobs = [Real(broker) for _ in range(66)]
    jobs[0].begin(**{"answer-timeout": 8.0})
    asyncio.run(jobs[0].answer("create", {"silent": True}))
    for each in jobs:
        submitted(each)
    first, waiting = jobs[:64], jobs[64:]
    for each in first:
        asyncio.run(each.received("create"))
        # So the conductor has it, and is not asked again.
        asyncio.run(each.memo({"rabbit_workflow": "fluxjob-1"}))
    for each in waiting:
        asyncio.run(each.received("create"))

    asyncio.run(jobs[0].answer("create", {"success": True}))
    for each in jobs:
        assert went_through(each)[-2:] == ["setup", "post_run ran"]
    jobs[0].end()


def test_a_plugin_that_is_removed_while_it_waits_takes_its_requests_along(real: Real) -> None:
    real.begin()
    asyncio.run(real.answer("create", {"silent": True}))
    submitted(real)
    asyncio.run(real.received("create"))
    asyncio.run(real.reload())
    asyncio.run(real.answer("create", {"success": True}))
    asyncio.run(real.reload())

    assert went_through(real)[-2:] == ["setup", "post_run ran"]


def test_a_job_that_fails_while_there_is_no_plugin_is_held_at_its_end(
    real: Real, broker: Broker
) -> None:
    real.begin()
    submitted(real)
    asyncio.run(real.received("create"))
    assert ask(real, "resource-update", exclude=None) is None
    asyncio.run(real.received("setup"))
    broker.unload()
    asyncio.run(real.except_("cancel", 0, guest=False))
    asyncio.run(real.until("exception"))
    asyncio.run(real.reload())
    asyncio.run(real.received("post_run"))
    asyncio.run(real.until("prolog-finish dws-setup 1"))
    assert ask(real, "epilog-remove") is None
    asyncio.run(real.until("clean"))


def test_what_is_asked_before_the_logs_are_read_is_done_when_they_are(
    real: Real, broker: Broker
) -> None:
    real.begin()
    submitted(real)
    asyncio.run(real.received("create"))
    assert ask(real, "resource-update", exclude=None) is None
    asyncio.run(real.received("setup"))
    broker.unload()
    load = ("job-manager.jobtap", broker.loading())
    remove = ("job-manager.dws.prolog-remove", {"id": real.job, **VARIABLES})
    assert broker.do("together", requests=[load, remove]) == {"answers": [None, None]}
    asyncio.run(real.received("post_run"))
    assert ask(real, "epilog-remove") is None
    asyncio.run(real.until("clean"))


def test_a_job_that_is_cancelled_before_the_logs_are_read_ends(real: Real, broker: Broker) -> None:
    real.begin()
    submitted(real)
    asyncio.run(real.received("create"))
    assert ask(real, "resource-update", exclude=None) is None
    asyncio.run(real.received("setup"))
    broker.unload()
    load = ("job-manager.jobtap", broker.loading())
    cancel = {"id": real.job, "type": "cancel", "severity": 0, "note": "enough"}
    together = [load, ("job-manager.raise", cancel)]
    assert broker.do("together", requests=together) == {"answers": [None, None]}
    asyncio.run(real.received("post_run"))
    asyncio.run(real.until("prolog-finish dws-setup 1"))
    assert ask(real, "epilog-remove") is None
    asyncio.run(real.until("clean"))


def test_a_request_that_is_lost_is_sent_again(real: Real) -> None:
    real.begin(**{"answer-timeout": 0.2})
    asyncio.run(real.answer("create", {"silent": True}))
    submitted(real)
    real.wait(lambda news: len(news.requests) >= 2)
    exists = {"success": False, "errstr": 'workflows "fluxjob-1" already exists'}
    asyncio.run(real.answer("create", exists))
    asked = len(asyncio.run(real.requests()))
    real.wait(lambda news: len(news.requests) > asked)

    assert went_through(real)[-2:] == ["setup", "post_run ran"]


def test_nodes_are_not_given_back_one_by_one(real: Real) -> None:
    real.begin()
    error = ask(real, "release", nodelist="n0")
    assert error == "Flux gives a job's nodes back together: wait for dws.epilog-remove."


@pytest.mark.parametrize("method", ["resource-update", "prolog-remove", "epilog-remove", "release"])
def test_guests_may_not_let_jobs_go(real: Real, broker: Broker, method: str) -> None:
    real.begin()
    with pytest.raises(Refused, match="owner"):
        broker.rpc(f"job-manager.dws.{method}", {"id": 1}, GUEST)


@pytest.mark.parametrize(("given", "seconds"), [(5400, 5400.0), (-1, -1.0), ("soon", 0.0)])
def test_the_option_epilog_timeout_is_seconds(broker: Broker, given: Any, seconds: float) -> None:
    broker.load(**{"epilog-timeout": given})
    assert broker.query()["epilog-timeout"] == seconds
