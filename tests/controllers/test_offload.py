"""Copies that running jobs ask for: what their requests write, and how they meet a job's end."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, caught_up, informed
from tests.dws.builders import meta, raw_workflow
from tests.dws.test_containerauth import KEY
from tests.dws.test_offload import BODY, FAST, ON, ON_COMPUTE, ON_RABBIT, token
from warren.base.objects import Change, Key, Kind, Object, key_of, merge_patch
from warren.controllers.offload import Offload
from warren.dws import containerauth, kinds, labels
from warren.dws.containerauth import TokenSecrets
from warren.dws.objects.decoding import OthersMalformed, read
from warren.dws.objects.workflows import Workflow
from warren.dws.offload import movements
from warren.dws.offload.requests import Refusal
from warren.kube.client import Unavailable
from warren.kube.server.local import LocalClient

KIND = kinds.NNF_DATA_MOVEMENT
WORKFLOW = Key("default", "wf")
HEADER = f"Bearer {token()}"

Story = Callable[[Api, Offload], Awaitable[None]]


@contextmanager
def refused(status: int, words: str) -> Iterator[None]:
    with pytest.raises(Refusal, match=words) as caught:
        yield
    assert caught.value.status == status


def told(story: Story, make: Callable[..., Offload] = Offload, **options: Any) -> None:
    """Tell a story of a job whose tasks run, and the service."""

    async def main(api: Api) -> None:
        await fill(api)
        service = make(api, api.informers, **options)
        async with informed(api):
            await story(api, service)

    alone(main)


async def fill(api: Api) -> None:
    await begin(api, "wf")
    await api.add(
        kinds.LUSTRE_FILE_SYSTEM,
        {"metadata": meta("lus"), "spec": {"name": "lus", "mountRoot": "/lus"}},
    )
    for each in (*ON_COMPUTE, *ON_RABBIT):
        own = labels.of_workflow(read(api.find(kinds.WORKFLOW, WORKFLOW), Workflow))
        carried = {**each["metadata"]["labels"], **own}
        named = {**each["metadata"], "labels": carried}
        await put(api, kinds.CLIENT_MOUNT, {**each, "metadata": named})


async def put(api: Api, kind: Kind, obj: Object) -> Object:
    """Make an object with its status, and wait for no informer."""
    made = await api.store.create(kind, obj)
    if not kind.status:
        return made
    patch = {"status": obj.get("status") or {}}
    return await api.store.patch(Change(kind=kind, key=key_of(made), patch=patch, status=True))


async def begin(api: Api, name: str, key: bytes = KEY) -> None:
    """Have a job whose tasks run: its Workflow, and the Secret with the key of its token."""
    raw = raw_workflow(FAST, state="PreRun", ready=True, status=ON, metadata={"name": name})
    made = read(await put(api, kinds.WORKFLOW, raw), Workflow)
    create = containerauth.next_secret(made, TokenSecrets(new_key=key), 0.0)
    assert create is not None
    await put(api, kinds.SECRET, create.object)


def body(**more: Any) -> bytes:
    return json.dumps({**BODY, **more}).encode()


async def asked(service: Offload, **more: Any) -> str:
    async with service.authenticate(HEADER) as workflow:
        return await service.create(workflow, body(**more))


def movement(api: Api, name: str) -> Any:
    return api.find(KIND, Key(*name.split("--")))


async def end(api: Api, name: str, status: str = "Success") -> None:
    ended = {"state": "Finished", "status": status, "endTime": "2026-01-31T12:00:00Z"}
    change = Change(kind=KIND, key=Key(*name.split("--")), patch={"status": ended}, status=True)
    await api.store.patch(change)


def test_a_copy_is_asked_for_told_of_and_cancelled() -> None:
    async def story(api: Api, service: Offload) -> None:
        name = await asked(service)
        assert movement(api, name)["spec"]["source"]["path"] == "/mnt/nnf/uid-wf-0/r0-1/out"
        async with service.authenticate(HEADER) as workflow:
            assert await service.running_names(workflow) == [name]
            assert await service.status(workflow, name) == movement(api, name)
            await service.cancel(workflow, name)
            assert movement(api, name)["spec"]["cancel"] is True
            await end(api, name, "Cancelled")
            assert await service.running_names(workflow) == []
            writes = len(api.written)
            await service.cancel(workflow, name)
            assert len(api.written) == writes

    told(story)


def test_an_application_waits_for_the_end_of_a_copy() -> None:
    async def story(api: Api, service: Offload) -> None:
        name = await asked(service)
        async with service.authenticate(HEADER) as workflow:
            begun = asyncio.get_running_loop().time()

            def lasted() -> float:
                return asyncio.get_running_loop().time() - begun

            assert (await service.status(workflow, name, 3.0))["spec"]["cancel"] is False
            assert lasted() == pytest.approx(3.0)
            waiting = asyncio.ensure_future(service.status(workflow, name, None))
            await asyncio.sleep(100)
            assert not waiting.done()
            await end(api, name)
            assert (await waiting)["status"]["status"] == "Success"
            assert lasted() < 104  # by the news of it

    told(story)


def test_all_who_wait_for_a_copy_hear_of_its_end_also_when_one_waits_no_longer() -> None:
    async def story(api: Api, service: Offload) -> None:
        name = await asked(service)
        async with service.authenticate(HEADER) as workflow:
            waiting = [
                asyncio.ensure_future(service.status(workflow, name, seconds))
                for seconds in (2.0, None, None)
            ]
            await asyncio.sleep(5)
            assert [each.done() for each in waiting] == [True, False, False]
            await end(api, name)
            await caught_up()
            assert all(each.done() for each in waiting)

    told(story)


def test_news_of_a_copy_that_goes_on_have_it_looked_at_once() -> None:
    async def story(api: Api, service: Offload) -> None:
        name = await asked(service)
        async with service.authenticate(HEADER) as workflow:
            waiting = asyncio.ensure_future(service.status(workflow, name, None))
            await caught_up()
            api.asked.clear()
            running = {"status": {"state": "Running"}}
            await api.change(KIND, Key(*name.split("--")), running, status=True)
            await asyncio.sleep(2)
            assert api.asked == [("get", KIND)]
            waiting.cancel()

    told(story)


def test_who_has_gone_is_not_waited_for_any_more() -> None:
    async def story(api: Api, service: Offload) -> None:
        name = await asked(service)
        there = True
        async with service.authenticate(HEADER) as workflow:
            waiting = asyncio.ensure_future(service.status(workflow, name, None, lambda: there))
            await asyncio.sleep(5)
            there = False
            await asyncio.sleep(2)
            assert waiting.done()

    told(story)


def test_an_end_of_which_no_news_has_come_is_found() -> None:
    async def main(api: Api) -> None:
        await fill(api)
        service = Offload(api, api.informers)
        async with informed(api):
            name = await asked(service)
            async with service.authenticate(HEADER) as workflow:
                waiting = asyncio.ensure_future(service.status(workflow, name, None))
                await asyncio.sleep(5)
                await end(api, name)
                await asyncio.sleep(30)
                assert waiting.done()

    alone(main, hidden=[KIND])


@pytest.mark.parametrize(
    "header",
    ["", "Bearer ", "Bearer a.b.c", f"Bearer {token('default/other')}", f"Basic {token()}",
     f"Bearer {token(key=b'of another job')}", f"Bearer {token('kube-system/wf')}"],
)  # fmt: skip
def test_no_request_is_answered_without_the_token_of_a_job(header: str) -> None:
    async def story(api: Api, service: Offload) -> None:
        with refused(401, "^unauthorized$"):
            async with service.authenticate(header):
                pytest.fail("it was let in")

    told(story)


def test_a_token_of_another_job_that_runs_too_finds_nothing_of_this_one() -> None:
    async def story(api: Api, service: Offload) -> None:
        name = await asked(service)
        await begin(api, "other", b"its own key")
        header = f"Bearer {token('default/other', b'its own key')}"
        async with service.authenticate(header) as workflow:
            assert workflow.metadata.name == "other"
            assert await service.running_names(workflow) == []
            with refused(404, "^request not found$"):
                await service.status(workflow, name)
            with refused(404, "^unable to cancel request: request not found$"):
                await service.cancel(workflow, name)
            with refused(400, "this job has nothing mounted on n0"):
                await service.create(workflow, body())
        assert not movement(api, name)["spec"]["cancel"]

    told(story)


@pytest.mark.parametrize(
    ("patch", "status", "words"),
    [
        ({"spec": {"desiredState": "Teardown"}}, 401, "the token ended with its job"),
        ({"status": {"requires": ["container-auth"]}}, 403, "do not say requires=copy-offload"),
    ],
)
def test_a_token_is_for_jobs_that_ask_for_copies_and_ends_with_teardown(
    patch: Object, status: int, words: str
) -> None:
    async def story(api: Api, service: Offload) -> None:
        await api.change(kinds.WORKFLOW, WORKFLOW, patch)
        with refused(status, words):
            async with service.authenticate(HEADER):
                pytest.fail("it was let in")

    told(story)


def test_what_was_not_asked_for_here_is_no_copy_to_be_told_of() -> None:
    """A directive's copies are not, and neither is what only has the labels of those that are."""

    async def story(api: Api, service: Offload) -> None:
        name = await asked(service)
        made = movement(api, name)
        by_directive = merge_patch(
            {**made, "metadata": meta("wf-1-0", "r0", labels=made["metadata"]["labels"])},
            {"metadata": {"labels": {labels.TEARDOWN_STATE: "DataOut"}}},
        )
        await api.add(KIND, by_directive)
        carried = made["metadata"]["labels"]
        await api.add(KIND, {**made, "metadata": meta("mine", "r0", labels=carried)})
        async with service.authenticate(HEADER) as workflow:
            assert await service.running_names(workflow) == [name]
            for other in ("r0--wf-1-0", "r0--mine", "r0--nothing", "no name at all"):
                with refused(404, "request not found"):
                    await service.status(workflow, other)

    told(story)


