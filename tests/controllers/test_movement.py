"""The copies of one rabbit: begun, told of, tried again, cancelled; each state and event."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.controllers.alone import Api, alone, caught_up, running
from tests.controllers.machines import Noting
from tests.dws.builders import meta
from tests.harness import virtual
from tests.harness.logs import capture_logs
from tests.harness.virtual import EPOCH
from tests.kube.clusters import stored
from warren.base.objects import Change, Key
from warren.base.times import parse_rfc3339, rfc3339_micro
from warren.controllers.movement import MovementReconciler
from warren.dws import kinds, labels
from warren.dws.copies import commands
from warren.dws.copies.retries import Retries
from warren.dws.node import Copy, CopyFailed, NodeTrouble, Progress
from warren.kube.client import Invalid, Unavailable

KIND = kinds.NNF_DATA_MOVEMENT
KEY = Key("r0", "m")

Story = Callable[[Api, Noting, MovementReconciler], Awaitable[None]]


def with_rabbit(story: Story, machine: Noting | None = None, **options: Any) -> None:
    async def main(api: Api) -> None:
        node = machine or Noting("r0")
        await story(api, node, MovementReconciler(api, api.informers, node, api.clock, **options))

    alone(main)


def movement(
    status: Any = None,
    name: str = "m",
    cancel: bool = False,
    source: str = "/in",
    storage: str = "",
    userid: int = 1001,
    **metadata: Any,
) -> dict[str, Any]:
    spec = {
        "source": {"path": source, "storageReference": {"kind": storage}},
        "destination": {"path": "/out"},
        "userId": userid,
        "groupId": 1002,
        "cancel": cancel,
    }
    found = {"metadata": meta(name, "r0", **metadata), "spec": spec}
    return {**found, "status": status} if status else found


def status(api: Api, key: Key = KEY) -> Any:
    return api.find(KIND, key).get("status", {})


async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)


class Failing(Noting):
    """A rabbit whose copies fail, one after the other, by what is left in `failures`."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__("r0")
        self.failures = list(failures)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        if self.failures:
            self._note("copy", copy.source)
            raise self.failures.pop(0)
        async for progress in super().copy(copy):
            yield progress


def test_a_dry_run_copies_nothing_and_ends_well() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            asked = movement()
            await api.add(
                KIND, {**asked, "spec": {**asked["spec"], "userConfig": {"dryrun": True}}}
            )
            await wait(2)
        assert rabbit.asked == []
        told = status(api)
        assert (told["state"], told["status"]) == ("Finished", "Success")
        assert told["message"] == "nothing is copied: this was a dry run"

    with_rabbit(story)


def test_a_copy_is_begun_and_its_end_is_told() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
            await wait(2)
            told = status(api)

        assert rabbit.asked == [("copy", "/in"), ("copied", "/in")]
        (copy,) = rabbit.flash.copies
        assert copy == Copy(
            source="/in",
            destination="/out",
            index=None,
            userid=1001,
            groupid=1002,
            movement=api.find(KIND, KEY)["metadata"]["uid"],
        )
        assert (told["state"], told["status"]) == ("Finished", "Success")
        assert told["message"] == "copied 1.00 MiB of 1.00 MiB in 1 of 1 files"
        assert told["restarts"] == 0
        began, ended = parse_rfc3339(told["startTime"]), parse_rfc3339(told["endTime"])
        assert 0.99 <= ended - began < 1.1
        assert began >= EPOCH
        done = told["commandStatus"]
        assert done.pop("lastMessageTime") <= told["endTime"]
        assert done == {
            "progress": 100,
            "items": 1,
            "directories": 0,
            "files": 1,
            "links": 0,
            "data": "1.00 MiB",
            "rate": "1.00 MiB/s",
            "elapsedTime": "1s",
            "seconds": "1.000",
            "lastMessage": told["message"],
        }

    with_rabbit(story)


