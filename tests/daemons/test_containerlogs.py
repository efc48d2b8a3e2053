"""What containers have printed, in the words of the API server's port."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from tests.node.test_podlogs import pod
from warren.daemons.containerlogs import ContainerLogs
from warren.kube.client import NotFound, Unavailable
from warren.kube.server.logs import PodLogSource


def read(directory: Path) -> bytes:
    logs: PodLogSource = ContainerLogs(directory)
    with closing(logs.open(pod(), "app", None)) as log:
        return asyncio.run(log.read())


def test_what_a_container_has_printed_is_read(tmp_path: Path) -> None:
    place = tmp_path / "rabbit-0" / "uid"
    place.mkdir(parents=True)
    (place / "app.log").write_bytes(b"it\n")
    assert read(tmp_path) == b"it\n"


def test_a_pod_of_which_nothing_is_here_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing is here of what the pod uid on 'rabbit-0' has"):
        read(tmp_path)


def test_a_log_that_cannot_be_read_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    (tmp_path / "rabbit-0" / "uid").mkdir(parents=True)
    monkeypatch.setattr("warren.node.podlogs.open_to_read", broken)
    with pytest.raises(Unavailable, match=r"the log of app cannot be read: Input/output error\."):
        read(tmp_path)
