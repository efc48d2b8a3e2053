"""Metrics: what Prometheus is told, by the names that are known in the field."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.logs import capture_logs
from tests.journal.running import virtually
from tests.kube.clusters import alongside, change, key, remove, stored, workflow
from warren.base.errors import Retryable
from warren.base.objects import Key, Kind, Object
from warren.dws.kinds import COMPUTES, WORKFLOW
from warren.kube import client as port
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.metrics import Metrics, exposition
from warren.kube.queue import WorkQueue
from warren.kube.runtime import Reconciler
from warren.kube.server.local import LocalClient
from warren.kube.server.store import Store


class Page:
    """What a scrape shows."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return a sample as a scraper reads it."""
        found = [
            sample.value
            for family in text_string_to_metric_families(exposition(self.registry).decode())
            for sample in family.samples
            if (sample.name, sample.labels) == (name, labels)
        ]
        assert len(found) <= 1
        return found[0] if found else None


async def passes(number: int) -> float | None:
    """Pass number 1 asks for another one, 2 is put off, 3 fails, and 4 succeeds."""
    await asyncio.sleep(2)
    match number:
        case 1:
            return 10.0
        case 2:
            raise Retryable("not now")
        case 3:
            raise KeyError("a bug")
    return None


@virtually
async def test_passes_are_counted_by_how_they_ended() -> None:
    page, made = Page(), 0

    async def act(name: str) -> float | None:
        nonlocal made
        made += 1
        return await passes(made)

    reconciler = Reconciler[str]("test", act, workers=3)
    page.metrics.register_reconciler(reconciler)
    assert page.value("controller_runtime_reconcile_total", controller="test", result="error") == 0
    reconciler.add("a")
    with capture_logs():
        async with alongside(reconciler.run()):
            await asyncio.sleep(1000)
    for result in ("success", "requeue_after", "requeue", "error"):
        labels = {"controller": "test", "result": result}
        assert page.value("controller_runtime_reconcile_total", **labels) == 1
    assert page.value("controller_runtime_reconcile_errors_total", controller="test") == 1
    assert page.value("controller_runtime_reconcile_time_seconds_sum", controller="test") == 8
    assert page.value("controller_runtime_reconcile_time_seconds_count", controller="test") == 4
    assert page.value("controller_runtime_max_concurrent_reconciles", controller="test") == 3
    assert page.value("workqueue_adds_total", name="test") == 4
    assert page.value("workqueue_retries_total", name="test") == 2


@virtually
async def test_a_queue_shows_what_waits_and_for_how_long() -> None:
    page = Page()

    async def act(name: str) -> float | None:
        await asyncio.sleep(20)
        return None

    queue = WorkQueue[str](jitter=lambda: 0.0)
    reconciler = Reconciler[str]("test", act, workers=1, queue=queue)
    page.metrics.register_reconciler(reconciler)
    for name in "abc":
        reconciler.add(name)
    async with alongside(reconciler.run()):
        await asyncio.sleep(25)
        queue.add_after("d", 100)
        shown = {
            name: page.value(name, name="test")
            for name in (
                "workqueue_depth",
                "workqueue_longest_wait_seconds",
                "workqueue_longest_running_processor_seconds",
                "workqueue_delayed",
                "workqueue_queue_duration_seconds_sum",
                "workqueue_queue_duration_seconds_count",
            )
        }
        assert list(shown.values()) == [1, 25, 5, 1, 20, 2]
        assert page.value("controller_runtime_active_workers", controller="test") == 1


@virtually
async def test_informers_show_how_far_they_are_also_those_that_come_later() -> None:
    page = Page()
    async with stored() as store:
        informers = Informers(LocalClient(store), namespace="aside")
        page.metrics.register_informers(informers)
        informers.of(WORKFLOW)
        labels = {"name": str(WORKFLOW), "namespace": "aside"}
        assert page.value("informer_synced", **labels) == 0
        assert page.value("informer_silence_seconds", **labels) == float("inf")
        assert page.value("reflector_last_resource_version", **labels) is None
        informers.of(COMPUTES)
        async with alongside(informers.run()):
            await informers.wait_synced()
            made = await store.create(WORKFLOW, workflow(namespace="aside"))
            await asyncio.sleep(5)
            assert page.value("informer_synced", **labels) == 1
            assert page.value("informer_silence_seconds", **labels) == 5
            assert page.value("reflector_last_resource_version", **labels) == int(
                made["metadata"]["resourceVersion"]
            )
            assert page.value("reflector_lists_total", **labels) == 1
            assert page.value("reflector_watches_total", **labels) == 1
            assert page.value("informer_synced", name=str(COMPUTES), namespace="aside") == 1


