"""What a job's state asks to be done."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.lifecycle.stories import ID, LIFE, SUBMIT, event, job
from warren.lifecycle.actions import (
    Execute,
    Free,
    OutstandingRequests,
    PartialFree,
    Post,
    Prioritize,
    RequestAllocation,
    WithdrawAllocation,
    decide,
)
from warren.lifecycle.job import SCHEDULER_RESTART, IllegalEvent, Job, from_submit, update
from warren.lifecycle.states import State
from warren.rfc.eventlog import Event

IDLE = OutstandingRequests()
ASKED = OutstandingRequests(alloc=True)
STOPPED = OutstandingRequests(queue_eligible=False)
EXECUTING = OutstandingRequests(execution=True)
BEGUN = OutstandingRequests(may_have_old_shells=True)
QUEUED = ["validate", "depend", "priority"]
RUN = [*QUEUED, "alloc"]
CANCEL = event("exception")


def under(*names: str) -> OutstandingRequests:
    return OutstandingRequests(events=frozenset(names))


CASES: list[tuple[str, list[Any], OutstandingRequests, list[Any]]] = [
    ("a new job waits for its validation", [], IDLE, []),
    ("a job without dependencies goes on", ["validate"], IDLE, [Post("depend")]),
    ("a dependency holds it", ["dependency-add", "validate"], IDLE, []),
    ("a dependency on its way holds it", ["validate"], under("dependency-add"), []),
    ("what is on its way is not said twice", ["validate"], under("depend"), []),
    ("it needs a priority", QUEUED[:2], IDLE, [Prioritize()]),
    ("the priority is not said twice", QUEUED[:2], under("priority"), []),
    (
        "a job that goes back withdraws its request",
        [*QUEUED, "urgency"],
        ASKED,
        [WithdrawAllocation(), Prioritize()],
    ),
    ("a queued job asks for resources", QUEUED, IDLE, [RequestAllocation()]),
    ("it asks once", QUEUED, ASKED, []),
    ("it does not ask while its queue is stopped", QUEUED, STOPPED, []),
    (
        "a stopped queue withdraws what it has asked for",
        QUEUED,
        replace(STOPPED, alloc=True),
        [WithdrawAllocation()],
    ),
    ("a job of priority 0 is held", [*QUEUED[:2], event("priority", priority=0)], IDLE, []),
    ("a job with resources is run", RUN, IDLE, [Execute(reattach=False)]),
    ("a prolog holds it back", [*RUN, "prolog-start"], IDLE, []),
    ("a prolog on its way holds it back", RUN, under("prolog-start"), []),
    ("it is run when the prolog is over", LIFE[:8], IDLE, [Execute(reattach=False)]),
    ("it is run once", RUN, EXECUTING, []),
    ("after a restart it is taken up again", [*RUN, "start"], IDLE, [Execute(reattach=True)]),
    ("a cancelled job withdraws its request", [*QUEUED, CANCEL], ASKED, [WithdrawAllocation()]),
    ("one that had nothing is cleaned up", [*QUEUED, CANCEL], IDLE, [Post("clean")]),
    ("it is cleaned up once", [*QUEUED, CANCEL], under("clean"), []),
    ("execution is waited for", [*RUN, "start", CANCEL], EXECUTING, []),
    ("who knows what is left is asked", [*RUN, "start", CANCEL], IDLE, [Execute(reattach=True)]),
    ("also of one that was being started", [*RUN, CANCEL], BEGUN, [Execute(reattach=False)]),
    ("it is waited for then", [*RUN, CANCEL], replace(BEGUN, execution=True), []),
    (
        "nothing holds what it has let go of",
        [*RUN, CANCEL, event("release", ranks="all", final=True)],
        BEGUN,
        [Free(), Post("free")],
    ),
    (
        "nodes that execution is done with go back early",
        [*RUN, "start", event("finish"), event("release", ranks="1-2", final=False)],
        EXECUTING,
        [PartialFree(frozenset({1, 2})), Post("partial-free", {"ranks": "1-2"})],
    ),
    (
        "they go back once",
        [*RUN, "start", "finish", event("release", ranks="1", final=False), "partial-free"],
        EXECUTING,
        [],
    ),
    (
        "they do not go back while tasks may be left",
        [*RUN, "start", event("release", ranks="1", final=False), CANCEL],
        EXECUTING,
        [],
    ),
    (
        "nor while an epilog holds them",
        [*RUN, "start", "finish", event("release", ranks="1", final=False), "epilog-start"],
        EXECUTING,
        [],
    ),
    ("who brings its own resources asks for none", ["set-flags", *QUEUED], IDLE, []),
    ("an open prolog holds the resources", [*RUN, "prolog-start", CANCEL], IDLE, []),
    ("resources go back", [*RUN, CANCEL], IDLE, [Free(), Post("free")]),
    ("resources go back once", [*RUN, CANCEL], under("free"), []),
    ("an epilog holds the resources", [*LIFE[:12]], IDLE, []),
    ("an epilog on its way holds them", [*RUN, CANCEL], under("epilog-start"), []),
    ("after the epilog they go back", [*LIFE[:13]], IDLE, [Free(), Post("free")]),
    ("then the job is clean", [*LIFE[:14]], IDLE, [Post("clean")]),
    ("and nothing is left to do", LIFE, IDLE, []),
]


@pytest.mark.parametrize(
    ("story", "under_way", "actions"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_state_asks_for_what_is_still_to_do(
    story: list[Any], under_way: OutstandingRequests, actions: list[Any]
) -> None:
    assert decide(job(*story), under_way) == actions


EVENTS = ["dependency-add", "depend", "priority", "prolog-start", "epilog-start", "free", "clean"]
under_ways = st.builds(
    OutstandingRequests,
    alloc=st.booleans(),
    execution=st.booleans(),
    may_have_old_shells=st.booleans(),
    events=st.frozensets(st.sampled_from(EVENTS)),
)


def _said_by_user(type: str, severity: int, note: str, wait_status: int | None) -> Event:
    context = {"type": type, "severity": severity, "note": note, "userid": SUBMIT.context["userid"]}
    return Event(
        2.0,
        "exception",
        context if wait_status is None else {**context, "wait_status": wait_status},
    )


USER_WORDS = st.builds(
    _said_by_user,
    st.sampled_from(["cancel", "timeout", "alloc", "exec", "free", SCHEDULER_RESTART])
    | st.text(min_size=1),
    st.integers(0, 7),
    st.text(),
    st.none() | st.integers(0, 65535),
)
"""What users may have written into their jobs' logs, by `raise`."""


