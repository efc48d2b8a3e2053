"""What there is to know of all jobs: job-list."""

import asyncio
import errno
import json
import weakref
from collections.abc import Iterable
from contextlib import AsyncExitStack, aclosing
from itertools import groupby
from typing import Any

import pytest

from tests.instance.lives import Life, alive, spec
from tests.instance.parts import GUEST, OWNER, SlowDisk, opened, refused, settle, virtually
from warren.instance import config, keys
from warren.instance.kvs import put, unlink
from warren.journal import MemoryJournal
from warren.lifecycle import attributes
from warren.lifecycle.attributes import ATTRIBUTES, ListedJob
from warren.lifecycle.states import State
from warren.rfc.fluid import JobId
from warren.rpc.bus import StreamingMethod
from warren.rpc.message import Cred, Payload, Request, RpcError

OTHERS = JobId(9 << 24)
"""A job of the guest's."""


async def listed(life: Life, userid: int = OWNER, **request: Any) -> list[Payload]:
    answer = await life.bus.handle(userid).rpc("job-list.list", request)
    jobs: list[Payload] = answer["jobs"]
    return jobs


@virtually
async def test_users_see_each_others_jobs_unless_the_instance_is_private() -> None:
    private = config.parse("job-list.private = true")
    for settings in (config.parse(""), private):
        async with alive(generous=False, config=settings) as life:
            await life.accept(OTHERS, GUEST)
            job = await life.submit()
            everybody = {OTHERS, job}

            assert await seen(life, OWNER, job) == everybody
            assert await seen(life, GUEST, job) == ({OTHERS} if settings is private else everybody)
            assert await seen(life, GUEST + 1, job) == (set() if settings is private else everybody)


async def seen(life: Life, userid: int, job: JobId) -> set[JobId]:
    """Return which of two jobs a user sees."""
    ask = life.bus.handle(userid).rpc
    found = {each["id"] for each in (await ask("job-list.list", {}))["jobs"]}
    for each in (job, OTHERS):
        one = ask("job-list.list-id", {"id": each})
        if each in found:
            assert (await one)["job"]["id"] == each
        else:
            assert await refused(one) == errno.ENOENT
    return found


@pytest.mark.parametrize("job", [None, "f1", 5, 1.5, [1]])
@virtually
async def test_a_job_that_is_not_there_cannot_be_listed(job: Any) -> None:
    async with alive() as life:
        one = life.bus.handle().rpc("job-list.list-id", {"id": job})
        assert await refused(one) == (errno.ENOENT if type(job) is int else errno.EPROTO)


@virtually
async def test_a_job_is_described_with_the_attributes_of_rfc_43() -> None:
    async with alive() as life:
        asked = spec(name="solver", tasks=2, duration=60.0)
        job = await life.submit_spec(asked, urgency=20)
        await life.until(job)
        answer = await life.bus.handle().rpc("job-list.list-id", {"id": job})

        found = answer["job"]
        times = [found[f"t_{name}"] for name in ("submit", "depend", "sched", "run", "inactive")]
        assert times == sorted(times)
        expected = {
            "id": job,
            "userid": OWNER,
            "urgency": 20,
            "priority": 20,
            "state": 64,
            "name": "solver",
            "ntasks": 2,
            "nnodes": 1,
            "nodelist": "node0",
            "ranks": "0",
            "duration": 60.0,
            "exception_occurred": False,
            "result": 1,
            "success": True,
            "waitstatus": 0,
        }
        assert {name: found.get(name) for name in expected} == expected
        assert "exception_type" not in found


@virtually
async def test_what_is_not_known_of_a_job_is_left_out() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        (found,) = await listed(life)

        unknown = {"t_run", "nodelist", "ranks", "result", "waitstatus", "annotations"}
        assert not unknown & set(found)
        assert found["state"] == 8


