"""What the tests of the Kubernetes side share."""

from pathlib import Path

import pytest

from warren.kube.server import store


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the directory of an authority and of a server's keys."""
    return tmp_path_factory.mktemp("cluster") / "pki"


@pytest.fixture
def short_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is made after this remembers four changes."""
    monkeypatch.setattr(store, "_HISTORY", 4)


@pytest.fixture
def short_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher may fall five changes behind."""
    monkeypatch.setattr(store, "_BACKLOG", 5)
