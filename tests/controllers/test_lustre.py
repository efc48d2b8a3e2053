"""NnfStorages of Lustre, alone: what wakes one, and in which order it comes and goes."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, caught_up, informed, running
from tests.dws.builders import meta
from warren.base.objects import Key, Object
from warren.controllers.lustremgts import LustreMgtController
from warren.controllers.storage import StorageController
from warren.dws import kinds, labels
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.rabbits.rabbitstorages import NNF_NODE_NAME

KEY = Key("default", "wide")
POOLED = Key("default", "pooled")
NID = "10.0.0.1@tcp"
FAR = "10.9.9.9@tcp"
REFERENCE = {"kind": "NnfStorage", "name": KEY.name, "namespace": KEY.namespace}
FAR_MGT = Key("nnf-system", "far")
Sets = Mapping[str, Sequence[str]]
WHOLE: Sets = {"mgt": ["r0"], "ost": ["r1"]}
WITHOUT_MGT: Sets = {"mdt": ["r0"], "ost": ["r1"]}


def lived(story: Callable[[Api], Awaitable[None]]) -> None:
    async def main(api: Api) -> None:
        storages = StorageController(api, api.informers, api.clock)
        mgts = LustreMgtController(api, api.informers)
        async with running(api, storages.reconciler.run(), mgts.reconciler.run()):
            await story(api)

    alone(main)


async def storage(api: Api, sets: Sets, external: str = "") -> None:
    found = [
        {"name": label, "capacity": 2**33, "nodes": [{"name": each, "count": 1} for each in nodes]}
        for label, nodes in sets.items()
    ]
    own = labels.of_profile("wide", "default") if external else {}
    if external:
        data = {"lustreStorage": {"mgtOptions": {"externalMgs": external}}}
        profile = {"metadata": meta("wide", "default"), "data": data}
        await api.add(kinds.NNF_STORAGE_PROFILE, profile)
    finalizers = [labels.STORAGE_FINALIZER]
    metadata = meta(KEY.name, KEY.namespace, labels=own, finalizers=finalizers)
    spec = {"fileSystemType": "lustre", "userID": 1, "groupID": 1, "allocationSets": found}
    await api.add(kinds.NNF_STORAGE, {"metadata": metadata, "spec": spec})


async def naming(api: Api, key: Key = FAR_MGT, address: str = FAR) -> None:
    spec = {"addresses": [address], "fsNameStart": "aaaaaaaa"}
    await api.add(kinds.LUSTRE_MGT, {"metadata": meta(key.name, key.namespace), "spec": spec})


async def rabbit(api: Api, name: str, nid: str) -> None:
    status = {"status": "Ready", "lnetNid": nid}
    await api.add(kinds.NNF_NODE, {"metadata": meta(NNF_NODE_NAME, name), "status": status})


async def instance(api: Api, name: str, pool: str | None, address: str) -> None:
    """Make persistent storage with an MGS, which may be one of a pool."""
    told = {"ready": True, "health": "Healthy", "mgsAddress": address}
    spec: Object = {"fileSystemType": "xfs", "allocationSets": []}
    await api.add(
        kinds.NNF_STORAGE, {"metadata": meta(name, "default"), "spec": spec, "status": told}
    )
    metadata = meta(name, "default", labels={labels.STANDALONE_MGT: pool} if pool else {})
    made = {"name": name, "fsType": "lustre"}
    active = {"state": "Active"}
    await api.add(kinds.PERSISTENT_INSTANCE, {"metadata": metadata, "spec": made, "status": active})


def shares(api: Api) -> Sequence[str]:
    return api.keys(kinds.NNF_NODE_STORAGE)


def own(api: Api) -> Object:
    """Return by what the storage claims its name."""
    return {**REFERENCE, "uid": api.find(kinds.NNF_STORAGE, KEY)["metadata"]["uid"]}


def status(api: Api) -> Any:
    return api.find(kinds.NNF_STORAGE, KEY)["status"]


async def ready(api: Api, share: str) -> None:
    key = Key(*share.split("/", 1))
    await api.change(kinds.NNF_NODE_STORAGE, key, {"status": {"ready": True}}, status=True)
    await caught_up()


async def gone(api: Api, share: str) -> None:
    """Take back a share with its flash, as its agent does."""
    key = Key(*share.split("/", 1))
    for kind in (kinds.NNF_NODE_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE):
        assert "deletionTimestamp" in api.find(kind, key)["metadata"]
        await api.change(kind, key, {"metadata": {"finalizers": []}})
    await caught_up()


def test_a_file_system_comes_when_its_rabbit_says_where_and_goes_the_other_way_round() -> None:
    async def story(api: Api) -> None:
        await storage(api, WHOLE)
        assert "does not say its LNet address" in status(api)["error"]["userMessage"]
        await rabbit(api, "r0", NID)
        await caught_up()
        mgt, ost = "r0/default-wide-mgt-0", "r1/default-wide-ost-0"
        assert shares(api) == [mgt]
        assert api.find(kinds.LUSTRE_MGT, Key("r0", "wide"))["spec"]["claimList"] == [own(api)]
        await ready(api, mgt)
        assert shares(api) == [mgt, ost]
        await ready(api, ost)
        assert status(api)["ready"]
        assert (status(api)["fileSystemName"], status(api)["mgsAddress"]) == ("aaaaaaaa", NID)

        await api.remove(kinds.NNF_STORAGE, KEY)
        await gone(api, ost)
        assert shares(api) == [mgt]
        await gone(api, mgt)
        assert api.keys(kinds.LUSTRE_MGT) == []
        assert api.find(kinds.NNF_STORAGE, KEY) is None

    lived(story)


def test_a_rabbit_that_says_no_address_yet_is_none_of_the_news() -> None:
    async def story(api: Api) -> None:
        await rabbit(api, "r0", "")
        await storage(api, WHOLE)
        assert "does not say its LNet address" in status(api)["error"]["userMessage"]
        assert shares(api) == []

    lived(story)


def test_a_file_system_of_an_external_mgs_comes_when_an_admin_has_told_of_that() -> None:
    async def story(api: Api) -> None:
        await storage(api, WITHOUT_MGT, FAR)
        assert FAR in status(api)["error"]["userMessage"]
        await naming(api)
        await caught_up()
        assert shares(api) == ["r0/default-wide-mdt-0", "r1/default-wide-ost-0"]
        told = api.find(kinds.LUSTRE_MGT, FAR_MGT)["status"]["claimList"]
        assert told == [{"reference": own(api), "fsname": "aaaaaaaa"}]

        await api.remove(kinds.NNF_STORAGE, KEY)
        for each in shares(api):
            await gone(api, each)
        assert api.find(kinds.NNF_STORAGE, KEY) is None
        mgt = api.find(kinds.LUSTRE_MGT, FAR_MGT)
        assert (mgt["spec"]["claimList"], mgt["status"]["claimList"]) == ([], [])

    lived(story)


@pytest.mark.parametrize("pool", ["p", "another", None])
def test_a_file_system_of_a_pool_comes_when_there_is_an_mgt_in_that(pool: str | None) -> None:
    async def story(api: Api) -> None:
        await storage(api, WITHOUT_MGT, "pool:p")
        await naming(api, address=FAR)
        assert "no MGT of pool 'p' is ready" in status(api)["error"]["userMessage"]
        await instance(api, POOLED.name, pool, FAR)
        await caught_up()
        users = api.find(kinds.PERSISTENT_INSTANCE, POOLED)["spec"].get("consumerReferences")
        if pool == "p":
            assert users == [REFERENCE]
            assert len(shares(api)) == 2
        else:
            assert users is None
            assert shares(api) == []

    lived(story)


def test_an_instance_of_a_pool_without_its_storage_is_passed_over() -> None:
    async def story(api: Api) -> None:
        metadata = meta("early", "default", labels={labels.STANDALONE_MGT: "p"})
        made = {"name": "early", "fsType": "lustre"}
        await api.add(kinds.PERSISTENT_INSTANCE, {"metadata": metadata, "spec": made})
        await storage(api, WITHOUT_MGT, "pool:p")
        await naming(api)
        assert "no MGT of pool 'p' is ready" in status(api)["error"]["userMessage"]

    lived(story)


@pytest.mark.parametrize("external", [FAR, "pool:p"])
def test_a_file_system_comes_by_an_mgs_that_was_there_before_it(external: str) -> None:
    async def story(api: Api) -> None:
        await instance(api, POOLED.name, "p", FAR)
        await naming(api)
        await storage(api, WITHOUT_MGT, external)
        await caught_up()
        assert len(shares(api)) == 2
        assert not status(api).get("error")

    lived(story)


@pytest.mark.parametrize("external", ["", FAR, "pool:fast"])
def test_a_file_system_is_decided_on_without_a_look_at_all_others(external: str) -> None:
    """A system has one NnfLustreMGT for each of them, and persistent storage of all users."""

    def unseen() -> Any:
        raise AssertionError("all of them are looked at")

    async def story(api: Api) -> None:
        await rabbit(api, "r0", NID)
        await instance(api, "pooled", "fast", FAR)
        await naming(api)
        broken = {"addresses": ["10.8.8.8@tcp"], "fsNameStart": 7}
        await api.add(kinds.LUSTRE_MGT, {"metadata": meta("broken", "r7"), "spec": broken})
        for kind in (kinds.PERSISTENT_INSTANCE, kinds.LUSTRE_MGT):
            api.informers.of(kind).values = unseen  # type: ignore[method-assign]
        await storage(api, WITHOUT_MGT if external else WHOLE, external)
        await caught_up()
        claimed = api.find(kinds.LUSTRE_MGT, FAR_MGT if external else Key("r0", "wide"))
        assert claimed["spec"]["claimList"] == [own(api)]
        assert status(api)["mgsAddress"] == (FAR if external else NID)

        await api.remove(kinds.NNF_STORAGE, KEY)
        for each in reversed(shares(api)):
            await gone(api, each)
        assert api.find(kinds.NNF_STORAGE, KEY) is None
        left: dict[str, Any] = {str(FAR_MGT): [], "r7/broken": None}
        assert {
            each: api.find(kinds.LUSTRE_MGT, Key(*each.split("/")))["spec"].get("claimList")
            for each in api.keys(kinds.LUSTRE_MGT)
        } == (left if external else dict.fromkeys(left))

    lived(story)


def test_an_mgt_for_others_comes_and_goes_with_what_gives_out_names() -> None:
    async def story(api: Api) -> None:
        await rabbit(api, "r0", NID)
        await storage(api, {"mgt": ["r0"]})
        await ready(api, "r0/default-wide-mgt-0")
        assert status(api)["ready"]
        await api.remove(kinds.NNF_STORAGE, KEY)
        await gone(api, "r0/default-wide-mgt-0")
        assert api.keys(kinds.LUSTRE_MGT) == []
        assert api.find(kinds.NNF_STORAGE, KEY) is None

    lived(story)


@pytest.mark.parametrize("finalizers", [[labels.LUSTRE_MGT_FINALIZER], ["another/one"], []])
def test_what_gives_out_names_goes_after_a_storage_that_was_forced_away(
    finalizers: list[str],
) -> None:
    async def story(api: Api) -> None:
        lost = Meta(name=KEY.name, namespace=KEY.namespace, uid="uid-of-the-lost")
        own = labels.of_owner(kinds.NNF_STORAGE, lost)
        metadata = meta("wide", "r0", labels=own, finalizers=finalizers)
        metadata.pop("resourceVersion")
        left = {"metadata": metadata, "spec": {"addresses": [NID]}}
        await api.store.create(kinds.LUSTRE_MGT, left)
        await caught_up()
        found = api.find(kinds.LUSTRE_MGT, Key("r0", "wide"))
        if finalizers == ["another/one"]:
            assert "deletionTimestamp" in found["metadata"]
            assert found["metadata"]["finalizers"] == ["another/one"]
        else:
            assert found is None

    lived(story)


def test_of_an_mgt_whose_names_are_given_out_nothing_is_written() -> None:
    async def main(api: Api) -> None:
        controller = LustreMgtController(api, api.informers)
        async with informed(api):
            await naming(api)
            for key in (FAR_MGT, Key("r0", "gone")):
                assert await controller.reconcile(key) is None
        assert api.written == []

    alone(main)


def test_what_gives_out_names_stays_while_its_storage_is_only_not_seen_yet() -> None:
    async def main(api: Api) -> None:
        controller = StorageController(api, api.informers, api.clock)
        await storage(api, WHOLE)
        there = read(api.find(kinds.NNF_STORAGE, KEY), NnfStorage)
        own = labels.of_owner(kinds.NNF_STORAGE, there.metadata)
        metadata = meta("wide", "r0", labels=own, finalizers=[labels.LUSTRE_MGT_FINALIZER])
        await api.add(kinds.LUSTRE_MGT, {"metadata": metadata, "spec": {"addresses": [NID]}})
        async with informed(api):
            await controller.reconcile(KEY)
        assert api.written == []

    alone(main, hidden=[kinds.NNF_STORAGE])