class Telling(Noting):
    """A rabbit whose copy tells one thing, and goes on for long."""

    def __init__(self, told: Progress) -> None:
        super().__init__("r0")
        self.told = told

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        self._note("copy", copy.since)
        yield self.told
        await asyncio.sleep(1000)


TOLD = Progress(
    bytes=3 * 2**20,
    total_bytes=9 * 2**20,
    files=5,
    total_files=20,
    seconds=2.0,
    directories=3,
    links=1,
    earlier_bytes=2**20,
    remark="and less",
)


def test_while_it_lasts_it_is_told_how_far_it_is_and_how_long_it_will_take() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
            await wait(10)
            told = status(api)["commandStatus"]

        assert told["progress"] == 33
        assert (told["files"], told["links"], told["directories"]) == (4, 1, 3)
        assert told["items"] == 8
        assert (told["data"], told["rate"]) == ("3.00 MiB", "1.00 MiB/s")
        assert told["lastMessage"] == (
            "copied 3.00 MiB of 9.00 MiB in 5 of 20 files; 1.00 MiB of it by an earlier try; "
            "about 6s left; and less"
        )

    with_rabbit(story, Telling(TOLD))


def test_more_than_a_status_can_count_is_told_as_the_most_that_it_can() -> None:
    """The API has them as int32, and would refuse what the copy comes to."""
    most = 2**31 - 1
    many = replace(TOLD, files=3 * most, directories=2 * most, links=most, total_files=3 * most)

    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
            await wait(10)
            told = status(api)["commandStatus"]
        assert [told[name] for name in ("items", "directories", "files", "links")] == [most] * 4

    with_rabbit(story, Telling(many))


COMMANDS = {
    "progress_mark": "1",
    "progress": "40",
    "files": "7",
    "lastMessage": "40% done",
    "data": "9 B",
}


def test_a_copy_by_a_command_says_what_the_command_says() -> None:
    said = Progress(
        bytes=0, total_bytes=0, files=0, total_files=0, seconds=2.0, command_status=COMMANDS
    )

    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
            await wait(10)
            told = status(api)["commandStatus"]

        assert told.pop("lastMessageTime")
        assert told == {
            "progress": 40, "files": 7, "lastMessage": "40% done", "data": "9 B",
            "elapsedTime": "2s", "seconds": "2.000",
        }  # fmt: skip

    with_rabbit(story, Telling(said))


def by_profile(text: str) -> dict[str, Any]:
    return movement(annotations={labels.COPY_PROFILE: text})


def test_a_rabbit_copies_as_the_profile_of_the_movement_says() -> None:
    text = '{"command": "rsync -a $SRC $DEST", "slots": 2}'

    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, by_profile(text))
            await wait(2)

        (copy,) = rabbit.flash.copies
        assert copy.command == ("rsync", "-a", "$SRC", "$DEST")
        assert copy.hosts == "localhost slots=2\n"

    with_rabbit(story)


def test_a_command_that_cannot_be_run_is_a_copy_that_fails() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, by_profile('{"command": "a | b"}'))
            await wait(2)
            told = status(api)

        assert (told["state"], told["status"]) == ("Finished", "Failed")
        assert told["message"].startswith("'|' is a shell's")
        assert rabbit.asked == []

    with_rabbit(story)


@pytest.mark.parametrize(
    ("before", "again"),
    [
        (None, False),
        ({"state": "Starting"}, False),
        ({"state": "Running"}, True),
        ({"state": "Starting", "restarts": 1}, True),
    ],
)
def test_another_try_is_told_since_when_there_may_be_something_of_an_earlier_one(
    before: Any, again: bool
) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(before))
            await wait(10)

        made = parse_rfc3339(api.find(KIND, KEY)["metadata"]["creationTimestamp"])
        assert rabbit.asked == [("copy", made if again else 0.0)]

    with_rabbit(story, Telling(TOLD))


class Hanging(Noting):
    """A rabbit whose copy says again and again that it is where it was."""

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        async for progress in super().copy(copy):
            for _ in range(100):
                yield progress
                await asyncio.sleep(1)