@given(st.integers(1, len(LIFE) - 1), USER_WORDS, under_ways)
def test_a_users_exception_ends_a_job_or_changes_nothing(
    event_count: int, said: Event, under_way: OutstandingRequests
) -> None:
    """What the job has of the scheduler, and what is freed, is so whatever its type and note."""
    before = job(*LIFE[:event_count])
    plain = update(before, CANCEL) if said.context["severity"] == 0 else before
    after = update(before, said)
    assert decide(after, under_way) == decide(plain, under_way)
    assert replace(after, exceptions=()) == replace(plain, exceptions=())


@given(under_ways)
def test_an_inactive_job_asks_for_nothing_whatever_was_under_way(
    under_way: OutstandingRequests,
) -> None:
    assert decide(job(*LIFE), under_way) == []


class Manager:
    """A job manager, a scheduler and an execution of one job, that do what is asked."""

    def __init__(self) -> None:
        self.job: Job = from_submit(ID, SUBMIT)
        self.under_way = OutstandingRequests()
        self.posted: list[str] = []
        self.shells = False

    def post(self, name: str, **context: Any) -> None:
        self.posted.append(name)
        self.job = update(self.job, Event(2.0, name, context))

    def actions(self) -> None:
        """Do all that the job asks for, until it waits for another."""
        while asked := decide(self.job, self.under_way):
            assert decide(self.job, self.under_way) == asked
            for each in asked:
                match each:
                    case Post(name, context):
                        self.post(name, **context)
                    case Prioritize():
                        self.post("priority", priority=self.job.urgency)
                    case PartialFree(ranks):
                        assert self.job.allocated
                        assert not ranks & self.job.freed_ranks
                    case RequestAllocation():
                        assert not self.job.allocated
                        self.under_way = replace(self.under_way, alloc=True)
                    case WithdrawAllocation():
                        self.under_way = replace(self.under_way, alloc=False)
                    case Execute(reattach):
                        assert reattach == self.job.started
                        self.under_way = replace(self.under_way, execution=True)
                        self.shells = True
                    case Free():
                        assert self.job.allocated
                        assert not self.shells
                        assert not self.job.prologs | self.job.epilogs

    def answer(self) -> None:
        """Let the one that is asked answer, one step further."""
        if self.job.state is State.NEW:
            self.post("validate")
        elif self.under_way.alloc:
            self.under_way = replace(self.under_way, alloc=False)
            self.post("alloc")
        elif self.under_way.execution:
            if not self.job.started and not self.job.fatal_exception:
                self.post("start")
            elif self.job.started and self.job.wait_status is None:
                self.post("finish", status=0)
            else:
                self.shells = False
                self.post("release", ranks="all", final=True)
                self.under_way = replace(self.under_way, execution=False, may_have_old_shells=False)
        elif self.job.dependencies and self.job.state is State.DEPEND:
            self.post("dependency-remove", description="dws-create")
        elif self.job.prologs:
            self.post("prolog-finish", description="dws-setup", status=0)
        elif self.job.epilogs:
            self.post("epilog-finish", description="dws-epilog", status=0)

    def restart(self) -> None:
        """Forget all requests, as a process that died has."""
        self.under_way = OutstandingRequests(may_have_old_shells=self.shells)
        if self.job.state is State.SCHED:
            self.post("flux-restart")

    def happen(self, name: str) -> None:
        """Let something come from outside, if it may come now."""
        if (name, self.job.state) == ("exception", State.NEW):
            return  # the job would be refused
        if name == "prolog-start" and self.job.state is not State.RUN:
            return
        try:
            self.job = update(self.job, event(name))
            self.posted.append(name)
        except IllegalEvent:
            pass


OUTSIDE = ["exception", "urgency", "jobspec-update", "memo", "dependency-add", "prolog-start"]
turns = st.lists(st.sampled_from([*OUTSIDE, "epilog-start", "restart", "answer", "answer"]))


@given(turns)
def test_doing_what_is_asked_brings_every_job_to_its_end(turns: list[str]) -> None:
    manager = Manager()
    for turn in turns:
        manager.actions()
        if turn == "answer":
            manager.answer()
        elif turn == "restart":
            manager.restart()
        else:
            manager.happen(turn)
    for _ in range(20):
        manager.actions()
        manager.answer()

    assert manager.job.state is State.INACTIVE
    assert manager.posted.count("clean") == 1
    assert manager.posted.count("free") == manager.posted.count("alloc") <= 1
    assert not manager.job.allocated
