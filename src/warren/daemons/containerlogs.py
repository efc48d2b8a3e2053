"""The logs of this machine's containers, as the API server serves them."""

from pathlib import Path

from warren.base.objects import Object
from warren.kube.client import NotFound, Unavailable
from warren.node.podlogs import PodLog, PodLogs


class ContainerLogs:
    """`kube.server.logs.PodLogSource` of the files that nodes keep."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the one of `PodLogs`."""
        self._logs = PodLogs(directory)

    def open(self, pod: Object, container: str, lines: int | None) -> "ContainerLog":
        """Open what a container has printed, or so many of its last lines."""
        return ContainerLog(self._logs.open(pod, container, lines), container)


class ContainerLog:
    """What one container prints."""

    def __init__(self, log: PodLog, container: str) -> None:
        self._log = log
        self._container = container

    async def read(self) -> bytes:
        try:
            return await self._log.read()
        except FileNotFoundError as error:
            raise NotFound(str(error.strerror)) from error
        except OSError as error:
            message = f"the log of {self._container} cannot be read: {error.strerror}."
            raise Unavailable(message) from error

    def close(self) -> None:
        self._log.close()