def test_a_copy_that_hangs_does_not_go_on_by_saying_so() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        began = api.clock.now()
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
            await wait(90)
            moved = parse_rfc3339(status(api)["commandStatus"]["lastMessageTime"])
        assert moved - began < 10

    with_rabbit(story, Hanging("r0"))


def test_while_it_lasts_the_copy_is_running_without_an_end() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        await api.add(KIND, movement({"state": "Starting", "restarts": 1}))
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await wait(60)
            told = status(api)
            assert told["state"] == "Running"
            assert "endTime" not in told
            assert told["restarts"] == 1
            assert told["commandStatus"]["progress"] < 100
            began = parse_rfc3339(told["startTime"])
            assert parse_rfc3339(told["commandStatus"]["lastMessageTime"]) - began > 40

    with_rabbit(story, Noting("r0", seconds=100))


@pytest.mark.parametrize(
    ("path", "storage", "index"),
    [
        ("/mnt/nnf/x/r0-1/data", "NnfStorage", "r0-1"),
        ("/mnt/nnf/x/r0-12", "NnfStorage", "r0-12"),
        ("/mnt/nnf/x/r0-1/data", "LustreFileSystem", None),
        ("/mnt/nnf/x/r00-1/data", "NnfStorage", None),
        ("/mnt/nnf/x/r0-1b/data", "NnfStorage", None),
        ("/mnt/nnf/x/data", "NnfStorage", None),
    ],
)
def test_the_index_directory_is_that_of_node_local_storage_alone(
    path: str, storage: str, index: str | None
) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(source=path, storage=storage))
            await wait(2)

        (copy,) = rabbit.flash.copies
        assert copy.index == index
        # What is above it is the rabbit's, and what is below it may be other users'.
        assert copy.source_storage == (f"/mnt/nnf/x/{index}" if index else "")
        assert copy.destination_storage == ""

    with_rabbit(story)


def test_a_copy_stays_in_the_storage_that_its_movement_says_and_has_no_index_directory() -> None:
    """Of what running jobs ask for, and of Lustre."""

    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        roots = {labels.SOURCE_STORAGE: "/mnt/nnf/x/r0-1", labels.DESTINATION_STORAGE: "/out"}
        path = "/mnt/nnf/x/r0-1/data"
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            for storage in ("NnfNodeStorage", "NnfStorage"):
                made = movement(name=storage.lower(), source=path, storage=storage)
                made["metadata"]["annotations"] = roots
                await api.add(KIND, made)
            await wait(2)

        for copy in rabbit.flash.copies:
            assert (copy.source_storage, copy.destination_storage) == tuple(roots.values())
            assert copy.index is None
        assert len(rabbit.flash.copies) == 2

    with_rabbit(story)


@pytest.mark.parametrize(
    ("root", "path", "copied"),
    [
        ("/mnt/nnf/x", "/mnt/nnf/x", "/mnt/nnf/x/"),
        ("/mnt/nnf/x", "/mnt/nnf/x/", "/mnt/nnf/x/"),
        ("/mnt/nnf/x", "/mnt/nnf/x/data", "/mnt/nnf/x/data"),
        ("/mnt/nnf/x/r0-1", "/mnt/nnf/x/r0-1", "/mnt/nnf/x/r0-1"),
        ("/mnt/nnf/x/r0-1b", "/mnt/nnf/x/r0-1b", "/mnt/nnf/x/r0-1b/"),
    ],
)
def test_of_the_root_of_a_storage_without_allocations_the_contents_are_copied(
    root: str, path: str, copied: str
) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            made = movement(source=path, storage="NnfStorage")
            made["metadata"]["annotations"] = {labels.SOURCE_STORAGE: root}
            await api.add(KIND, made)
            await wait(2)
        (copy,) = rabbit.flash.copies
        assert copy.source == copied

    with_rabbit(story)


def test_a_copy_that_is_finished_is_not_made_again() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        await api.add(KIND, movement({"state": "Finished", "status": "Success"}))
        await api.add(KIND, movement({"state": "Finished", "status": "Failed"}, "n", cancel=True))
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await wait(2)

        assert (rabbit.asked, api.written) == ([], [])

    with_rabbit(story)


