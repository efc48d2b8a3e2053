"""What the tests of the Kubernetes side share."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.clusters import NAMED, Cluster, HttpsCluster, LocalCluster
from tests.kube.named import Stay
from warren.kube.server import history


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the directory of an authority and of a server's keys."""
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
    """Give a cluster of the sort that a story is told to."""
    match request.param:
        case "local":
            return LocalCluster(pki)
        case "https":
            return HttpsCluster(pki)
        case _:
            stay: Stay = request.getfixturevalue("stay")
            return stay.cluster()


@pytest.fixture
def short_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is made after this remembers four changes."""
    monkeypatch.setattr(history, "LENGTH", 4)


@pytest.fixture
def short_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher may fall five changes behind."""
    monkeypatch.setattr(history, "BACKLOG", 5)
