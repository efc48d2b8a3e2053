"""Breakdowns in an API: what is made for them, in which order, and what wakes them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.controllers.alone import WORKFLOW, Api, alone, caught_up, informed, running
from tests.dws.builders import JOBDW, meta, raw_profile
from tests.kube.clusters import alongside
from warren.base.objects import Key, Kind
from warren.controllers.breakdown import BreakdownController
from warren.dws import kinds, labels
from warren.dws.objects.meta import Meta

BREAKDOWN = Key("default", "wf-0")
KEPT = Key("default", "kept")
CREATE = "#DW create_persistent type=xfs capacity=1GiB name=kept"
USE = "#DW persistentdw name=kept requires=copy-offload,user-container-auth"
PADDING = 300 * 2**20


def directive(text: str, user: int = 1) -> dict[str, Any]:
    return {
        "metadata": {"name": "wf-0", "namespace": "default", "labels": WORKFLOW},
        "spec": {"directive": text, "userID": user},
    }


def instance(text: str = CREATE, user: int = 1, **metadata: Any) -> dict[str, Any]:
    spec = {
        "name": "kept",
        "fsType": "xfs",
        "dwDirective": text,
        "userID": user,
        "state": "Active",
    }
    return {"metadata": {"name": "kept", "namespace": "default", **metadata}, "spec": spec}


async def give_servers(api: Api, *sets: Mapping[str, Any]) -> None:
    """Make the Servers of the instance, as its controller does."""
    owner = api.find(kinds.PERSISTENT_INSTANCE, KEPT)["metadata"]
    found = Meta(name="kept", namespace="default", uid=owner["uid"])
    made = {"name": "kept", "namespace": "default"}
    made["labels"] = labels.of_owner(kinds.PERSISTENT_INSTANCE, found)  # type: ignore[assignment]
    await api.add(kinds.SERVERS, {"metadata": made, "spec": {"allocationSets": list(sets)}})


def status(api: Api) -> Mapping[str, Any]:
    found: Mapping[str, Any] = api.find(kinds.BREAKDOWN, BREAKDOWN).get("status") or {}
    return found


def size(api: Api) -> int:
    (found,) = status(api)["storage"]["allocationSets"]
    return int(found["minimumCapacity"])


def created(api: Api) -> list[tuple[str, str]]:
    return [(kind.name, key.name) for verb, kind, key in api.written if verb == "create"]


def test_the_copy_of_a_profile_is_there_before_the_breakdown_is_ready() -> None:
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(JOBDW))
            await caught_up()
        wrote = [(verb, kind.name) for verb, kind, _ in api.written]
        assert wrote == [
            ("create", "NnfStorageProfile"),
            ("create", "Servers"),
            ("status", "DirectiveBreakdown"),
        ]
        assert api.asked == []
        copy = api.find(kinds.NNF_STORAGE_PROFILE, BREAKDOWN)
        assert labels.workflow_of(copy) == ("default/wf",)

    alone(story)


def test_a_source_that_changes_after_the_copy_was_made_changes_nothing() -> None:
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        source = raw_profile()
        await api.add(kinds.NNF_STORAGE_PROFILE, source)
        await api.add(kinds.BREAKDOWN, directive(JOBDW))
        async with informed(api):
            await controller.reconcile(BREAKDOWN)
            # The process dies here, and meanwhile the profile is another one.
            patch = {"data": {"xfsStorage": {"allocationPadding": "9GiB"}}}
            place = Key(kinds.PROFILES_NAMESPACE, "default")
            await api.change(kinds.NNF_STORAGE_PROFILE, place, patch)
            again = BreakdownController(api, api.informers)
            await again.reconcile(BREAKDOWN)
        assert size(api) == 2**30 + PADDING

    alone(story)


@pytest.mark.parametrize("hidden", [(), (kinds.NNF_STORAGE_PROFILE,), (kinds.SERVERS,)])
def test_what_an_informer_has_not_seen_yet_is_made_once(hidden: tuple[Kind, ...]) -> None:
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        await api.add(kinds.BREAKDOWN, directive(JOBDW))
        async with informed(api):
            for _ in range(4):
                await controller.reconcile(BREAKDOWN)
                await caught_up()
        assert len(api.keys(kinds.SERVERS)) <= 1
        assert len(api.keys(kinds.NNF_STORAGE_PROFILE)) <= 2
        assert status(api).get("ready", False) is (kinds.NNF_STORAGE_PROFILE not in hidden)

    alone(story, hidden=hidden)


def test_create_persistent_makes_its_instance_then_the_copy_and_waits_for_the_servers() -> None:
    """Statement 002.13: the lifetime of persistent storage."""

    # 002.6, 002.13, 002.14
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(CREATE))
            await caught_up()
            assert created(api) == [
                ("PersistentStorageInstance", "kept"),
                ("NnfStorageProfile", "kept"),
            ]
            assert not status(api).get("ready")
            await give_servers(api)
            await caught_up()

        told = status(api)
        assert told["ready"]
        assert "compute" not in told
        assert told["storage"]["lifetime"] == "persistent"
        assert told["storage"]["reference"]["name"] == "kept"
        made = api.find(kinds.PERSISTENT_INSTANCE, KEPT)
        assert made["metadata"]["finalizers"] == [labels.PERSISTENT_FINALIZER]
        assert labels.owner_of(made) == ("DirectiveBreakdown default/wf-0",)
        copy = api.find(kinds.NNF_STORAGE_PROFILE, KEPT)
        assert labels.owner_of(copy) == ("PersistentStorageInstance default/kept",)
        assert copy["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]

    alone(story)


def test_the_servers_of_another_owner_are_not_those_of_the_instance() -> None:
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        await api.add(kinds.SERVERS, {"metadata": meta("kept"), "spec": {}})
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(CREATE))
            await caught_up()
        assert not status(api).get("ready")

    alone(story)


@pytest.mark.parametrize(
    ("there", "words", "severity"),
    [
        (instance(user=2), "User ID does not match existing persistent storage: take", "Fatal"),
        (
            instance(CREATE.replace("1GiB", "2GiB")),
            "persistent storage 'kept' is there already, made by '#DW create_persistent type=xfs "
            "capacity=2GiB name=kept': take another name, or destroy it first",
            "Fatal",
        ),
        (instance("nonsense"), "persistent storage 'kept' is there already", "Fatal"),
        (
            instance(finalizers=["x/y"], deletionTimestamp="2026-01-31T12:00:00Z"),
            "persistent storage 'kept' is about to be destroyed",
            "Major",
        ),
    ],
)
def test_an_instance_is_never_rewritten(there: dict[str, Any], words: str, severity: str) -> None:
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        await api.add(kinds.PERSISTENT_INSTANCE, there)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(CREATE))
            await caught_up()
        error = status(api)["error"]
        assert error["userMessage"].startswith(words)
        assert error["severity"] == severity
        assert [kind for _, kind, _ in api.written] == [kinds.BREAKDOWN]

    alone(story)


def test_an_instance_that_the_same_directive_has_made_is_taken_as_it_is() -> None:
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        before = await api.add(
            kinds.PERSISTENT_INSTANCE, instance(CREATE.replace(" name", "   name"))
        )
        await give_servers(api)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(CREATE))
            await caught_up()
        assert status(api)["ready"]
        assert api.find(kinds.PERSISTENT_INSTANCE, KEPT) == before

    alone(story)


def test_persistentdw_waits_for_the_allocations_and_says_how_nodes_must_reach_them() -> None:
    """Statements 002.19, 002.22, 002.26: how nodes must reach which set, and the daemons."""

    # 002.19 to 002.24, 002.26
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.PERSISTENT_INSTANCE, instance())
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(USE, user=2))
            await caught_up()
            assert status(api)["error"]["severity"] == "Minor"
            one = {"label": "xfs", "allocationSize": 1, "storage": []}
            await give_servers(api, one)
            await caught_up()
        told = status(api)
        assert (told["ready"], told.get("error"), told.get("storage")) == (True, None, None)
        assert told["requires"] == ["copy-offload", "user-container-auth"]
        (found,) = told["compute"]["constraints"]["location"]
        assert found["access"] == [{"type": "physical", "priority": "mandatory"}]
        assert found["reference"]["fieldPath"] == "servers.spec.allocationSets[0]"
        assert found["reference"]["name"] == "kept"

    alone(story)


def test_persistentdw_of_what_does_not_exist_is_the_authors_mistake() -> None:
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(USE))
            await caught_up()
        error = status(api)["error"]
        assert error["userMessage"] == "PersistentStorageInstance 'kept' not found"
        assert (error["type"], error["severity"]) == ("User", "Fatal")

    alone(story)


PLACE = Key(kinds.PROFILES_NAMESPACE, "default")
NAMED = f"{JOBDW} profile=fast"


@pytest.mark.parametrize(
    ("text", "there", "remedy"),
    [
        (JOBDW, [], ("add", raw_profile())),
        (NAMED, [raw_profile()], ("add", raw_profile("fast", default=False))),
        (JOBDW, [raw_profile(default=False)], ("change", {"data": {"default": True}})),
        (JOBDW, [raw_profile(), raw_profile("b")], ("change", {"data": {"default": False}})),
        (JOBDW, [raw_profile(), raw_profile("b")], ("remove", None)),
        (
            JOBDW,
            [raw_profile(capacityScalingFactor="much")],
            ("change", {"data": {"xfsStorage": {"capacityScalingFactor": "1"}}}),
        ),
        (CREATE, [raw_profile(default=False)], ("change", {"data": {"default": True}})),
    ],
)
def test_a_breakdown_that_fails_by_its_profile_is_tried_again_when_profiles_change(
    text: str, there: list[dict[str, Any]], remedy: tuple[str, Any]
) -> None:
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        for each in there:
            await api.add(kinds.NNF_STORAGE_PROFILE, each)
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(text))
            await caught_up()
            assert status(api)["error"]["severity"] == "Fatal"
            verb, what = remedy
            if verb == "add":
                await api.add(kinds.NNF_STORAGE_PROFILE, what)
            elif verb == "change":
                await api.change(kinds.NNF_STORAGE_PROFILE, PLACE, what)
            else:
                await api.remove(kinds.NNF_STORAGE_PROFILE, PLACE)
            await caught_up()
            if text == CREATE:
                await give_servers(api)
                await caught_up()
        assert status(api)["ready"]
        assert status(api).get("error") is None

    alone(story)


def test_news_of_what_it_depends_on_wakes_none_that_is_ready_or_waits_for_another(
    heard: Sequence[Mapping[str, Any]],
) -> None:
    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(JOBDW))
            other = directive(f"{JOBDW} profile=other")
            other["metadata"] = {**other["metadata"], "name": "wf-1"}
            await api.add(kinds.BREAKDOWN, other)
            await caught_up()
            woken: list[Key] = []
            controller.reconciler.add = woken.append  # type: ignore[method-assign, assignment]
            await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile("fast", default=False))
            # Of another breakdown, whatever its name is.
            await api.add(
                kinds.NNF_STORAGE_PROFILE, raw_profile("other") | {"metadata": meta("other")}
            )
            await api.change(kinds.SERVERS, BREAKDOWN, {"spec": {"allocationSets": []}})
        assert status(api)["ready"]
        assert woken == []
        assert [each for each in heard if each["log_level"] == "error"] == []

    alone(story)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "there"])
def test_a_copy_that_was_removed_is_made_again_where_its_breakdown_is_there(gone: bool) -> None:
    """What collects garbage may see a breakdown go before its controller does."""
    hidden: set[tuple[Kind, Key]] = set()

    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        async with informed(api):
            await api.add(kinds.BREAKDOWN, directive(JOBDW))
            hidden.add((kinds.BREAKDOWN, BREAKDOWN))  # no more news of it
            async with alongside(controller.reconciler.run()):
                await caught_up()
                if gone:
                    await api.remove(kinds.BREAKDOWN, BREAKDOWN)
                else:
                    await api.change(
                        kinds.BREAKDOWN, BREAKDOWN, {"status": {"ready": False}}, status=True
                    )
                await api.remove(kinds.NNF_STORAGE_PROFILE, BREAKDOWN)
                await caught_up()
        copies = created(api).count(("NnfStorageProfile", "wf-0"))
        assert copies == (1 if gone else 2)

    alone(story, hidden=hidden)


def test_a_breakdown_whose_copy_was_removed_is_read_once() -> None:
    """What is seen may be trusted after that."""

    async def story(api: Api) -> None:
        controller = BreakdownController(api, api.informers)
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.BREAKDOWN, directive(JOBDW))
            await api.remove(kinds.NNF_STORAGE_PROFILE, BREAKDOWN)
            for word in ("one", "another"):
                carried = {"metadata": {"annotations": {"a": word}}}
                await api.change(kinds.BREAKDOWN, BREAKDOWN, carried)
                assert api.asked == [("get", kinds.BREAKDOWN)]

    alone(story)