def test_a_copy_whose_agent_died_is_made_again_and_counts_as_another_try() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        await api.add(KIND, movement({"state": "Running", "restarts": 1}))
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await wait(2)

        assert status(api)["restarts"] == 2
        assert rabbit.asked == [("copy", "/in"), ("copied", "/in")]

    with_rabbit(story)


# What fails


def test_a_copy_that_fails_is_tried_again_after_a_while() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(**initiator("copy_out")))
            told = status(api)
            assert (told["state"], told["restarts"]) == ("Starting", 1)
            assert told["message"] == "try 1 has failed: broke"
            assert len(rabbit.asked) == 1
            await wait(600)
            told = status(api)

        assert rabbit.asked == [("copy", "/in"), ("copy", "/in"), ("copied", "/in")]
        assert (told["state"], told["status"], told["restarts"]) == ("Finished", "Success", 1)

    with_rabbit(story, Failing(NodeTrouble("broke")))


def initiator(command: str) -> dict[str, Any]:
    return {"labels": {labels.INITIATOR: command}}


@pytest.mark.parametrize("ago", [2, 8.5])
def test_the_wait_before_another_try_is_counted_from_the_end_of_the_last(ago: float) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        until = Retries().delay(3, 0)
        last = rfc3339_micro(api.clock.now() - ago)
        await api.add(KIND, movement({"state": "Starting", "restarts": 3, "endTime": last}))
        async with running(api, movements.copies.run()):
            now = api.clock.now()
            delay = await movements.reconcile(KEY)
            assert delay == pytest.approx(until - (now - parse_rfc3339(last)))
            assert rabbit.asked == []

    with_rabbit(story)


@pytest.mark.parametrize(
    ("failure", "type"), [(CopyFailed("no such file"), "User"), (NodeTrouble("died"), "Internal")]
)
def test_after_its_tries_a_copy_has_failed_and_says_whose_fault_it_was(
    failure: NodeTrouble, type: str
) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(**initiator("copy_out")))
            await wait(36000)
            told = status(api)

        assert (told["state"], told["status"]) == ("Finished", "Failed")
        words = str(failure)
        if told["restarts"]:
            words += f" (tried {told['restarts'] + 1} times)"
        assert len(rabbit.asked) == told["restarts"] + 1
        assert told["message"] == words
        assert told["error"] == {
            "debugMessage": words,
            "userMessage": words,
            "type": type,
            "severity": "Fatal",
        }
        assert "endTime" in told

    with_rabbit(story, Failing(*[failure] * 20))


def test_a_copy_in_that_its_copier_gives_up_has_failed_at_once_in_its_words() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(**initiator("copy_in")))
            told = status(api)

        assert (told["state"], told["status"]) == ("Finished", "Failed")
        assert told["message"] == "no such file"
        assert len(rabbit.asked) == 1

    with_rabbit(story, Failing(CopyFailed("no such file")))


def test_a_bug_costs_one_copy_and_not_the_agent() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(**initiator("copy_out")))
            await wait(36000)
            assert "failed inside Warren: ZeroDivisionError('bug')" in status(api)["message"]
            assert status(api)["error"]["type"] == "Internal"
            await api.add(KIND, movement(name="n"))
            await wait(2)
            assert status(api, Key("r0", "n"))["status"] == "Success"

    with_rabbit(story, Failing(*[ZeroDivisionError("bug")] * 3))


def test_what_is_logged_of_a_copy_says_which_one_it_is() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())

    with capture_logs() as logged:
        with_rabbit(story, Failing(ZeroDivisionError("bug")))
    (told,) = (each for each in logged if each["event"] == "copy failed")
    assert (told["reconciler"], told["key"]) == ("movement", str(KEY))


class Silent(Noting):
    """A rabbit whose copies end without having told anything."""

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        self._note("copy", copy.source)
        nothing: list[Progress] = []
        for each in nothing:
            yield each


