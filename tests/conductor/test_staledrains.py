"""Drains that jobs have left: looked at where a site wants that, and from when it does."""

from tests.conductor.jobs import Jobs
from tests.controllers.alone import Api, alone, caught_up, running
from tests.dws.builders import meta
from warren.conductor.staledrains import StaleDrains
from warren.dws import kinds
from warren.dws.jobs import abort

UNDRAINED = ("undrain", ("n0", "n1"), abort.DRAIN_REASON)


async def with_nodes(api: Api) -> None:
    nodes = [{"name": name, "status": "Ready"} for name in ("n0", "n1")]
    rabbits = [{"type": "Rabbit", "name": "r0", "computesAccess": nodes}]
    key = kinds.CONFIGURATION_KEY
    spec = {"storageNodes": rabbits, "computeNodes": [{"name": each["name"]} for each in nodes]}
    await api.add(
        kinds.SYSTEM_CONFIGURATION, {"metadata": meta(key.name, key.namespace), "spec": spec}
    )
    await caught_up()


def test_a_site_that_wants_it_from_now_on_has_them_looked_at_once() -> None:
    async def main(api: Api) -> None:
        jobs = Jobs()
        drains = StaleDrains(api.informers, jobs)
        await with_nodes(api)
        async with running(api, drains.reconciler.run()):
            drains.enqueue()
            await caught_up()
            assert jobs.asked == []

            drains.configure(enabled=True)
            await caught_up()
            assert jobs.asked == [UNDRAINED]
            drains.configure(enabled=True)
            await caught_up()
            assert jobs.asked == [UNDRAINED]

            drains.configure(enabled=False)
            drains.enqueue()
            await caught_up()
            assert jobs.asked == [UNDRAINED]
            drains.configure(enabled=True)
            await caught_up()
            assert jobs.asked == [UNDRAINED] * 2

    alone(main)


def test_no_node_returns_before_it_is_known_which_jobs_there_are() -> None:
    async def main(api: Api) -> None:
        jobs = Jobs()
        jobs.synced.clear()
        drains = StaleDrains(api.informers, jobs, enabled=True)
        await with_nodes(api)
        async with running(api, drains.reconciler.run()):
            drains.enqueue()
            await caught_up()
            assert jobs.asked == []
            jobs.synced.set()
            await caught_up()
            assert jobs.asked == [UNDRAINED]

    alone(main)
