"""Jobs begin and end on a node, whatever fails, repeats itself or dies in between."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.atom.living import Dying, Scripted, job, living
from tests.harness import virtual
from tests.journal.journals import SmallJournal
from warren.atom.register import Register
from warren.atom.registration import Stage
from warren.atom.service import AlreadyRegistered, Failed, NoRoom, Service
from warren.journal import JournalBroken, MemoryJournal

Story = Callable[[Service, Register], Awaitable[None]]


def live(
    story: Story, actions: Scripted, journal: MemoryJournal | None = None, most: int = 100
) -> None:
    async def lived() -> None:
        async with living(journal or MemoryJournal(), actions, most) as (service, register):
            await story(service, register)

    virtual.run(lived())


def test_a_job_is_active_when_the_commands_of_its_start_have_succeeded() -> None:
    async def story(service: Service, register: Register) -> None:
        begun = asyncio.ensure_future(service.begin(job()))
        await asyncio.sleep(0.5)
        registered = register.get("1.pbshost")
        assert registered is not None
        assert registered.stage is Stage.STARTING
        assert not begun.done()
        assert (await begun).stage is Stage.ACTIVE
        assert [each.registration for each in register] == [job()]

    actions = Scripted()
    live(story, actions)
    assert actions.done == [("start", "1.pbshost")]


def test_a_job_is_forgotten_when_the_commands_of_its_end_have_succeeded() -> None:
    async def story(service: Service, register: Register) -> None:
        await service.begin(job())
        assert await service.end("1.pbshost")
        assert len(register) == 0
        assert not await service.end("1.pbshost")

    actions = Scripted()
    live(story, actions)
    assert actions.done == [("start", "1.pbshost"), ("end", "1.pbshost")]


def test_what_was_told_is_there_after_a_restart() -> None:
    journal = MemoryJournal()

    async def first(service: Service, register: Register) -> None:
        await service.begin(job(1, exclusive=True))
        await service.begin(job(2))
        await service.end("2.pbshost")

    async def second(service: Service, register: Register) -> None:
        (registered,) = register
        assert registered.registration == job(1, exclusive=True)
        assert registered.since == virtual.EPOCH + 1.0 - 1.0

    live(first, Scripted(), journal)
    live(second, Scripted(), journal)


def test_a_repeated_begin_joins_the_first_and_does_nothing_of_its_own() -> None:
    async def story(service: Service, register: Register) -> None:
        both = await asyncio.gather(service.begin(job()), service.begin(job()))
        assert both[0] == both[1] == await service.begin(job())

    actions = Scripted()
    live(story, actions)
    assert actions.done == [("start", "1.pbshost")]


@pytest.mark.parametrize("moment", [0.5, 2.0])
def test_another_job_of_the_same_id_is_refused_and_changes_nothing(moment: float) -> None:
    async def story(service: Service, register: Register) -> None:
        begun = asyncio.ensure_future(service.begin(job(uid=1)))
        await asyncio.sleep(moment)
        for other in (job(uid=2), job(uid=1, exclusive=True)):
            with pytest.raises(
                AlreadyRegistered, match="registered with uid 1 and exclusive false: delete"
            ):
                await service.begin(other)
        assert (await begun).registration == job(uid=1)

    actions = Scripted()
    live(story, actions)
    assert actions.done == [("start", "1.pbshost")]


def test_a_start_that_fails_is_cleaned_up_after_and_leaves_no_job() -> None:
    async def story(service: Service, register: Register) -> None:
        with pytest.raises(Failed, match=r"the start of .* fails"):
            await service.begin(job())
        await asyncio.sleep(2)
        assert len(register) == 0

    actions = Scripted(failing=["start"])
    live(story, actions)
    assert actions.done == [("failed start", "1.pbshost"), ("end", "1.pbshost")]


def test_a_delete_cuts_a_start_short() -> None:
    async def story(service: Service, register: Register) -> None:
        begun = asyncio.ensure_future(service.begin(job()))
        await asyncio.sleep(0.5)
        assert await service.end("1.pbshost")
        assert len(register) == 0
        with pytest.raises(Failed, match="was not started: it was ended"):
            await begun

    actions = Scripted()
    live(story, actions)
    assert actions.done == [("cut start", "1.pbshost"), ("end", "1.pbshost")]


def test_a_start_that_was_on_its_way_to_the_disk_is_deleted_too() -> None:
    async def story(service: Service, register: Register) -> None:
        begun = asyncio.ensure_future(service.begin(job()))
        await asyncio.sleep(0)
        assert register.get("1.pbshost") is None
        assert await service.end("1.pbshost")
        await asyncio.sleep(5)
        assert len(register) == 0
        with pytest.raises(Failed):
            await begun

    live(story, Scripted())


def test_an_end_that_fails_is_tried_again_ever_more_seldom_until_it_succeeds() -> None:
    async def story(service: Service, register: Register) -> None:
        await service.begin(job())
        with pytest.raises(Failed, match=r"the end of .* fails"):
            await service.end("1.pbshost")
        (registered,) = register
        assert registered.stage is Stage.ENDING
        assert service.unclean_count == 1
        with pytest.raises(AlreadyRegistered, match="not cleaned up after"):
            await service.begin(job())
        await asyncio.sleep(5 + 1 + 10 + 1.5)
        assert actions.done.count(("failed end", "1.pbshost")) == 3
        await asyncio.sleep(3600)
        seldom = actions.done.count(("failed end", "1.pbshost"))
        assert seldom < 20
        actions.failing.clear()
        await asyncio.sleep(301)
        assert len(register) == service.unclean_count == 0

    actions = Scripted(failing=["end"])
    live(story, actions)


def test_a_delete_tries_a_failed_end_at_once() -> None:
    async def story(service: Service, register: Register) -> None:
        await service.begin(job())
        with pytest.raises(Failed):
            await service.end("1.pbshost")
        actions.failing.clear()
        assert await service.end("1.pbshost")
        await asyncio.sleep(100)

    actions = Scripted(failing=["end"])
    live(story, actions)
    assert actions.done == [
        ("start", "1.pbshost"),
        ("failed end", "1.pbshost"),
        ("end", "1.pbshost"),
    ]


def test_a_job_that_runs_again_waits_for_its_earlier_end() -> None:
    async def story(service: Service, register: Register) -> None:
        await service.begin(job())
        ended = asyncio.ensure_future(service.end("1.pbshost"))
        await asyncio.sleep(0.5)
        assert (await service.begin(job(uid=7))).registration == job(uid=7)
        assert await ended

    actions = Scripted()
    live(story, actions)
    assert [event for event, _ in actions.done] == ["start", "end", "start"]


@pytest.mark.parametrize("when", ["starting", "ending"])
def test_what_a_dead_service_left_half_done_is_cleaned_up_after(when: str) -> None:
    journal = MemoryJournal()

    async def first(service: Service, register: Register) -> None:
        begun = asyncio.ensure_future(service.begin(job()))
        await asyncio.sleep(0.5)
        if when == "ending":
            await begun
            asyncio.ensure_future(service.end("1.pbshost"))  # noqa: RUF006
            await asyncio.sleep(0.5)

    async def second(service: Service, register: Register) -> None:
        assert len(register) == 1
        await asyncio.sleep(2)
        assert len(register) == 0

    live(first, Scripted(), journal)
    actions = Scripted()
    live(second, actions, journal)
    assert actions.done == [("end", "1.pbshost")]


def test_a_job_that_begins_while_its_dead_start_is_cleaned_up_after_waits_for_that() -> None:
    journal = MemoryJournal()

    async def first(service: Service, register: Register) -> None:
        asyncio.ensure_future(service.begin(job()))  # noqa: RUF006
        await asyncio.sleep(0.5)

    async def second(service: Service, register: Register) -> None:
        assert (await service.begin(job())).stage is Stage.ACTIVE
        await asyncio.sleep(10)
        assert [registered.registration for registered in register] == [job()]

    live(first, Scripted(), journal)
    actions = Scripted()
    live(second, actions, journal)
    assert [event for event, _ in actions.done] == ["end", "start"]


def test_no_more_jobs_are_registered_than_there_is_room_for() -> None:
    async def story(service: Service, register: Register) -> None:
        outcomes = await asyncio.gather(
            *(service.begin(job(number)) for number in range(4)), return_exceptions=True
        )
        assert [isinstance(each, NoRoom) for each in outcomes] == [False, False, False, True]
        await service.end("1.pbshost")
        await service.begin(job(4))

    live(story, Scripted(), most=3)


def test_settling_waits_for_what_is_under_way_and_not_for_ever() -> None:
    async def story(service: Service, register: Register) -> None:
        begun = asyncio.ensure_future(service.begin(job()))
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await service.wait_idle(5.0)
        assert loop.time() - began == 5.0
        await service.wait_idle(50.0)
        assert begun.done()

    live(story, Scripted(seconds=10.0))


_deeds = st.lists(
    st.tuples(
        st.sampled_from(["begin", "begin", "end", "wait", "fail", "heal"]),
        st.integers(1, 3),
        st.integers(1, 2),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(_deeds, st.integers(0, 30))
def test_every_job_is_cleaned_up_after_whatever_happens_and_wherever_the_service_dies(
    steps: list[tuple[str, int, int]], lives: int
) -> None:
    """No start without an end behind it, and nothing left, from whichever record on it died."""
    journal = Dying(lives)
    actions = Scripted()
    promised: set[str] = set()

    async def story(service: Service, register: Register) -> None:
        async with asyncio.TaskGroup() as clients:

            async def begin(number: int, uid: int) -> None:
                try:
                    registered = await service.begin(job(number, uid=uid))
                except (AlreadyRegistered, Failed):
                    return
                assert registered.registration == job(number, uid=uid)
                promised.add(registered.registration.jobid)

            async def end(number: int) -> None:
                promised.discard(f"{number}.pbshost")
                try:
                    await service.end(f"{number}.pbshost")
                except Failed:
                    return
                promised.discard(f"{number}.pbshost")

            for action, number, uid in steps:
                match action:
                    case "begin":
                        clients.create_task(begin(number, uid))
                    case "end":
                        clients.create_task(end(number))
                    case "wait":
                        await asyncio.sleep(0.7 * number)
                    case "fail":
                        actions.failing.add("start" if uid == 1 else "end")
                    case _:
                        actions.failing.clear()
                await asyncio.sleep(0)

    async def after(service: Service, register: Register) -> None:
        # A client that was told that its job has begun finds it, unless it has ended it.
        known = {registered.registration.jobid for registered in register}
        assert promised <= known
        for number in (1, 2, 3):
            await service.end(f"{number}.pbshost")
        await asyncio.sleep(1000)
        assert len(register) == service.unclean_count == 0

    async def whole() -> None:
        try:
            async with living(journal, actions) as (service, register):
                await story(service, register)
        except BaseExceptionGroup as group:
            if group.subgroup(JournalBroken) is None:
                raise
        journal.lives = 10_000
        actions.failing.clear()
        async with living(journal, actions) as (service, register):
            await after(service, register)

    virtual.run(whole())
    for number in (1, 2, 3):
        own = [event for event, jobid in actions.done if jobid == f"{number}.pbshost"]
        assert not own or own[-1] == "end"


def test_on_a_full_disk_no_job_begins_and_jobs_end() -> None:
    journal = SmallJournal(room=4000, wanted=2000)

    async def story(service: Service, register: Register) -> None:
        await service.begin(job(1))
        journal.room = 0
        await service.begin(job(2))  # its first record finds the disk full

        with pytest.raises(NoRoom, match="the disk is full"):
            await service.begin(job(3))
        assert (await service.begin(job(1))).stage is Stage.ACTIVE
        assert await service.end(job(1).jobid)
        journal.room = 4000
        await asyncio.sleep(5)
        await service.begin(job(3))
        assert [each.registration for each in register] == [job(2), job(3)]

    live(story, Scripted(), journal)