DAMAGES = {
    "no jobspec": ("jobspec", b"", {"name", "duration"}),
    "a jobspec that is no JSON": ("jobspec", b"{", {"name", "duration"}),
    "a jobspec without tasks": (
        "jobspec",
        b'{"attributes":{"system":{}},"resources":[]}',
        {"name"},
    ),
    "no R": ("R", b"", {"nodelist", "ranks"}),
    "an R of no ranks": ("R", b'{"version":1,"execution":{"nodelist":["a"]}}', {"ranks"}),
}


@pytest.mark.parametrize("damage", DAMAGES)
@virtually
async def test_a_job_that_is_over_and_damaged_is_listed_as_such(damage: str) -> None:
    key, value, lacking = DAMAGES[damage]
    journal = MemoryJournal()
    async with alive(journal) as life:
        well, broken = await life.submit(), await life.submit()
        await life.until(well)
        await life.until(broken)
    async with opened(journal) as kvs:
        place = keys.job_key(broken, key)
        await kvs.commit([put(place, value) if value else unlink(place)])
    async with alive(journal) as life:
        for _ in range(2):
            found = {each["id"]: each for each in await listed(life)}
            answer = await life.bus.handle().rpc("job-list.list-id", {"id": broken})

            assert set(found) == {well, broken}
            assert "damage" not in found[well]
            assert found[broken] == answer["job"]
            assert lacking & set(found[broken]) == set()
            assert lacking <= set(found[well])
            assert found[broken]["damage"]
            assert (found[broken]["state"], found[broken]["success"]) == (64, True)
            # What cannot be read is not what is looked for, and ends no search.
            for constraint in ({"name": [found[well]["name"]]}, {"hostlist": ["node0"]}):
                searched = {each["id"] for each in await listed(life, constraint=constraint)}
                assert well in searched


@virtually
async def test_annotations_and_memos_are_shown() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        life.scheduler.explain(job, "waits")
        request = {"id": job, "memo": {"note": "mine", "gone": None}}
        await life.bus.handle().rpc("job-manager.memo", request)
        (found,) = await listed(life)

        expected = {"sched": {"reason_pending": "waits"}, "user": {"note": "mine"}}
        assert found["annotations"] == expected


@virtually
async def test_the_gravest_exception_is_shown_and_of_equals_the_first() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        for type_, severity in (("light", 5), ("grave", 2), ("also", 2), ("lighter", 7)):
            await life.cancel(job, type_, severity)
        (found,) = await listed(life)

        assert found["exception_occurred"] is True
        shown = [found[f"exception_{name}"] for name in ("type", "severity", "note")]
        assert shown == ["grave", 2, "enough"]


@virtually
async def test_those_who_wait_come_first_and_the_latest_of_those_who_do_not() -> None:
    async with alive(generous=False, seconds=100) as life:
        over = [await life.submit(), await life.submit()]
        for job in over:
            await life.cancel(job)
            await life.until(job)
            await asyncio.sleep(1)
        running = [await life.submit(), await life.submit()]
        for job in running:
            await life.scheduler.give(job)
            await life.until(job, "start")
            await asyncio.sleep(1)
        low = [await life.submit_spec(spec(), urgency=1) for _ in range(2)]
        high = await life.submit_spec(spec(), urgency=31)
        await settle()

        order = [each["id"] for each in await listed(life)]
        assert order == [high, *low, *reversed(running), *reversed(over)]
        assert [each["id"] for each in await listed(life, max_entries=2)] == order[:2]
        assert [each["id"] for each in await listed(life, constraint={"states": [64]})] == order[
            -2:
        ]
        assert [
            each["id"] for each in await listed(life, constraint={"states": [8 | 16]})
        ] == order[:-2]


