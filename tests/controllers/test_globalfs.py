"""The controller of LustreFileSystems: what it sees and does."""

import pytest

from tests.controllers.alone import Api, alone, running
from tests.dws.builders import meta
from warren.base.objects import Key
from warren.controllers.globalfs import GlobalFileSystemController
from warren.dws import kinds, labels

KEY = Key("default", "global0")


@pytest.mark.parametrize("there_before", [True, False])
def test_a_global_file_system_is_guarded_promised_and_let_go(there_before: bool) -> None:
    async def story(api: Api) -> None:
        spec = {
            "name": "global0",
            "mgsNids": "10.1.1.1@tcp",
            "mountRoot": "/lus/global0",
            "namespaces": {"default": {"modes": ["ReadWriteMany"]}},
        }
        made = {"metadata": meta(KEY.name), "spec": spec}
        controller = GlobalFileSystemController(api, api.informers)
        if there_before:
            await api.add(kinds.LUSTRE_FILE_SYSTEM, made)
        async with running(api, controller.reconciler.run()):
            if not there_before:
                await api.add(kinds.LUSTRE_FILE_SYSTEM, made)
            found = api.find(kinds.LUSTRE_FILE_SYSTEM, KEY)
            assert found["metadata"]["finalizers"] == [labels.LUSTRE_FINALIZER]
            modes = found["status"]["namespaces"]["default"]["modes"]
            assert modes == {"ReadWriteMany": {"state": "Pending"}}
            await api.remove(kinds.LUSTRE_FILE_SYSTEM, KEY)
            assert api.find(kinds.LUSTRE_FILE_SYSTEM, KEY) is None

    alone(story)


def test_one_that_is_gone_is_nothing_to_do() -> None:
    async def story(api: Api) -> None:
        controller = GlobalFileSystemController(api, api.informers)
        async with running(api):
            assert await controller.reconcile(KEY) is None
        assert api.written == []

    alone(story)
