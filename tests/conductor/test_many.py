"""As many jobs with storage at a time as there are in a long queue: none waits for good."""

import asyncio
from collections.abc import Callable

from benchmarks.conducting import JOB, SITE, Drivers, Manager
from msgspec.structs import replace

from tests.conductor.jobs import Jobs
from tests.controllers.alone import Api, alone, running
from tests.harness import virtual
from tests.harness.extent import extent
from tests.kube.clusters import alongside
from warren.base.bytesize import GIB
from warren.conductor.conductor import Conductor
from warren.daemons import apiserver
from warren.daemons.rungroup import INDEXES
from warren.dws import kinds
from warren.dws.binding import Phase
from warren.journal import MemoryJournal
from warren.kube.informer import Informers
from warren.kube.server.local import LocalClient

MANY = extent("WARREN_MANY_WORKFLOWS", usual=750, everything=10_000)


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - it takes no time
        await asyncio.sleep(1)


def test_hundreds_of_jobs_at_a_time_have_their_storage_and_give_it_back() -> None:
    """They all run at the same time, and all end at once."""

    async def main() -> None:
        clock = virtual.VirtualClock()
        embedded = apiserver.build(MemoryJournal(), clock)
        async with alongside(embedded.run()):
            await embedded.create_defaults()
            client = LocalClient(embedded.store)
            await apiserver.establish(client, SITE)
            informers = Informers(client, indexes=INDEXES)
            manager = Manager(lambda job: False)
            conductor = Conductor(client, informers, manager, clock, GIB)
            drivers = Drivers(client, informers)
            async with (
                alongside(informers.run()),
                alongside(conductor.run()),
                alongside(drivers.reconciler.run()),
            ):
                await informers.wait_synced()
                for number in range(1, MANY + 1):
                    manager.put(replace(JOB, id=number))
                await until(lambda: len(manager.running) == MANY)
                assert sum(1 for _ in embedded.store.objects_of(kinds.WORKFLOW)) == MANY
                for number in range(1, MANY + 1):
                    manager.put(replace(manager.known[number], phase=Phase.ENDING))
                await until(lambda: len(manager.over) == MANY)
                await until(lambda: not list(embedded.store.objects_of(kinds.WORKFLOW)))

    virtual.run(main())


def test_a_users_many_jobs_do_not_keep_another_users_job_waiting() -> None:
    async def main(api: Api) -> None:
        many = [replace(JOB, id=number, userid=1001) for number in range(1, 101)]
        manager = Jobs(*many, replace(JOB, id=101, userid=1002))
        conductor = Conductor(api, api.informers, manager, api.clock, GIB)
        async with running(api, conductor.run()):
            made = [key.name for _, kind, key in api.written if kind == kinds.WORKFLOW]
            assert len(made) == 101
            # The conductor works at eight at a time.
            assert manager.binding.workflow_key(101).name in made[:8]

    alone(main)
