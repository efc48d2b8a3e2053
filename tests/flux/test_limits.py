"""Storage that takes too long, with a real broker: jobs go on without, and are let go before it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flux.site import Site, opened
from tests.flux.test_conductor import JOBDW, fatal, named
from tests.journeys.conftest import wait_for
from warren.daemons import temporaryflux
from warren.dws import tolerance
from warren.dws.jobs.abort import DRAIN_REASON

TABLES = """
[rabbit]
prerun_timeout = 3
"""


@pytest.fixture
def site(tmp_path: Path, plugins: Path) -> Iterator[Site]:
    with opened(tmp_path, plugins, fluxion=temporaryflux.has_fluxion(), tables=TABLES) as found:
        yield found


@contextmanager
def stopped(site: Site, node: str) -> Iterator[None]:
    """Have the agent of a rabbit's compute nodes do nothing, for the length of a block."""
    agent = site.cluster.agents()[node]
    os.kill(agent, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(agent, signal.SIGCONT)


def test_a_job_goes_on_without_nodes_whose_storage_is_late(site: Site) -> None:
    options = ("-N4", "-S", f"dw={JOBDW}", "-S", "dw_failure_tolerance=2")
    with stopped(site, "compute-02"):
        job = site.submit(*options, "true")
        events = site.until(job, "start")
    (lost,) = (
        event.context
        for event in named(events, "exception")
        if event.context["type"] == tolerance.EXCEPTION
    )
    assert (lost["severity"], lost["note"]) == (1, "compute-[02-03]")
    assert fatal(site.over(job)) == []


def test_a_job_is_let_go_before_storage_that_is_not_given_back(site: Site) -> None:
    site.load(**{"epilog-timeout": 1.0})
    job = site.submit("-N1", "--requires=hosts:compute-02", "-S", f"dw={JOBDW}", "sleep", "1")
    site.until(job, "start")
    with stopped(site, "compute-02"):
        events = site.until(job, "clean")
        assert fatal(events) == [("dws-epilog-timeout", "DWS epilog timed out")]
        wait_for(lambda: site.rpc("resource.status", {})["drain"])
        (drained,) = site.rpc("resource.status", {})["drain"].values()
        assert drained["reason"] == DRAIN_REASON
        wait_for(lambda: "Disabled" in site.cluster("rabbits").stdout)
    site.cluster.wait_clean()
