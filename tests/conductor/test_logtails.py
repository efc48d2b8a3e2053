"""What containers have printed, as it gets into the record of their job."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from tests.conductor.jobs import Jobs
from tests.conductor.test_alone import ENDING, KEY, asked, own
from tests.controllers.alone import Api, alone, informed
from tests.dws.builders import BINDING, JOBDW, raw_workflow
from tests.harness import virtual
from warren.base.bytesize import GIB
from warren.base.errors import WarrenError
from warren.base.objects import Key
from warren.conductor.conductor import Conductor
from warren.conductor.logtails import LogTails
from warren.dws import kinds
from warren.dws.pods.podsummary import MAX_CHARACTERS, LogRef
from warren.kube.client import Forbidden, LogReader, NotFound, Unavailable

CONTAINER = "#DW container name=beside profile=index"


class Reader:
    """A `LogReader` of logs in memory; None never comes."""

    def __init__(self, logs: Mapping[str, bytes | WarrenError | None]) -> None:
        self.logs = logs

    async def log(self, pod: Key, container: str, lines: int) -> AsyncIterator[bytes]:
        match self.logs.get(pod.name):
            case None:
                await asyncio.Event().wait()
            case bytes(printed):
                last = b"".join(printed.splitlines(keepends=True)[-lines:])
                for start in range(0, len(last), 7):
                    yield last[start : start + 7]
            case WarrenError() as error:
                raise error


def read(**logs: bytes | WarrenError | None) -> str:
    each = [LogRef(Key("default", name), "app") for name in logs]
    found: list[str] = []

    async def main() -> None:
        found.append(await LogTails(Reader(logs), seconds=5.0).text(each))

    virtual.run(main())
    return found[0]


def test_the_end_of_a_log_is_kept() -> None:
    assert read(a=b"one\ntwo\n") == "one\ntwo\n"
    assert read(a="é".encode() * (MAX_CHARACTERS + 5)) == "é" * MAX_CHARACTERS
    assert read(a=b"\xff\n") == "\ufffd\n"


def test_what_cannot_be_read_is_told_and_holds_up_no_other() -> None:
    found = read(a=Unavailable("the disk is broken"), b=None, c=b"words\n")
    assert found == (
        "==> a app <==\n(not read: the disk is broken)\n"
        "==> b app <==\n(not read: it did not come within 5 s)\n"
        "==> c app <==\nwords\n"
    )


Story = Callable[[Api, Jobs, Conductor], Awaitable[None]]


def conducted(story: Story, reader: LogReader | None) -> None:
    """Tell a story of a job with containers that has ended."""

    async def main(api: Api) -> None:
        manager = Jobs(replace(ENDING, directives=(JOBDW, CONTAINER)))
        conductor = Conductor(api, api.informers, manager, api.clock, GIB, reader=reader)
        metadata = {"name": KEY.name, "finalizers": [BINDING.finalizer]}
        made = raw_workflow(JOBDW, CONTAINER, state="DataOut", ready=True, metadata=metadata)
        labels = own(await api.add(kinds.WORKFLOW, made))
        for name, its in (("beside", labels), ("other", {})):
            state = {"terminated": {"exitCode": 3, "message": "no data"}}
            status = {"phase": "Failed", "containerStatuses": [{"name": "app", "state": state}]}
            meta = {"name": name, "namespace": "default", "labels": its}
            spec = {"nodeName": "r0"}
            await api.add(kinds.POD, {"metadata": meta, "spec": spec, "status": status})
        await story(api, manager, conductor)

    alone(main)


def record(jobs: Jobs) -> dict[str, Any]:
    return {key: value for _, _, noted in asked(jobs, "record") for key, value in noted.items()}


def test_the_record_has_the_jobs_own_pods_and_what_they_have_printed() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        async with informed(api):
            await conductor.reconcile(7)
        assert record(jobs)["rabbit_container_log"] == "words\n"
        assert [each["pod"] for each in record(jobs)["rabbit_storage"]["containers"]] == ["beside"]
        assert api.find(kinds.WORKFLOW, KEY)["spec"]["desiredState"] == "Teardown"

    conducted(story, Reader({"beside": b"words\n"}))


def test_pods_that_cannot_be_seen_hold_no_job_up() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        api.refusals["list", kinds.POD] = Forbidden("no role lets us")
        async with informed(api):
            await conductor.reconcile(7)
        assert "rabbit_container_log" not in record(jobs)
        assert record(jobs)["rabbit_storage"]["containers"] == []
        assert api.find(kinds.WORKFLOW, KEY)["spec"]["desiredState"] == "Teardown"

    conducted(story, Reader({"beside": NotFound("gone")}))


def test_the_jobs_own_pods_are_told_while_it_lives() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        async with informed(api):
            told = await conductor.storage(7)
        assert told is not None
        (found,) = told["containers"]
        assert (found["pod"], found["exit"], found["words"]) == ("beside", 3, "no data")

    conducted(story, None)


def test_however_often_users_ask_the_pods_are_listed_once_a_second() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        def listed() -> int:
            return api.asked.count(("list", kinds.POD))

        async with informed(api):
            told = await asyncio.gather(*(conductor.storage(7) for _ in range(20)))
            assert all(each is not None and each["containers"] for each in told)
            assert listed() == 1
            await asyncio.sleep(2)
            await conductor.storage(7)
            assert listed() == 2

    conducted(story, None)
