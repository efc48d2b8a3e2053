"""Bytes between the HTTPS client and the API: writers and informers outlive what befalls them."""

import asyncio
import itertools
import random
from pathlib import Path

import pytest

from tests.faults.wire import Blow, Box, Hushed, Reset, Slow, Turned, through
from tests.journal.running import really
from tests.kube.clusters import alongside, change, eventually, key, remove, stored, workflow
from warren.base.clock import SystemClock
from warren.base.errors import Retryable
from warren.base.objects import Create, Write, key_of
from warren.dws.kinds import WORKFLOW
from warren.kube.client import Client
from warren.kube.informer import Informer
from warren.kube.perform import perform
from warren.kube.server.store import Store

BLOWS: dict[str, Blow] = {
    "429": Turned("429 Too Many Requests", "Retry-After: 0\r\n"),
    "503": Turned("503 Service Unavailable"),
    "500": Turned("500 Internal Server Error"),
    "reset before": Reset(),
    "reset after": Reset(0),
    "cut in the head": Reset(40),
    "cut in the body": Reset(400),
    "slow": Slow(),
}


async def insist(client: Client, *writes: Write) -> None:
    """Do writes as reconcilers do: again, until there is nothing more to wait for."""
    while True:
        try:
            await perform(client, writes)
            return
        except Retryable as error:
            await asyncio.sleep(error.delay)


def known(informer: Informer, store: Store) -> bool:
    found = {key_of(obj): obj for obj in informer.all()}
    return found == {key_of(obj): obj for obj in store.list(WORKFLOW).items}


@pytest.mark.parametrize("blow", BLOWS.values(), ids=BLOWS)
@really
async def test_a_write_is_done_in_the_end(pki: Path, blow: Blow) -> None:
    box = Box({verb: [blow] * 2 for verb in ("POST", "PATCH", "DELETE")})
    async with stored(clock=SystemClock()) as store, through(box, store, pki) as client:
        await insist(client, Create(kind=WORKFLOW, object=workflow("w")))
        made = store.get(WORKFLOW, key("w"))
        await insist(client, change(WORKFLOW, made, {"spec": {"jobID": 7}}))
        changed = store.get(WORKFLOW, key("w"))
        await insist(client, remove(WORKFLOW, made))

        assert changed["metadata"]["uid"] == made["metadata"]["uid"]
        assert changed["spec"] == {"desiredState": "Proposal", "jobID": 7}
        assert store.list(WORKFLOW).items == []
        assert all(len(waiting) < 2 for waiting in box.blows.values())


@really
async def test_an_informer_knows_the_truth_after_whatever_has_befallen_it(pki: Path) -> None:
    box = Box()
    async with stored(clock=SystemClock()) as store, through(box, store, pki) as client:
        informer = Informer(client, WORKFLOW)
        async with alongside(informer.run()):
            for number, blow in enumerate([*BLOWS.values(), Hushed(300)]):
                # A list of which nothing more comes ends with the patience of the client.
                lists: list[Blow] = [] if isinstance(blow, Hushed) else [blow]
                box.blows = {"GET": lists, "WATCH": [blow]}
                # The watch that is open has not heard of the blow: it falls on the next one.
                for again in itertools.count():
                    await store.create(WORKFLOW, workflow(f"w-{number}-{again}"))
                    await eventually(lambda: known(informer, store))
                    if not box.blows["WATCH"]:
                        break
                    store._history.end_watches((WORKFLOW.group, WORKFLOW.plural))
                await store.delete(remove(WORKFLOW, workflow(f"w-{number}-0")))
                await eventually(lambda: known(informer, store))
                # What befell a watch is followed by a list, after a pause.
                await eventually(lambda: not any(box.blows.values()))
                await eventually(lambda: known(informer, store))


@really
async def test_writers_and_informers_agree_whatever_befalls_them(pki: Path) -> None:
    dice = random.Random(11)
    sorts = list(BLOWS.values())
    verbs = ("GET", "POST", "PATCH", "DELETE", "WATCH")
    box = Box({verb: [dice.choice(sorts) for _ in range(8)] for verb in verbs})
    async with stored(clock=SystemClock()) as store, through(box, store, pki) as client:
        informer = Informer(client, WORKFLOW)
        async with alongside(informer.run()):
            for number in range(8):
                obj = workflow(f"w-{number}")
                await insist(
                    client,
                    Create(kind=WORKFLOW, object=obj),
                    change(WORKFLOW, obj, {"spec": {"jobID": number}}),
                )
                if number % 2:
                    await insist(client, remove(WORKFLOW, obj))
            await eventually(lambda: known(informer, store))

            jobs = {obj["spec"]["jobID"] for obj in informer.all()}
            assert jobs == {0, 2, 4, 6}