@virtually
async def test_only_the_attributes_that_are_asked_for_are_told() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        ask = life.bus.handle().rpc
        known = (await ask("job-list.list-attrs"))["attrs"]

        assert known == ["id", *ATTRIBUTES, "all"]
        assert await listed(life, attrs=[]) == [{"id": job}]
        assert await listed(life, attrs=["id", "userid"]) == [{"id": job, "userid": OWNER}]
        assert await listed(life, attrs=["all"]) == await listed(life)
        one = await ask("job-list.list-id", {"id": job, "attrs": ["name", "urgency"]})
        assert one == {"job": {"id": job, "name": "app", "urgency": 16}}
        assert await refused(ask("job-list.list", {"attrs": ["colour"]})) == errno.EINVAL


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_entries": -1},
        {"max_entries": "5"},
        {"attrs": "name"},
        {"since": "yesterday"},
        {"since": True},
        {"constraint": {"colour": ["red"]}},
        {"constraint": []},
    ],
)
@virtually
async def test_a_list_of_another_form_is_refused(wrong: dict[str, Any]) -> None:
    async with alive() as life:
        assert await refused(life.bus.handle().rpc("job-list.list", wrong)) == errno.EPROTO


async def ended(life: Life, count: int, seconds: float = 1.0) -> list[JobId]:
    """Have jobs run one after the other."""
    found = []
    for _ in range(count):
        found.append(await life.submit())
        await life.until(found[-1])
        await asyncio.sleep(seconds)
    return found


@virtually
async def test_jobs_that_ended_long_ago_are_left_out() -> None:
    async with alive() as life:
        first, second, third = await ended(life, 3)
        moment = life.job(second).times[State.INACTIVE]
        life.scheduler._generous = False
        waits = await life.submit()
        await settle()

        async def since(moment: float) -> list[JobId]:
            return [each["id"] for each in await listed(life, since=moment)]

        assert await since(0) == [waits, third, second, first]
        assert await since(moment - 0.1) == [waits, third, second]
        assert await since(moment) == [waits, third]
        assert await since(moment + 1000) == [waits]


@virtually
async def test_the_order_is_the_same_after_a_restart() -> None:
    journal = MemoryJournal()
    async with alive(journal, seconds=10) as life:
        slow = await life.submit()
        await life.until(slow, "start")
        life.execution._seconds = 1
        quick = await life.submit()
        await life.until(slow)
        assert [each["id"] for each in await listed(life)] == [slow, quick]
    async with alive(journal) as life:
        assert [each["id"] for each in await listed(life)] == [slow, quick]
        (latest,) = await ended(life, 1)
        assert [each["id"] for each in await listed(life)] == [latest, slow, quick]


@virtually
async def test_a_stream_tells_many_jobs_in_several_answers() -> None:
    async with alive(generous=False) as life:
        expected = []
        for number in range(1, 1202):
            await life.accept(JobId(number << 24), GUEST)
            expected.append(JobId(number << 24))
        stream = life.bus.handle().stream("job-list.list", {"max_entries": 0, "attrs": []})
        answers = [answer async for answer in stream]

        assert [answer.get("version") for answer in answers] == [1, None, None]
        assert [each["id"] for answer in answers for each in answer["jobs"]] == expected
        none = life.bus.handle().stream("job-list.list", {"constraint": {"states": [64]}})
        assert [answer async for answer in none] == [{"version": 1, "jobs": []}]


@pytest.mark.parametrize("most", [8, 7])
@virtually
async def test_a_search_that_takes_too_long_is_refused(most: int) -> None:
    async with alive(generous=False, max_comparisons=most) as life:
        for number in range(1, 5):
            await life.accept(JobId(number << 24), GUEST)
        search = {"and": [{"userid": [GUEST]}, {"name": ["nobody"]}]}
        if most == 8:
            assert await listed(life, constraint=search) == []
        else:
            ask = life.bus.handle().rpc("job-list.list", {"constraint": search})
            assert await refused(ask) == errno.EINVAL


# One job


@virtually
async def test_a_job_can_be_waited_for_in_a_state() -> None:
    async with alive(generous=False, seconds=10) as life:
        job = await life.submit()

        def waiting(state: State) -> "asyncio.Future[Any]":
            request = {"id": job, "attrs": ["state"], "state": state.bit}
            return asyncio.ensure_future(life.bus.handle().rpc("job-list.list-id", request))

        passed, run, over = waiting(State.DEPEND), waiting(State.RUN), waiting(State.INACTIVE)
        await settle()
        assert passed.done()
        assert not run.done()
        await life.scheduler.give(job)
        await settle()
        assert (await run)["job"]["state"] == State.RUN.bit
        assert not over.done()
        await life.until(job)
        assert (await over)["job"]["state"] == State.INACTIVE.bit