def test_a_copy_that_tells_nothing_ends_well_without_a_word() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
        told = status(api)
        assert (told["state"], told["status"], told["message"]) == ("Finished", "Success", "")

    with_rabbit(story, Silent())


class Slow(Api):
    """An API that takes its time for what is told of the progress, and is not hurried."""

    at_a_time = 0
    most = 0

    async def patch(self, change: Change) -> Any:
        if not change.status or "commandStatus" not in change.patch["status"]:
            return await super().patch(change)
        if change.patch["status"].get("state") != "Finished":
            self.at_a_time += 1
            self.most = max(self.most, self.at_a_time)
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
            self.at_a_time -= 1
        return await super().patch(change)


def test_a_slow_api_hears_of_one_progress_at_a_time_and_of_none_after_the_end() -> None:
    async def main() -> None:
        async with stored() as store:
            api, rabbit = Slow(store, ()), Noting("r0", seconds=8)
            movements = MovementReconciler(api, api.informers, rabbit, api.clock)
            async with running(api, movements.reconciler.run(), movements.copies.run()):
                await api.add(KIND, movement())
                await wait(12)
                assert status(api)["status"] == "Success"
                assert status(api)["commandStatus"]["progress"] == 100
                await wait(60)
                assert status(api)["commandStatus"]["progress"] == 100
            assert api.most == 1

    virtual.run(main())


class Saying(Noting):
    """A rabbit whose copy of `/in` ends by telling what `said` has; the others are as usual."""

    def __init__(self, said: dict[str, str]) -> None:
        super().__init__("r0", seconds=100)
        self.said = said

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        if copy.source == "/in":
            self._note("copy", copy.source)
            yield replace(TOLD, command_status=self.said)
            return
        async for progress in super().copy(copy):
            yield progress


ABSURD = "Items: 99999999999999999999999"


@pytest.mark.parametrize(
    ("said", "end"),
    [
        (commands.parse_output(ABSURD), "Success"),
        # Of a copier that says what ours does not.
        (
            {"items": "99999999999999999999999", "lastMessage": "done", "progress_mark": ""},
            "Failed",
        ),
        ({"items": "9" * 5000, "lastMessage": "done", "progress_mark": ""}, "Failed"),
    ],
)
def test_a_command_that_counts_absurdly_harms_no_other_copy(said: Any, end: str) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(name="other", source="/other", userid=1))
            await api.add(KIND, movement(**initiator("copy_in")))
            await wait(30000)
            assert status(api)["status"] == end
            assert "items" not in status(api).get("commandStatus", {})
            assert status(api, Key("r0", "other"))["status"] == "Success"
            assert rabbit.asked.count(("copy", "/other")) == 1

    with_rabbit(story, Saying(said))


class Refusing(Api):
    """An API that refuses what it is told of a movement's status, by what `refused` says."""

    refused: Callable[[Any], bool] = staticmethod(lambda status: False)
    refusal: Exception = Invalid("status.commandStatus.items in body must be of type int32")

    async def patch(self, change: Change) -> Any:
        if change.key == KEY and change.status and self.refused(change.patch["status"]):
            self.written.append(("refused", change.kind, change.key))
            raise self.refusal.with_traceback(None)
        return await super().patch(change)


def with_refusing(story: Story, refused: Callable[[Any], bool], machine: Noting) -> None:
    async def main() -> None:
        async with stored() as store:
            api = Refusing(store, ())
            api.refused = refused
            await story(api, machine, MovementReconciler(api, api.informers, machine, api.clock))

    virtual.run(main())


@pytest.mark.parametrize(
    "refusal", [Invalid("items is no int32"), TypeError("Integer exceeds 64-bit range")]
)
def test_a_status_that_the_api_refuses_costs_one_copy_and_not_the_agent(
    refusal: Exception,
) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        assert isinstance(api, Refusing)
        api.refusal = refusal
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(name="other", source="/other", userid=1))
            await api.add(KIND, movement())
            await wait(50)
            told = status(api)
            assert (told["state"], told["status"]) == ("Finished", "Failed")
            words = f"what has become of the copy cannot be reported: {refusal}"
            assert told["message"] == words
            assert told["error"]["type"] == "Internal"
            assert "commandStatus" not in told
            await wait(200)
            assert status(api, Key("r0", "other"))["status"] == "Success"
            assert rabbit.asked.count(("copy", "/in")) == 1

    with_refusing(story, lambda status: "commandStatus" in status, Noting("r0", seconds=8))


