"""Which types of file systems the rabbits make, as their Storages say."""

from tests.controllers.alone import Api, alone, informed
from tests.dws.builders import meta
from warren.base.objects import Key
from warren.controllers import filesystemtypes
from warren.dws import kinds, labels


def test_a_type_is_made_by_all_rabbits_by_some_or_by_none_which_say_why() -> None:
    async def story(api: Api) -> None:
        storages = api.informers.of(kinds.STORAGE)
        for rabbit, said in (("r0", '{"gfs2":"no lvmlockd"}'), ("r1", None)):
            made = meta(
                rabbit, annotations={} if said is None else {labels.UNSUPPORTED_TYPES: said}
            )
            await api.add(kinds.STORAGE, {"metadata": made, "spec": {}})
        async with informed(api):
            by_some = filesystemtypes.is_made_by_some_only
            assert (by_some(storages, "xfs"), by_some(storages, "gfs2")) == (False, True)
            assert filesystemtypes.why_not_made(storages, "gfs2") is None
            await api.remove(kinds.STORAGE, Key("default", "r1"))
            assert (by_some(storages, "xfs"), by_some(storages, "gfs2")) == (False, False)
            assert filesystemtypes.why_not_made(storages, "xfs") is None
            assert filesystemtypes.why_not_made(storages, "gfs2") == "no lvmlockd on r0"

    alone(story)
