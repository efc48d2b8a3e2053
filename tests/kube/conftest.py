"""What the tests of the Kubernetes side share."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.clusters import NAMED, Cluster, HttpsCluster, LocalCluster
from tests.kube.named import Stay
from warren.kube.server.history import History


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of an authority and of a server's keys."""
    return tmp_path_factory.mktemp("cluster") / "pki"


@pytest.fixture(scope="session")
def stay() -> Iterator[Stay]:
    """Be a guest of the real cluster, and leave nothing there."""
    made = Stay(Path(NAMED))
    try:
        asyncio.run(made.arrive())
        yield made
    finally:
        asyncio.run(made.leave())


@pytest.fixture
def cluster(request: pytest.FixtureRequest, pki: Path) -> Cluster:
    """Return a cluster of the sort that a story is told to."""
    short = "short_history" in request.fixturenames
    match request.param:
        case "local" | "https":
            ours = LocalCluster(pki) if request.param == "local" else HttpsCluster(pki)
            if short:
                ours.history = lambda: History(max_changes=4)
            return ours
        case _:
            stay: Stay = request.getfixturevalue("stay")
            return stay.cluster()


@pytest.fixture
def short_history() -> None:
    """The cluster remembers four changes."""
