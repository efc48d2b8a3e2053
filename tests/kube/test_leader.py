"""Leader election: never two at a time, and never none for long."""

import asyncio
import itertools
import random
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.logs import capture_logs
from tests.harness.virtual import EPOCH, VirtualClock
from tests.journal.running import virtually
from tests.kube.clusters import alongside, change
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.base.times import parse_rfc3339
from warren.journal import MemoryJournal
from warren.kube.admission import AdmitAll
from warren.kube.client import Forbidden, Refused, Unavailable
from warren.kube.leader import LEASE, LeaseLost, LeaseTiming, lead
from warren.kube.server.local import LocalClient
from warren.kube.server.store import Store

T = TypeVar("T")

NAME = Key("default", "controllers")
PAUSE = 2 * 1.2
"""The longest between two tries."""


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """Leases are lost in this file on purpose."""
    with capture_logs() as entries:
        yield entries


def now() -> float:
    return asyncio.get_running_loop().time()


class Fault(NamedTuple):
    """What happens to a request."""

    before: float = 0.0
    """Seconds until the API does what is asked, whether the asker waits for it or not."""
    after: float = 0.0
    """Seconds from then until the answer."""
    lost: str = ""
    """What gets lost: the `request`, or the `answer`."""


class WrongClock:
    """A clock that was not set."""

    def __init__(self, offset: float) -> None:
        self._offset = offset

    def now(self) -> float:
        return EPOCH + self._offset + now()


class Line:
    """A client whose requests may be slow or get lost, until it is dead."""

    def __init__(self, store: Store, faults: Callable[[], Fault] = Fault) -> None:
        self._client = LocalClient(store)
        self.faults = faults
        self.dead = False
        self.asked: list[str] = []

    async def get(self, kind: Kind, key: Key) -> Object:
        return await self._ask("get", lambda: self._client.get(kind, key))

    async def create(self, kind: Kind, obj: Object) -> Object:
        return await self._ask("create", lambda: self._client.create(kind, obj))

    async def patch(self, change: Change) -> Object:
        return await self._ask("patch", lambda: self._client.patch(change))

    async def _ask(self, verb: str, action: Callable[[], Awaitable[T]]) -> T:
        self.asked.append(verb)
        fault = self.faults()
        if self.dead or fault.lost == "request":
            await asyncio.sleep(fault.before)
            raise Unavailable("lost")

        async def do() -> T:
            await asyncio.sleep(fault.before)
            return await action()

        doing = asyncio.ensure_future(do())
        doing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({doing})
        await asyncio.sleep(fault.after)
        if fault.lost == "answer":
            raise Unavailable("lost")
        return doing.result()

    async def list(self, *_: Any) -> Any:
        raise AssertionError("nothing is listed")

    def watch(self, *_: Any) -> Any:
        raise AssertionError("nothing is watched")

    async def delete(self, remove: Remove) -> None:
        raise AssertionError("nothing is deleted")


class Process:
    """A process that would like to lead, and how it went."""

    def __init__(self, play: "TaskBehavior", identity: str, **options: Any) -> None:
        self.identity = identity
        self.line = Line(play.store)
        self.grace = 0.0
        """How long its part takes to end."""
        self.told: list[bool] = []
        self.began: float | None = None
        self.cancelled: float | None = None
        self.ended: float | None = None
        self.finish = asyncio.Event()
        self.error: Exception | None = None
        self._play = play
        self._options = options

    def start(self, offset: float = 0.0) -> "asyncio.Future[None]":
        self.running = asyncio.ensure_future(
            lead(
                self.line,
                WrongClock(offset),
                NAME,
                self.identity,
                self._part,
                on_change=self.told.append,
                **{"jitter": random.Random(self.identity).random, **self._options},
            )
        )
        return self.running

    async def _part(self) -> None:
        assert self._play.leaders == set(), (self.identity, now())
        self._play.leaders.add(self.identity)
        self.began = now()
        try:
            await self.finish.wait()
            if self.error is not None:
                raise self.error
        except asyncio.CancelledError:
            self.cancelled = now()
            if not self.line.dead:
                await asyncio.sleep(self.grace)
            raise
        finally:
            self._play.leaders.discard(self.identity)
            self.ended = now()

    async def stop(self) -> None:
        """End in peace."""
        self.running.cancel()
        await asyncio.wait({self.running})

    async def die(self) -> None:
        """Be killed: without a word."""
        self.line.dead = True
        await self.stop()


