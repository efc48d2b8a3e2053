"""The state directory: everything that one cluster on one machine keeps, and where.

All of it is its owner's alone. Where guests are let in, they may go through the directory to
the instance's socket, and to what jobs have mounted: they list nothing, and read nothing.
"""

import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.journal import files, sqlite
from warren.rpc import sockets

STATEDIR_VARIABLE: Final = "WARREN_STATEDIR"
"""The environment variable by which users name the directory."""

_PROCESS_ID_WIDTH: Final = 10
"""Characters of a process id in a lock."""


class StateDir:
    """The paths below one directory. Making one touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def shape_file(self) -> Path:
        # The name that it has had from the first: state directories outlive versions.
        return self.path / "site.json"

    @property
    def config_file(self) -> Path:
        """The instance's configuration, as `warren up` was last given one."""
        return self.path / "config.toml"

    @property
    def objects_journal(self) -> Path:
        return self.path / "objects.db"

    @property
    def jobs_journal(self) -> Path:
        return self.path / "jobs.db"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    def user_kubeconfig(self, name: str) -> Path:
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
    def secret_file(self) -> Path:
        """A secret that only the owner can know."""
        return self.path / "secret"

    @property
    def process_mark(self) -> tuple[str, str]:
        """What all processes of the cluster have in their environment: a name and its value.

        Tasks do not have it. It is a secret, since what has it is ended with the cluster.
        Raises OSError for a directory that was never prepared.
        """
        return "WARREN_CLUSTER", f"{self.path}#{self.secret_file.read_text()}"

    @property
    def tmp(self) -> Path:
        """The directories that jobs have for as long as they run."""
        return self.path / "tmp"

    @property
    def logs(self) -> Path:
        return self.path / "log"

    @property
    def flash(self) -> Path:
        """The rabbits' volumes."""
        return self.path / "flash"

    @property
    def images(self) -> Path:
        """Images that the owner has put there: a directory of OCI layouts."""
        return self.path / "images"

    @property
    def image_cache(self) -> Path:
        """Images that were fetched, and as containers have them."""
        return self.path / "image-cache"

    @property
    def pods(self) -> Path:
        """The pods of each rabbit, with what they have printed."""
        return self.path / "pods"

    @property
    def hosts_file(self) -> Path:
        """What /etc/hosts says on the nodes."""
        return self.path / "hosts"

    @property
    def offload_port_file(self) -> Path:
        """The file with the port at which running jobs ask for copies."""
        return self.path / "copy-offload.port"

    @property
    def offload_certificate_file(self) -> Path:
        """The certificate of the authority by which they know whom they ask."""
        return self.path / "copy-offload.pem"

    @property
    def nodes(self) -> Path:
        """What each emulated node keeps."""
        return self.path / "nodes"

    @property
    def mounts(self) -> Path:
        """Where jobs find their storage, on every node."""
        return self.path / "nnf"

    @property
    def status_file(self) -> Path:
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

    @property
    def rundir_record(self) -> Path:
        """Names the directory of jobs' directories that was mounted, wherever it is."""
        return self.path / "rundir"

    @property
    def owner(self) -> int | None:
        """The user whose directory it is; None where there is none, or it cannot be seen."""
        try:
            return self.path.stat().st_uid
        except OSError:
            return None

    @property
    def is_new(self) -> bool:
        """Whether nothing says yet what the cluster is."""
        return not os.path.exists(self.shape_file)

    def prepare(self) -> None:
        """Make the directory, for its owner alone. Raises UserMistake where that cannot be."""
        self.check_owner()
        try:
            own = (self.logs, self.flash, self.nodes, self.mounts, self.path / "users")
            for_pods = (self.pods, self.images, self.image_cache)
            for directory in (self.path, *own, *for_pods):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.secret_file.exists():
                files.replace(self.secret_file, secrets.token_hex().encode())
        except OSError as error:
            raise UserMistake(
                f"The state directory {self.path} cannot be made: {error.filename}: "
                f"{error.strerror}."
            ) from error

    def check_owner(self) -> None:
        """Raise UserMistake for another user's directory, which only root may work on."""
        if self.owner not in (None, os.geteuid()) and os.geteuid() != 0:
            raise UserMistake(
                f"The state directory {self.path} is user {self.owner}'s, who alone may do this: "
                f"name another directory with --statedir or {STATEDIR_VARIABLE}."
            )

    def check_complete(self) -> None:
        """Raise UserMistake where it is not new, and does not say any more what the cluster is.

        Also where the lock of the shells cannot be held: their parent could not tell the user.
        """
        if self.shells_lock.is_dir():
            raise UserMistake(f"{self.shells_lock} is a directory, and is to be a file: remove it.")
        if not self.shape_file.exists() and any(
            map(sqlite.was_made, (self.objects_journal, self.jobs_journal))
        ):
            raise UserMistake(
                f"{self.shape_file} is missing, and the state directory is not new: restore it "
                "from a copy, or begin anew with another state directory."
            )

    def set_guest_access(self, *, guests: bool) -> None:
        """Allow other users the way to the socket, or not. Raises UserMistake where that fails.

        May be repeated, also when it was otherwise before.
        """
        if not guests:
            self.path.chmod(0o700)
            return
        for parent in self.path.parents:
            if not parent.stat().st_mode & stat.S_IXOTH:
                raise UserMistake(
                    f"Guests cannot reach {self.path}: {parent} is closed to them. Choose another "
                    "state directory, or do not set access.allow-guest-user."
                )
        # What is made later is made private; this is for what an older version has left.
        for entry in self.path.iterdir():
            mode = entry.lstat().st_mode
            if entry == self.tmp:
                continue  # jobs of guests have their directories there
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                entry.chmod(stat.S_IMODE(mode) & 0o700)
        self.path.chmod(0o711)

    @property
    def is_closed(self) -> bool:
        """Whether this user may not even ask whether a cluster runs."""
        try:
            self.status_file.stat()
        except PermissionError:
            return True
        except OSError:
            pass
        return False

    def status(self) -> dict[str, Any] | None:
        """Return what the running cluster says of itself; None if none is running and ready.

        A guest is told nothing but that it runs.
        """
        try:
            status: dict[str, Any] = json.loads(self.status_file.read_bytes())
        except PermissionError:
            return {} if self._answers() else None
        except (OSError, ValueError):
            return None
        holder = lock_holder(self.lock)
        # A killed predecessor may have said it: its successor takes that back a moment later.
        return status if holder is not None and status.get("pid") == holder else None

    def _answers(self) -> bool:
        try:
            sockets.connect(self.socket).close()
        except OSError:
            return False
        return True

    def announce(self, **facts: Any) -> None:
        """Write down that the cluster is ready, and what it is."""
        files.replace(self.status_file, json.dumps(facts).encode())


@contextmanager
def private_umask() -> Iterator[None]:
    """Restrict what is made in a block to this user, by the umask."""
    previous_umask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(previous_umask)


@contextmanager
def hold_lock(lock: Path) -> Iterator[int]:
    """Hold a lock for the length of a block, with our process id in it; return its descriptor.

    Raises BlockingIOError if another process holds it. The kernel lets go when we die, and
    all that have inherited the descriptor.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Not emptied first: on a full disk there would be no room for it again.
        write_lock_holder(descriptor)
        os.ftruncate(descriptor, _PROCESS_ID_WIDTH)
        yield descriptor
    finally:
        os.close(descriptor)


def write_lock_holder(descriptor: int) -> None:
    """Write into a lock that this process holds it, in place of the last holder."""
    # In one piece: it is read at any time.
    os.pwrite(descriptor, f"{os.getpid():<{_PROCESS_ID_WIDTH}}".encode(), 0)


def lock_holder(lock: Path) -> int | None:
    """Return the process that holds a lock; None if it is free."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(descriptor, 32).strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(descriptor)
    return None