@virtually
async def test_who_waits_for_a_state_that_never_comes_is_told_the_end() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        request = {"id": job, "attrs": ["state"], "state": State.RUN.bit}
        waiting = asyncio.ensure_future(life.bus.handle().rpc("job-list.list-id", request))
        await settle()
        await life.cancel(job)

        assert (await waiting)["job"]["state"] in (State.CLEANUP.bit, State.INACTIVE.bit)
        wrong = life.bus.handle().rpc("job-list.list-id", {"id": job, "state": 3})
        assert await refused(wrong) == errno.EPROTO


@virtually
async def test_no_state_is_told_before_it_is_durable() -> None:
    disk = SlowDisk()
    disk.free.set()
    async with alive(disk, seconds=1) as life:
        job = await life.submit()
        await life.until(job, "start")
        disk.free.clear()
        request = {"id": job, "attrs": ["state"], "state": State.INACTIVE.bit}
        waiting = asyncio.ensure_future(life.bus.handle().rpc("job-list.list-id", request))
        await asyncio.sleep(2)
        assert life.job(job).state is State.INACTIVE
        assert not waiting.done()

        disk.free.set()
        assert (await waiting)["job"]["state"] == State.INACTIVE.bit


# Counts


async def stats(life: Life, service: str = "job-list") -> Payload:
    return await life.bus.handle(GUEST).rpc(f"{service}.job-stats")


@virtually
async def test_jobs_are_counted_by_state_and_by_result() -> None:
    async with alive(generous=False, seconds=1) as life:
        jobs = [await life.submit() for _ in range(5)]
        await life.scheduler.give(jobs[0])
        await life.until(jobs[0])
        await life.cancel(jobs[1])
        await life.cancel(jobs[2], "timeout")
        await life.cancel(jobs[3], "exec")
        await settle()
        found = await stats(life)

        states = {"depend": 0, "priority": 0, "sched": 1, "run": 0, "cleanup": 0, "inactive": 4}
        assert found == {
            "job_states": {**states, "total": 5},
            "successful": 1,
            "failed": 3,
            "canceled": 1,
            "timeout": 1,
            "inactive_purged": 0,
            "queues": [],
        }
        (again,) = [await life.submit()]
        await life.cancel(again)
        await settle()
        assert (await stats(life))["canceled"] == 2


@virtually
async def test_jobs_are_counted_by_queue_where_there_are_queues() -> None:
    two = "policy.jobspec.defaults.system.queue = 'a'\n[queues.a]\n[queues.b]"
    async with alive(generous=False, config=config.parse(two)) as life:
        await life.bus.handle().rpc("job-manager.queue-start", {"start": True, "all": True})
        first = [await life.submit(attributes={"queue": name}) for name in ("a", "b", "a")]
        await life.cancel(first[0])
        await settle()
        found = await stats(life)

        assert found["job_states"]["total"] == 3
        counted = {each["name"]: each["job_states"] for each in found["queues"]}
        assert {name: (each["sched"], each["inactive"]) for name, each in counted.items()} == {
            "a": (1, 1),
            "b": (1, 0),
        }
        assert [each["canceled"] for each in found["queues"]] == [1, 0]


@virtually
async def test_purged_jobs_are_neither_listed_nor_counted() -> None:
    async with alive() as life:
        jobs = await ended(life, 3)
        assert len(await listed(life)) == 3
        await life.manager.inactive_jobs.purge(jobs[:2])

        assert [each["id"] for each in await listed(life)] == jobs[2:]
        found = await stats(life)
        assert found["job_states"]["inactive"] == found["successful"] == 1
        assert found["inactive_purged"] == 2