class Ending(LocalClient):
    """A client by which a job's end is asked for right when a movement is written."""

    def __init__(self, api: Api, before: bool) -> None:
        super().__init__(api.store)
        self._api = api
        self._before = before

    async def create(self, kind: Any, obj: Object) -> Object:
        end = {"spec": {"desiredState": "PostRun"}}
        if self._before:
            await self._api.change(kinds.WORKFLOW, WORKFLOW, end)
        made = await super().create(kind, obj)
        if not self._before:
            await self._api.change(kinds.WORKFLOW, WORKFLOW, end)
        return made


@pytest.mark.parametrize("before", [True, False])
def test_no_copy_is_promised_once_the_end_of_its_job_is_asked_for(before: bool) -> None:
    async def story(api: Api, service: Offload) -> None:
        with refused(409, "workflow must be in 'PreRun' state"):
            await asked(service)
        (left,) = api.store.objects_of(KIND)
        assert left["metadata"]["deletionTimestamp"]  # the rabbit has a finalizer on it

    told(story, lambda api, informers: Offload(Ending(api, before), informers))


def test_of_a_job_whose_tasks_do_not_run_nothing_is_made() -> None:
    async def story(api: Api, service: Offload) -> None:
        await api.change(kinds.WORKFLOW, WORKFLOW, {"spec": {"desiredState": "PostRun"}})
        with refused(409, "workflow must be in 'PreRun' state"):
            await asked(service)
        assert api.written == []

    told(story)


