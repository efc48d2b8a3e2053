"""The state directory: everything that one cluster on one machine keeps, and where."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from warren.base.errors import UserMistake

VARIABLE: Final = "WARREN_STATEDIR"


class StateDir:
    """The paths below one directory. Making one touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def site(self) -> Path:
        return self.path / "site.json"

    @property
    def config(self) -> Path:
        """The instance's configuration, as `warren up` was last given one."""
        return self.path / "config.toml"

    @property
    def objects(self) -> Path:
        return self.path / "objects.db"

    @property
    def jobs(self) -> Path:
        return self.path / "jobs.db"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    def user(self, name: str) -> Path:
        """The kubeconfig of one of the cluster's own users."""
        return self.path / "users" / f"{name.rpartition(':')[2]}.kubeconfig"

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def socket(self) -> Path:
        """The instance's socket."""
        return self.path / "local"

    @property
    def uri(self) -> str:
        """The instance's address, which all its tasks carry in FLUX_URI."""
        return f"local://{self.socket}"

    @property
    def mark(self) -> tuple[str, str]:
        """What all processes of the cluster have in their environment: a name and its value."""
        return "WARREN_CLUSTER", str(self.path)

    @property
    def logs(self) -> Path:
        return self.path / "log"

    @property
    def flash(self) -> Path:
        """The rabbits' volumes."""
        return self.path / "flash"

    @property
    def nodes(self) -> Path:
        """What each emulated node keeps."""
        return self.path / "nodes"

    @property
    def mounts(self) -> Path:
        """Where jobs find their storage, on every node."""
        return self.path / "nnf"

    @property
    def running(self) -> Path:
        """What the running cluster says of itself, while it is ready."""
        return self.path / "up.json"

    @property
    def lock(self) -> Path:
        """Held by `warren up`."""
        return self.path / "up.lock"

    @property
    def shells_lock(self) -> Path:
        """Held by the parent of the shells, with its process id in it."""
        return self.path / "shells.lock"

    def prepare(self) -> None:
        """Make the directory, for its owner alone. Raises UserMistake where that cannot be."""
        try:
            own = (self.logs, self.flash, self.nodes, self.mounts, self.path / "users")
            for directory in (self.path, *own):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UserMistake(
                f"The state directory {self.path} cannot be made: {error.strerror}."
            ) from error

    def status(self) -> dict[str, Any] | None:
        """Give what the running cluster says of itself; None if none is running and ready."""
        process = holder(self.lock)
        try:
            found: dict[str, Any] = json.loads(self.running.read_bytes())
        except (OSError, ValueError):
            return None
        # A killed predecessor may have said it: its successor takes that back a moment later.
        return found if process is not None and found.get("pid") == process else None

    def announce(self, **facts: Any) -> None:
        """Say that the cluster is ready, and what it is."""
        unfinished = self.running.with_suffix(".new")
        unfinished.write_text(json.dumps(facts))
        unfinished.rename(self.running)


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a lock for the length of a block, with our process id in it.

    Raises BlockingIOError if another process holds it. The kernel lets go when we die.
    """
    opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(opened, 0)
        os.write(opened, str(os.getpid()).encode())
        yield
    finally:
        os.close(opened)


def holder(lock: Path) -> int | None:
    """Give the process that holds a lock; None if it is free."""
    try:
        opened = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(opened, 32)
        return int(text) if text.isdigit() else 0
    finally:
        os.close(opened)
    return None
