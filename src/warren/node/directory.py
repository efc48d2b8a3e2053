"""Plain directories as flash: no loop devices, no mkfs, real accounting, real mounts.

A volume is a directory with its owner and a record of its size. It comes into
being by one rename, and goes by one rename, so that whatever dies in the middle
leaves either a whole volume or rubbish that is not counted.
"""

import itertools
import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, ParamSpec

import msgspec

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import LUSTRE, NodeTrouble, RawVolumeAccess, Volume
from warren.journal import files
from warren.node import probing
from warren.node.flash import MountSource, out_of_space, path_component
from warren.node.threads import in_thread

RECORD: Final = "volume.json"
"""The file of a volume that says how large it is. A directory without one is no volume."""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is written down of a volume."""

    size: int
    """Bytes."""
    file_system: str = ""


class DirectoryFlash:
    """`Flash` whose volumes are directories under `root`, in a directory for each rabbit."""

    def __init__(self, root: Path, capacity: int) -> None:
        """`capacity` is in bytes, of each rabbit."""
        self._root = root
        self._lock = threading.Lock()
        """Held while space is looked for and taken: each action has a thread of its own."""
        self._capacity = capacity

    async def capacity(self, rabbit: str) -> int:
        await probing.check(probing.probe_directory, self._root / path_component(rabbit))
        return self._capacity

    async def raw_volume_access(self, rabbit: str) -> RawVolumeAccess:
        return RawVolumeAccess.NONE

    async def unsupported_types(self, rabbit: str) -> Mapping[str, str]:
        return {kind: "volumes are directories" for kind in ("raw", LUSTRE)}

    async def lnet_nid(self) -> str:
        return ""

    async def make(self, volume: Volume) -> None:
        if volume.file_system == "raw":
            raise NodeTrouble(
                f"{volume.rabbit} makes volumes as directories: a raw one is a block device",
                fatal=True,
            )
        await _run_in_thread(self._make, volume)

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        await _run_in_thread(self._release, rabbit, name)

    async def source(self, rabbit: str, name: str, file_system: str) -> MountSource:
        directory = self.files_path(rabbit, name)
        if not directory.is_dir():
            raise NodeTrouble(f"{rabbit}/{name} does not exist")
        return MountSource(("--bind", str(directory)))

    def volumes(self, rabbit: str) -> dict[str, int]:
        try:
            entries = list((self._root / rabbit).iterdir())
        except FileNotFoundError:
            return {}
        sizes = {}
        for entry in entries:
            record = None if entry.name.startswith(".") else _read_record(entry)
            if record is not None:
                sizes[entry.name] = record.size
        return sizes

    def files_path(self, rabbit: str, name: str) -> Path:
        """Return where a volume's files are."""
        return self._volume_path(rabbit, name) / "files"

    def _volume_path(self, rabbit: str, name: str) -> Path:
        return self._root / path_component(rabbit) / path_component(name)

    def _make(self, volume: Volume) -> None:
        with self._lock:
            self._make_locked(volume)

    def _make_locked(self, volume: Volume) -> None:
        final = self._volume_path(volume.rabbit, volume.name)
        if final.exists():
            return
        free_bytes = self._capacity - sum(self.volumes(volume.rabbit).values())
        if volume.size > free_bytes:
            raise out_of_space(volume.rabbit, free_bytes, volume.size)
        unfinished = self._root / volume.rabbit / f".new-{volume.name}"
        _remove(unfinished)
        files_directory = unfinished / "files"
        files_directory.mkdir(parents=True)
        files_directory.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(files_directory, volume.userid, volume.groupid)
        record = Record(size=volume.size, file_system=volume.file_system)
        # On the disk before its name is: else a power cut may leave a volume without a size.
        files.replace(unfinished / RECORD, msgspec.json.encode(record))
        unfinished.rename(final)
        for directory in (final.parent, self._root):
            files.sync_directory(directory)

    def _release(self, rabbit: str, name: str) -> None:
        """Free the space; the files go after it, with what earlier tries have left.

        Users may have so many files that it takes long: nothing is removed under the lock.
        """
        final = self._volume_path(rabbit, name)
        with self._lock, suppress(FileNotFoundError):
            final.rename(_unused_name(final))
            files.sync_directory(final.parent)
        for rubbish in _released(final):
            _remove(rubbish)


def _unused_name(volume: Path) -> Path:
    """Return a name for a volume that is released: no release has left anything there."""
    old = volume.with_name(f".old-{volume.name}")
    names = itertools.chain([old], (old.with_name(f"{old.name}-{n}") for n in itertools.count(1)))
    return next(name for name in names if not name.exists())


def _released(volume: Path) -> list[Path]:
    """Return all that a volume, and earlier ones of its name, were renamed to by releases.

    What another volume was renamed to, whose name ends like that, is no less to be removed.
    """
    name = re.compile(rf"\.old-{re.escape(volume.name)}(-[0-9]+)?")
    with suppress(FileNotFoundError):
        return [entry for entry in volume.parent.iterdir() if name.fullmatch(entry.name)]
    return []


def _read_record(volume: Path) -> Record | None:
    """Return what is written down of a volume; None where it is none. Raises NodeTrouble."""
    path = volume / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (FileNotFoundError, NotADirectoryError):
        return None  # as lost+found
    except msgspec.MsgspecError as error:
        raise NodeTrouble(
            f"{path} does not say how large its volume is ({error}): write "
            f'{{"size": BYTES}} into it, or remove {volume} with all that is in it'
        ) from error


def _remove(tree: Path) -> None:
    """Remove a tree if it is there, whatever its user has forbidden, and however deep it is.

    Raises NodeTrouble.
    """
    if not tree.exists():
        return
    if os.geteuid() != 0:
        # Root needs no leave, and might be led through a link by a process that still writes there.
        # Directories alone: a file may have another name elsewhere. Each before it is gone into.
        inaccessible = ("-type", "d", "!", "-perm", "-u=rwx")
        _run_quietly(
            "find", str(tree), "-xdev", *inaccessible, "-execdir", "chmod", "u+rwx", "{}", ";"
        )
    _run_quietly("rm", "-rf", "--one-file-system", "--", str(tree))
    if tree.exists():
        raise NodeTrouble(f"{tree} cannot be removed: see what rm -rf says of it")


def _run_quietly(*argv: str) -> None:
    # With a PATH of ours: find refuses to run what one with relative entries may lead to.
    environment, nothing = {"PATH": os.defpath}, subprocess.DEVNULL
    subprocess.run(argv, env=environment, stdout=nothing, stderr=nothing, check=False)


P = ParamSpec("P")


async def _run_in_thread(action: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do an action on the file system; what the system refuses is the node's trouble."""
    try:
        await in_thread(action, *args, **kwargs)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise NodeTrouble(f"{where}{error.strerror}") from error