class TaskBehavior:
    """A store with Leases, and those who lead now."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.leaders: set[str] = set()

    def lease(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.store.get(LEASE, NAME)["spec"]
        return spec

    def process(self, identity: str, **options: Any) -> Process:
        return Process(self, identity, **options)


@asynccontextmanager
async def played() -> AsyncIterator[TaskBehavior]:
    store = Store(MemoryJournal(), VirtualClock(), AdmitAll())
    async with alongside(store.run()):
        yield TaskBehavior(store)


# Becoming the leader


@virtually
async def test_the_first_leads_at_once_and_says_so_in_the_lease() -> None:
    async with played() as play:
        one = play.process("one")
        one.start()
        await asyncio.sleep(1)
        assert one.began == 0
        assert play.lease() == {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-09-21T14:13:20.000000Z",
            "renewTime": "2026-09-21T14:13:20.000000Z",
            "leaseTransitions": 0,
        }
        await one.stop()


@virtually
async def test_a_leader_renews_with_one_request_and_keeps_the_rest_as_it_was() -> None:
    async with played() as play:
        one = play.process("one")
        one.start()
        await asyncio.sleep(0.5)
        first = play.lease()
        await asyncio.sleep(1000)
        last = play.lease()
        assert parse_rfc3339(last["renewTime"]) - EPOCH == 1000
        assert {**last, "renewTime": ""} == {**first, "renewTime": ""}
        assert one.line.asked == ["get", "create", *["patch"] * 500]
        await one.stop()


@virtually
async def test_another_waits_for_as_long_as_there_is_a_leader() -> None:
    async with played() as play:
        one, two = play.process("one"), play.process("two")
        for each in (one, two):
            each.start()
        await asyncio.sleep(1000)
        assert (one.ended, two.began) == (None, None)
        assert (one.told, two.told) == ([True], [])
        for each in (two, one):
            await each.stop()


@pytest.mark.parametrize("offset", [-1e6, 0, 1e6])
@virtually
async def test_another_leads_when_the_leader_is_dead_whatever_the_clocks_say(
    offset: float,
) -> None:
    async with played() as play:
        one, two = play.process("one"), play.process("two")
        one.start()
        await asyncio.sleep(100)
        two.start(offset)
        await asyncio.sleep(100.5)
        await one.die()
        await asyncio.sleep(15 + 2 * PAUSE)
        renewed = 200
        assert two.began is not None
        assert renewed + 15 <= two.began <= renewed + 15 + 2 * PAUSE
        lease = play.lease()
        assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("two", 1)
        acquired = parse_rfc3339(lease["acquireTime"]) - EPOCH - offset
        assert acquired == pytest.approx(two.began, abs=1e-5)
        await two.stop()


@virtually
async def test_the_timing_of_who_holds_the_lease_counts() -> None:
    async with played() as play:
        long = LeaseTiming(lease_duration=100, renew_deadline=50)
        one, two = play.process("one", timing=long), play.process("two")
        one.start()
        two.start()
        await asyncio.sleep(0.5)
        await one.die()
        await asyncio.sleep(150)
        assert two.began is not None
        assert 100 <= two.began <= 100 + 2 * PAUSE
        await two.stop()


def test_a_timing_by_which_a_leader_would_hold_on_for_too_long_are_refused() -> None:
    for wrong in (
        {"lease_duration": 10},
        {"renew_deadline": 1.0},
        {"retry_period": 0.0},
        {"retry_period": 12.0},
    ):
        with pytest.raises(ValueError, match="would not let go"):
            LeaseTiming(**wrong)


@virtually
async def test_who_may_not_have_a_lease_is_told() -> None:
    class NoLeases(Line):
        async def create(self, kind: Kind, obj: Object) -> Object:
            raise Refused("leases are not for you")

    async with played() as play:
        one = play.process("one")
        one.line = NoLeases(play.store)
        with pytest.raises(Refused):
            await one.start()


@virtually
async def test_a_role_that_lacks_is_waited_for(
    heard: list[MutableMapping[str, Any]],
) -> None:
    class Roleless(Line):
        lacks = True

        async def create(self, kind: Kind, obj: Object) -> Object:
            if self.lacks:
                raise Forbidden('leases is forbidden: User "w" cannot create resource "leases"')
            return await super().create(kind, obj)

    async with played() as play:
        one = play.process("one")
        line = one.line = Roleless(play.store)
        one.start()
        await asyncio.sleep(100)
        assert one.began is None
        assert [each["event"] for each in heard] == ["the API refuses, and is asked again"]
        line.lacks = False
        await asyncio.sleep(2 * PAUSE)
        assert one.began is not None
        await one.stop()


# Letting go


@virtually
async def test_who_stops_in_peace_gives_the_lease_back_and_another_leads_soon() -> None:
    async with played() as play:
        one, two = play.process("one"), play.process("two")
        one.start()
        await asyncio.sleep(101)
        two.start()
        await asyncio.sleep(100)
        await one.stop()
        lease = play.lease()
        assert (lease["holderIdentity"], lease["leaseDurationSeconds"]) == ("", 1)
        assert lease["leaseTransitions"] == 0
        assert parse_rfc3339(lease["renewTime"]) == EPOCH + 201
        assert one.told == [True, False]
        await asyncio.sleep(PAUSE)
        assert play.leaders == {"two"}
        lease = play.lease()
        assert (lease["leaseDurationSeconds"], lease["leaseTransitions"]) == (15, 1)
        await two.stop()


@virtually
async def test_the_lease_is_renewed_until_the_part_has_ended_and_given_back_after_that() -> None:
    async with played() as play:
        one, two = play.process("one"), play.process("two")
        one.grace = 300
        one.start()
        two.start()
        await asyncio.sleep(10)
        await one.stop()
        assert (one.cancelled, one.ended) == (10, 310)
        assert two.began is None
        await asyncio.sleep(PAUSE)
        assert play.leaders == {"two"}
        await two.stop()


@virtually
async def test_who_stops_while_a_renewal_is_under_way_gives_the_lease_back_all_the_same() -> None:
    async with played() as play:
        one = play.process("one")
        one.start()
        await asyncio.sleep(1)
        one.line.faults = lambda: Fault(after=0.3)
        await asyncio.sleep(1.1)
        await one.stop()
        assert play.lease()["holderIdentity"] == ""


@virtually
async def test_a_part_that_ends_by_itself_gives_the_lease_back() -> None:
    async with played() as play:
        one = play.process("one")
        running = one.start()
        await asyncio.sleep(5)
        one.finish.set()
        await running
        assert play.lease()["holderIdentity"] == ""
        assert one.told == [True, False]


@virtually
async def test_what_a_part_dies_of_is_raised_and_the_lease_given_back() -> None:
    async with played() as play:
        one = play.process("one")
        one.error = KeyError("a bug")
        running = one.start()
        one.finish.set()
        with pytest.raises(ExceptionGroup) as caught:
            await running
        assert caught.group_contains(KeyError)
        assert play.lease()["holderIdentity"] == ""


@virtually
async def test_an_api_that_is_away_does_not_keep_the_process_from_stopping() -> None:
    async with played() as play:
        one = play.process("one")
        one.start()
        await asyncio.sleep(5)
        one.line.faults = lambda: Fault(before=1e6)
        await one.stop()
        assert now() <= 5 + 2
        assert one.running.cancelled()


# Losing the lease


@virtually
async def test_a_leader_that_cannot_renew_lets_go_in_time_and_says_so(
    logged: list[MutableMapping[str, Any]],
) -> None:
    async with played() as play:
        one = play.process("one")
        one.grace = 4
        running = one.start()
        await asyncio.sleep(100.5)
        one.line.faults = lambda: Fault(lost="request")
        with pytest.raises(LeaseLost):
            await running
        assert (one.cancelled, one.ended) == (110, 114)
        assert one.told == [True, False]
        assert [each["event"] for each in logged if each["log_level"] == "error"] == [
            "the lease is lost"
        ]


@pytest.mark.parametrize(
    ("faults", "end"),
    [([Fault(), Fault(after=9)], 10), ([Fault(), Fault(), Fault(after=7)], 12)],
    ids=["taken", "renewed"],
)
@virtually
async def test_the_time_to_let_go_counts_from_the_question_and_not_from_the_answer(
    faults: Sequence[Fault], end: float
) -> None:
    async with played() as play:
        one, two = play.process("one"), play.process("two")
        one.grace = 4.9
        one.line.faults = iter([*faults, *[Fault(lost="request")] * 9]).__next__
        running = one.start()
        await asyncio.sleep(0)
        two.start()
        with pytest.raises(LeaseLost):
            await running
        assert (one.cancelled, one.ended) == (end, end + 4.9)
        await asyncio.sleep(2 * PAUSE)
        assert two.began is not None
        assert two.began >= end + 5
        await two.stop()


@virtually
async def test_an_api_that_is_away_for_a_moment_costs_nothing() -> None:
    async with played() as play:
        one = play.process("one")
        one.start()
        for _ in range(20):
            await asyncio.sleep(20)
            one.line.faults = lambda: Fault(before=0.5, lost="answer")
            await asyncio.sleep(7)
            one.line.faults = Fault
        assert one.ended is None
        await one.stop()


@virtually
async def test_a_lease_that_another_holds_is_lost() -> None:
    async with played() as play:
        one = play.process("one")
        running = one.start()
        await asyncio.sleep(100.5)
        lease = play.store.get(LEASE, NAME)
        await play.store.patch(change(LEASE, lease, {"spec": {"holderIdentity": "admin"}}))
        with pytest.raises(LeaseLost):
            await running
        assert one.ended is not None
        assert one.ended <= 100.5 + 2 * 2
        assert play.lease()["holderIdentity"] == "admin"


@virtually
async def test_a_lease_that_was_changed_otherwise_is_kept() -> None:
    async with played() as play:
        one = play.process("one")
        one.start()
        await asyncio.sleep(100.5)
        lease = play.store.get(LEASE, NAME)
        await play.store.patch(change(LEASE, lease, {"metadata": {"labels": {"a": "b"}}}))
        await asyncio.sleep(100)
        assert play.leaders == {"one"}
        assert play.lease()["leaseTransitions"] == 0
        await one.stop()


@virtually
async def test_who_was_made_leader_by_an_answer_that_got_lost_leads_after_the_next() -> None:
    async with played() as play:
        one = play.process("one")
        faults = [Fault(), Fault(lost="answer"), *[Fault()] * 9]
        one.line.faults = iter(faults).__next__
        one.start()
        await asyncio.sleep(PAUSE)
        assert play.leaders == {"one"}
        assert play.lease()["leaseTransitions"] == 0
        await one.stop()


# Whatever happens


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
@virtually
async def test_there_are_never_two_leaders_and_after_all_trouble_there_is_one(seed: int) -> None:
    """`Process` asserts that it is alone whenever it begins to lead."""
    chance = random.Random(seed)

    def trouble() -> Fault:
        slow = [0.0, 0.0, 0.0, 0.1, 1.0, 5.0, 9.5, 12.0, 20.0]
        lost = chance.choice(["", "", "", "request", "answer"])
        return Fault(chance.choice(slow), chance.choice(slow), lost)

    names = itertools.count()

    def born(play: TaskBehavior) -> Process:
        process = play.process(f"p-{next(names)}", jitter=chance.random)
        process.line.faults = trouble
        process.grace = chance.choice([0, 1, 4.9])
        process.start(chance.uniform(-1e6, 1e6))
        return process

    async with played() as play:
        alive = [born(play) for _ in range(3)]
        for _ in range(6):
            await asyncio.sleep(chance.uniform(0, 40))
            at = chance.randrange(3)
            if not alive[at].running.done():
                await (alive[at].die if chance.random() < 0.5 else alive[at].stop)()
            _assert_no_bug(alive[at])
            alive[at] = born(play)
        for at, each in enumerate(alive):
            each.line.faults = Fault
            if each.running.done():
                _assert_no_bug(each)
                alive[at] = born(play)
                alive[at].line.faults = Fault
        # What was on its way is answered, and who has lost the lease has let go.
        await asyncio.sleep(50)
        for each in alive:
            if each.running.done():
                _assert_no_bug(each)
        living = [each for each in alive if not each.running.done()] or [born(play)]
        living[0].line.faults = Fault
        await asyncio.sleep(30)
        assert len(play.leaders) == 1
        for each in living:
            await each.stop()
            _assert_no_bug(each)


def _assert_no_bug(process: Process) -> None:
    if not process.running.cancelled():
        assert isinstance(process.running.exception(), LeaseLost)


@given(at=st.floats(0.1, 50), seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
@virtually
async def test_after_a_death_another_leads_within_a_lease_and_two_pauses(
    at: float, seed: int
) -> None:
    chance = random.Random(seed)
    async with played() as play:
        processes = [play.process(name, jitter=chance.random) for name in ("one", "two", "three")]
        for each in processes:
            each.start()
        await asyncio.sleep(at)
        (name,) = play.leaders
        leader = next(each for each in processes if each.identity == name)
        await leader.die()
        await asyncio.sleep(15 + 2 * PAUSE)
        assert len(play.leaders) == 1
        for each in processes:
            if each is not leader:
                await each.stop()