@virtually
async def test_no_users_jobs_make_an_answer_longer_than_others_can_read() -> None:
    """Names and memos are as long as their users make them."""
    async with alive(generous=False, most_bytes=12 * 2**20) as life:
        ask = life.bus.handle(GUEST)
        jobs = []
        for _ in range(220):
            jobs.append(await life.submit_as(GUEST, name="N" * 1024))
            for key in "abcdefgh":
                memo = {key: "x" * 7500}
                await ask.rpc("job-manager.memo", {"id": jobs[-1], "memo": memo})
            long = ask.rpc("job-manager.memo", {"id": jobs[-1], "memo": {"i": "x" * 7500}})
            assert await refused(long) == errno.EFBIG
        # Altogether they have 13 MB.
        assert await refused(listed(life)) == errno.EFBIG
        assert len(await listed(life, attrs=["name"])) == len(jobs)
        answers = [each async for each in life.bus.handle().stream("job-list.list", {})]

        assert sorted(job["id"] for each in answers for job in each["jobs"]) == jobs
        assert max(len(json.dumps(each)) for each in answers) < 2 * 2**20


@pytest.mark.parametrize("streaming", [False, True])
@virtually
async def test_listings_of_a_guest_are_made_one_after_the_other(streaming: bool) -> None:
    """Each holds what it has found so far, and a guest may ask for thousands at the same time."""
    async with alive() as life:
        for _ in range(60):
            await life.submit()
        looked: list[asyncio.Task[Any] | None] = []

        async def ask(userid: int) -> None:
            handle = life.bus.handle(userid)
            if not streaming:
                await handle.rpc("job-list.list", {})
                return
            async for _ in handle.stream("job-list.list", {}):
                pass

        def noting(each: ListedJob, names: Iterable[str]) -> dict[str, Any]:
            looked.append(asyncio.current_task())
            return {"id": each.job.id}

        async def turns(userid: int) -> int:
            looked.clear()
            await asyncio.gather(*(ask(userid) for _ in range(3)))
            assert len(looked) == 3 * 60
            return len(list(groupby(looked)))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attributes, "job_attributes", noting)
            assert await turns(GUEST) == 3
            assert await turns(OWNER) > 3


@virtually
async def test_a_guest_has_so_many_streams_under_way_and_is_told_so() -> None:
    async with alive() as life, AsyncExitStack() as open_streams:
        await life.submit()

        async def begin(userid: int) -> Any:
            stream = life.bus.handle(userid).stream("job-list.list", {})
            await open_streams.enter_async_context(aclosing(stream))  # type: ignore[type-var]
            await anext(aiter(stream))
            return stream

        first, *_ = [await begin(GUEST) for _ in range(100)]
        with pytest.raises(RpcError, match=r"100 streams of jobs under way: read or close") as told:
            await begin(GUEST)
        assert told.value.errnum == errno.EAGAIN
        await begin(GUEST + 1)
        for _ in range(101):
            await begin(OWNER)
        await first.aclose()
        await begin(GUEST)


class Described(dict[str, Any]):
    """A job in an answer, which can be seen to be gone."""


@virtually
async def test_a_stream_keeps_nothing_of_an_answer_while_that_is_sent() -> None:
    made: list[weakref.ref[Described]] = []

    def describe(each: ListedJob, names: Iterable[str]) -> Described:
        described = Described(id=each.job.id)
        made.append(weakref.ref(described))
        return described

    async with alive() as life:
        await life.submit()
        methods = life.bus._services["job-list"]
        assert isinstance(methods, dict)
        method = methods["list"]
        assert isinstance(method, StreamingMethod)
        request = Request(topic="job-list.list", payload={}, cred=Cred(GUEST, False))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attributes, "job_attributes", describe)
            stream = method.answers(request)
            async with aclosing(stream) as answers:  # type: ignore[type-var]
                answer = await anext(answers)
                assert len(answer["jobs"]) == len(made) == 1
                del answer
                assert made[0]() is None