@pytest.mark.parametrize(
    ("refusal", "tries", "end"),
    [(Invalid("no"), 100, "Failed"), (Unavailable("away"), 1100, "Success")],
)
def test_an_end_that_the_api_refuses_however_it_is_put_is_reported_until_it_does_not(
    refusal: Exception, tries: int, end: str
) -> None:
    """Whatever left the task would have everything copied again, and again."""

    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        assert isinstance(api, Refusing)
        api.refusal = refusal
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
            await wait(1000)
            assert status(api)["state"] == "Running"
            assert len(api.written) < tries
            api.refused = lambda status: False
            await wait(100)
            assert status(api)["status"] == end
            assert rabbit.asked.count(("copy", "/in")) == 1

    with_refusing(story, lambda status: status.get("state") != "Running", Noting("r0"))


def test_a_beginning_that_the_api_refuses_is_a_try_that_has_failed() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(**initiator("copy_out")))
            await api.add(KIND, movement(name="other", source="/other", userid=1))
            await wait(36000)
            assert status(api)["status"] == "Failed"
            assert "must be of type int32" in status(api)["message"]
            assert "tried" in status(api)["message"]
            assert status(api, Key("r0", "other"))["status"] == "Success"
            assert ("copy", "/in") not in rabbit.asked

    with_refusing(story, lambda status: status.get("state") == "Running", Noting("r0"))


def test_an_end_that_is_not_heard_is_told_again_and_nothing_copied_twice() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
            api.refusals["patch", KIND] = Unavailable("away")
            # The last word but one is the progress, which is not repeated.
            await wait(0.0)
            while rabbit.asked[-1:] != [("copied", "/in")]:
                api.refusals["patch", KIND] = Unavailable("away")
                await wait(0.125)
            api.refusals["patch", KIND] = Unavailable("away")
            await wait(10)

        assert status(api)["status"] == "Success"
        assert rabbit.asked.count(("copy", "/in")) == 1

    with_rabbit(story, Noting("r0", seconds=8))


def test_a_beginning_that_is_not_heard_is_told_again_before_anything_is_copied() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        api.refusals["patch", KIND] = Unavailable("away")
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
            await wait(5)

        verbs = [verb for verb, _, _ in api.written]
        assert verbs[:2] == ["status", "status"]
        assert status(api)["status"] == "Success"

    with_rabbit(story)


# What is not wanted any more


class Hung(Noting):
    """A rabbit whose copiers do not end when they are told to, but for those of user 3."""

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        try:
            async for progress in super().copy(copy):
                yield progress
        finally:
            if copy.userid != 3:
                await asyncio.sleep(10_000)


def test_copiers_of_some_users_that_do_not_end_keep_no_copy_of_another_user_waiting() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            for user in (1, 2):  # as many as there would be workers without turns
                await api.add(KIND, movement(name=f"m{user}", userid=user, source=f"/{user}"))
                await api.change(KIND, Key("r0", f"m{user}"), {"spec": {"cancel": True}})
            await wait(1)
            await api.add(KIND, movement(name="m3", userid=3, source="/3"))
            await wait(5)
            assert ("copy", "/3") in rabbit.asked

    with_rabbit(story, Hung("r0", seconds=100), slots=1)


@pytest.mark.parametrize("begun", [True, False])
def test_a_copy_that_is_cancelled_is_ended_and_says_so(begun: bool) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement(cancel=not begun))
            if begun:
                await api.change(KIND, KEY, {"spec": {"cancel": True}})
            told = status(api)
            await wait(200)

        assert (told["state"], told["status"]) == ("Finished", "Cancelled")
        assert told["message"] == "the copy was cancelled"
        assert "endTime" in told
        assert rabbit.flash.copies == []
        assert len(rabbit.asked) == begun

    with_rabbit(story, Noting("r0", seconds=100))