@virtually
async def test_it_shows_who_leads() -> None:
    page = Page()
    told = page.metrics.leading_callback(Key("default", "controllers"))
    shown = []
    for leads in (None, True, False):
        if leads is not None:
            told(leads)
        shown.append(page.value("leader_election_master_status", name="default/controllers"))
    assert shown == [0, 1, 0]


# Requests


class SlowClient(LocalClient):
    """Takes two seconds to get something, and may refuse it."""

    error: Exception | None = None

    async def get(self, kind: Kind, key: Key) -> Object:
        await asyncio.sleep(2)
        if self.error is not None:
            raise self.error
        return await super().get(kind, key)


@virtually
async def test_requests_are_counted_by_method_and_answer_and_done_all_the_same() -> None:
    page = Page()
    async with stored() as store:
        client = page.metrics.counting_client(SlowClient(store))
        made = await client.create(WORKFLOW, workflow())
        assert await client.get(WORKFLOW, key("w")) == made
        changed = await client.patch(change(WORKFLOW, made, {"spec": {"jobID": 1}}))
        assert (await client.list(WORKFLOW, "default")).items == [changed]
        assert (await client.list(WORKFLOW, labels={"a": "b"})).items == []
        await client.delete(remove(WORKFLOW, made))
        assert store.list(WORKFLOW).items == []

    counted = {"POST": ("201", 1), "GET": ("200", 3), "PATCH": ("200", 1), "DELETE": ("200", 1)}
    for method, (code, number) in counted.items():
        assert page.value("rest_client_requests_total", method=method, code=code) == number
    for verb, number in {"POST": 1, "GET": 1, "LIST": 2, "PATCH": 1, "DELETE": 1}.items():
        assert page.value("rest_client_request_duration_seconds_count", verb=verb) == number
    assert page.value("rest_client_request_duration_seconds_sum", verb="GET") == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (port.NotFound("x"), "404"),
        (port.AlreadyExists("x"), "409"),
        (port.Conflict("x"), "409"),
        (port.Expired("x"), "410"),
        (port.Refused("x"), "4xx"),
        (port.Unavailable("x"), "<error>"),
    ],
    ids=repr,
)
@virtually
async def test_errors_are_counted_as_what_they_are_on_the_wire(error: Exception, code: str) -> None:
    page = Page()
    async with stored() as store:
        slow = SlowClient(store)
        slow.error = error
        with pytest.raises(type(error)) as caught:
            await page.metrics.counting_client(slow).get(WORKFLOW, key("w"))
    assert caught.value is error
    assert page.value("rest_client_requests_total", method="GET", code=code) == 1
    assert page.value("rest_client_request_duration_seconds_sum", verb="GET") == 2


async def _left(client: Client, store: Store) -> None:
    watch = client.watch(WORKFLOW, "1")
    assert (await anext(watch)).object["metadata"]["name"] == "w"
    await watch.aclose()  # type: ignore[attr-defined]


async def _expired(client: Client, store: Store) -> None:
    with pytest.raises(port.Expired):
        async for _ in client.watch(WORKFLOW, "1"):
            pass


@pytest.mark.parametrize(("action", "code"), [(_left, "200"), (_expired, "410")])
@virtually
async def test_a_watch_is_counted_when_it_is_over_and_its_length_is_no_latency(
    action: Callable[[Client, Store], Awaitable[None]], code: str
) -> None:
    page = Page()
    async with stored() as store:

        class Old(LocalClient):
            async def watch(self, *arguments: object) -> object:  # type: ignore[override]
                raise port.Expired("too old")
                yield

        inner = Old(store) if code == "410" else LocalClient(store)
        await store.create(WORKFLOW, workflow())
        await action(page.metrics.counting_client(inner), store)
    assert page.value("rest_client_requests_total", method="GET", code=code) == 1
    assert page.value("rest_client_request_duration_seconds_count", verb="GET") is None


def test_a_registry_shows_only_what_was_put_into_it() -> None:
    one, two = Page(), Page()
    one.metrics.leading_callback(Key("", "one"))
    assert two.value("leader_election_master_status", name="one") is None
    assert exposition(CollectorRegistry()) == b""


def test_a_process_without_metrics_does_not_load_what_they_need() -> None:
    """Every command would pay for it."""
    modules = "warren.kube.runtime, warren.kube.informer, warren.kube.leader"
    code = f"import sys, {modules}; sys.exit('prometheus_client' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