def test_copies_that_have_ended_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        movements, "movements_to_forget", partial(movements.movements_to_forget, max_remembered=3)
    )

    async def story(api: Api, service: Offload) -> None:
        names = [await asked(service) for _ in range(3)]
        await end(api, names[1])
        names.append(await asked(service))
        going = {each for each in names if movement(api, each)["metadata"].get("deletionTimestamp")}
        assert going == {names[1]}

    told(story)


def test_a_copy_is_taken_back_where_it_cannot_be_told_whether_its_job_has_ended() -> None:
    async def story(api: Api, service: Offload) -> None:
        async with service.authenticate(HEADER) as workflow:
            api.refusals["get", kinds.WORKFLOW] = Unavailable("away")
            with pytest.raises(Unavailable):
                await service.create(workflow, body())
        (left,) = api.store.objects_of(KIND)
        assert left["metadata"]["deletionTimestamp"]

    told(story)


def test_a_file_system_that_cannot_be_read_is_no_mistake_of_a_request() -> None:
    async def story(api: Api, service: Offload) -> None:
        await put(
            api,
            kinds.LUSTRE_FILE_SYSTEM,
            {"metadata": meta("odd"), "kind": "LustreFileSystem", "spec": 5},
        )
        with pytest.raises(OthersMalformed, match="LustreFileSystem odd: "):
            await asked(service)

    told(story)


def test_the_bound_holds_for_requests_at_one_time() -> None:
    """What each sees is what those before it have written."""

    async def story(api: Api, service: Offload) -> None:
        answers = await asyncio.gather(
            *(asked(service) for _ in range(300)), return_exceptions=True
        )
        refusals = [each for each in answers if isinstance(each, Refusal)]
        assert {each.status for each in refusals} == {429}
        assert len(list(api.store.objects_of(KIND))) == 256 == len(answers) - len(refusals)

    told(story, max_requests=1000)


def test_a_job_has_so_many_requests_answered_at_a_time() -> None:
    async def story(api: Api, service: Offload) -> None:
        async with service.authenticate(HEADER), service.authenticate(HEADER):
            with refused(429, "2 requests of this job are being answered"):
                async with service.authenticate(HEADER):
                    pytest.fail("it was let in")
        for _ in range(2):
            async with service.authenticate(HEADER):
                async with service.authenticate(HEADER):
                    pass
                async with service.authenticate(HEADER):
                    with refused(429, "2 requests of this job are being answered"):
                        async with service.authenticate(HEADER):
                            pytest.fail("it was let in")

    told(story, max_requests=2)


def test_paths_of_nodes_without_mount_namespaces_are_understood() -> None:
    def known(node: str, path: str) -> str:
        return path.removeprefix(f"/nodes/{node}")

    async def story(api: Api, service: Offload) -> None:
        name = await asked(service, sourcePath="/nodes/n0/mnt/nnf/uid-wf-0/out")
        assert movement(api, name)["spec"]["source"]["path"] == "/mnt/nnf/uid-wf-0/r0-1/out"

    told(story, api_path=known)