@pytest.mark.parametrize("finished", [True, False])
def test_a_copy_that_is_deleted_is_ended_before_it_is_let_go(finished: bool) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        keeping = [labels.MOVEMENT_FINALIZER, "another"]
        known = {"state": "Finished"} if finished else None
        await api.add(KIND, movement(known, finalizers=keeping))
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.remove(KIND, KEY)
            await wait(200)

        assert api.find(KIND, KEY)["metadata"]["finalizers"] == ["another"]
        assert len(rabbit.asked) == (not finished)
        assert rabbit.flash.copies == []

    with_rabbit(story, Noting("r0", seconds=100))


def test_a_copy_whose_movement_is_gone_is_ended() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
            await api.remove(KIND, KEY)
            await wait(200)
            assert rabbit.flash.copies == []
            assert KEY not in movements.copies

    with_rabbit(story, Noting("r0", seconds=100))


@pytest.mark.parametrize("change", ["cancelled", "finished", "deleted", "gone", "put off", None])
def test_a_copy_that_gets_its_slot_is_begun_only_if_it_is_still_wanted(change: str | None) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        keeping = ["another"] if change == "deleted" else []
        await api.add(KIND, movement(name="first", source="/first"))
        await api.add(KIND, movement(finalizers=keeping))
        async with running(api, movements.copies.run()):
            movements.copies.enqueue(Key("r0", "first"), 1001)
            movements.copies.enqueue(KEY, 1001)
            await caught_up()
            last = rfc3339_micro(api.clock.now() + 90)
            match change:
                case "cancelled":
                    await api.change(KIND, KEY, {"spec": {"cancel": True}})
                case "finished":
                    await api.change(KIND, KEY, {"status": {"state": "Finished"}}, status=True)
                case "put off":
                    # For half a second more than its slot is another one's.
                    failed = {"state": "Starting", "restarts": 1, "endTime": last}
                    await api.change(KIND, KEY, {"status": failed}, status=True)
                case "deleted" | "gone":
                    await api.remove(KIND, KEY)
            await wait(150)

        begun = [source for what, source in rabbit.asked if what == "copy"]
        assert begun == (["/first", "/in"] if change is None else ["/first"])

    with_rabbit(story, Noting("r0", seconds=100), slots=1, retries=Retries(pause=9.5))


# Slots


@pytest.mark.parametrize(("users", "together"), [((1, 1, 1), 2), ((1, 2, 3), 3)])
def test_no_more_copies_at_a_time_than_slots_but_one_of_each_user(
    users: Sequence[int], together: int
) -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            for number, user in enumerate(users):
                await api.add(KIND, movement(name=f"m{number}", userid=user, source=f"/{user}"))
            assert len(rabbit.asked) == together
            await wait(500)
            assert len(rabbit.flash.copies) == 3

    with_rabbit(story, Noting("r0", seconds=100), slots=2)


def test_users_take_turns() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            for name, user in (("a", 1), ("b", 1), ("c", 1), ("d", 2)):
                await api.add(KIND, movement(name=name, userid=user, source=f"/{name}"))
            await wait(1000)

        copied = [source for what, source in rabbit.asked if what == "copied"]
        assert sorted(copied) == ["/a", "/b", "/c", "/d"]
        assert copied.index("/d") < copied.index("/b")

    with_rabbit(story, Noting("r0", seconds=10), slots=1)


def test_stopping_the_agent_ends_its_copies() -> None:
    async def story(api: Api, rabbit: Noting, movements: MovementReconciler) -> None:
        async with running(api, movements.reconciler.run(), movements.copies.run()):
            await api.add(KIND, movement())
        await wait(200)

        assert rabbit.flash.copies == []

    with_rabbit(story, Noting("r0", seconds=100))
