"""Persistent storage of each kind that is one allocation for each node (dws-spec section 7)."""

import pytest

from tests.system.test_lustre import COMPUTES, Driver, told
from warren.base.bytesize import GIB
from warren.base.objects import Change, Key, Object
from warren.dws import kinds


@pytest.mark.parametrize("kind", ["xfs", "ext4", "raw", "gfs2"])
def test_it_is_made_used_by_each_of_its_nodes_and_destroyed(kind: str) -> None:
    async def story(driver: Driver) -> None:
        await driver.begin("maker", f"#DW create_persistent type={kind} name=keep capacity=1GiB")
        share = [{"name": rabbit, "allocationCount": 2} for rabbit in driver.world.flash]
        patch: Object = {"spec": {"allocationSets": [
            {"label": kind, "allocationSize": 2 * GIB, "storage": share}]}}  # fmt: skip
        key = Key("default", "keep")
        await driver.client.patch(Change(kind=kinds.SERVERS, key=key, patch=patch))
        await driver.go("maker", "Setup", "DataIn", "PreRun", "PostRun", "DataOut")
        await driver.end("maker")
        made = [each for flash in driver.world.flash.values() for each in flash.volumes.values()]
        assert [(each.file_system, each.userid) for each in made] == [(kind, 1050)] * 4
        assert driver.all(kinds.PERSISTENT_INSTANCE)["default/keep"]["status"]["state"] == "Active"

        await driver.begin("user", "#DW persistentdw name=keep")
        data: Object = {"data": [{"name": name} for name in COMPUTES]}
        key = Key("default", "user")
        await driver.client.patch(Change(kind=kinds.COMPUTES, key=key, patch=data))
        await driver.go("user", "Setup", "DataIn", "PreRun")
        mounts = {
            node: place
            for flash in driver.world.flash.values()
            for (node, _), place in flash.mounts.items()
        }
        assert mounts.keys() == {*COMPUTES}
        assert len({*mounts.values()}) == len(COMPUTES)
        await driver.go("user", "PostRun", "DataOut")
        await driver.end("user")

        await driver.begin("ender", "#DW destroy_persistent name=keep")
        await driver.go("ender", "Setup", "DataIn", "PreRun", "PostRun", "DataOut")
        await driver.end("ender")
        driver.nothing_left()

    told(story)
