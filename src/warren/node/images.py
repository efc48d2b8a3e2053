"""Images of containers: found in a directory of OCI layouts or in a registry, and unpacked once.

A reference is `NAME:TAG`. An admin puts images into a directory DIR, where each `DIR/NAME` is an
OCI layout, as `skopeo copy ... oci:DIR/NAME:TAG` makes it. Other images are fetched by skopeo(1)
into layouts of the same form, elsewhere. umoci(1) unpacks them. An unpacked image is named by the
digest of its manifest, so that a tag that has moved is noticed; it is whole, or not there.
"""

import asyncio
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from warren.dws.node import NodeTrouble
from warren.dws.pods.plans import Image
from warren.node import commands
from warren.node.threads import in_thread

_PULL_SECONDS: Final = 600.0
_UNPACK_SECONDS: Final = 300.0

_MOST_AT_ONCE: Final = 4
"""How many images are fetched or unpacked at a time."""

_REFERENCE_PATTERN: Final = re.compile(
    r"(?P<name>[a-z0-9]+(?:[._:/-]+[a-zA-Z0-9]+)*?)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
)
_WORK_DIRECTORY_PATTERN: Final = re.compile(r"\.(\d+)-.*")
"""The name of a directory in which a process unpacks: it begins with the process's id."""

_DIGEST_PATTERN: Final = re.compile(r"sha256:([0-9a-f]{64})")

_INDEX_MEDIA_TYPE: Final = "application/vnd.oci.image.index.v1+json"
_REF_NAME: Final = "org.opencontainers.image.ref.name"

T = TypeVar("T")


# What others have written, as far as it is read here (OCI image spec). Go writes null for what is
# empty.


class _Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    digest: str
    media_type: str = ""
    annotations: dict[str, str] | None = None


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    manifests: list[_Descriptor] | None = None


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    config: _Descriptor


class _ExecutionParameters(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    env: tuple[str, ...] | None = None
    working_dir: str | None = None


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    config: _ExecutionParameters | None = None


class Images:
    """The images of one machine. `ensure` unpacks those that were not used before."""

    def __init__(self, directory: Path, library: Path) -> None:
        """`directory` is for what is fetched and unpacked, `library` is the admin's own."""
        self._directory = directory
        self._library = library
        self._fetch_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks by name: one layout is written to once at a time."""
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def ensure(self, reference: str) -> Image:
        """Return an image, fetched and unpacked if it must be. Raises NodeTrouble."""
        name, tag = _split_reference(reference)
        try:
            layout = await self._layout(name, tag)
            manifest, digest = await in_thread(_manifest, layout, tag)
            config = await in_thread(_read_blob, layout, manifest.config.digest, _Config)
            bundle = self._directory / "unpacked" / digest
            if not await in_thread(bundle.exists):
                await self._unpack(layout, tag, bundle)
        except (OSError, ValueError, KeyError) as error:
            raise NodeTrouble(f"the image {reference} cannot be read: {error!r}") from error
        return _image(bundle / "rootfs", config.config or _ExecutionParameters())

    async def _layout(self, name: str, tag: str) -> Path:
        """Return the layout that has an image."""
        library_layout = self._library / name
        if await in_thread(_has_tag, library_layout, tag):
            return library_layout
        # skopeo and umoci end a path at its first colon: that of a registry's port becomes another
        # character, which no name has.
        fetched_layout = self._directory / "fetched" / name.replace(":", "%")
        if await in_thread(_has_tag, fetched_layout, tag):
            return fetched_layout
        async with self._fetch_locks.setdefault(name, asyncio.Lock()), self._slots:
            if not await in_thread(_has_tag, fetched_layout, tag):
                await self._fetch(name, tag, fetched_layout)
        return fetched_layout

    async def _fetch(self, name: str, tag: str, layout: Path) -> None:
        await in_thread(layout.parent.mkdir, parents=True, exist_ok=True)
        try:
            await commands.run(
                ["skopeo", "copy", "--quiet", f"docker://{name}:{tag}", f"oci:{layout}:{tag}"],
                seconds=_PULL_SECONDS,
            )
        except NodeTrouble as trouble:
            raise NodeTrouble(
                f"there is no image {name}:{tag} in {self._library}, and it cannot be fetched: "
                f"{trouble}"
            ) from trouble

    async def _unpack(self, layout: Path, tag: str, bundle: Path) -> None:
        """Unpack an image. Others may do so at the same time: the first that is whole stays."""
        async with self._slots:
            work_directory = await in_thread(_make_work_directory, bundle.parent)
            try:
                rootless = ["--rootless"] if os.geteuid() != 0 else []
                unpacked = work_directory / "bundle"
                await commands.run(
                    ["umoci", "unpack", *rootless, "--image", f"{layout}:{tag}", str(unpacked)],
                    seconds=_UNPACK_SECONDS,
                )
                await in_thread(_rename, unpacked, bundle)
            finally:
                await in_thread(shutil.rmtree, work_directory, ignore_errors=True)


def _make_work_directory(parent: Path) -> Path:
    """Make a directory that is this process's, and remove those of processes that have ended."""
    parent.mkdir(parents=True, exist_ok=True)
    for each in parent.glob(".*"):
        match = _WORK_DIRECTORY_PATTERN.fullmatch(each.name)
        # A number that another process has by now keeps its directory there until later.
        if match is not None and not Path(f"/proc/{match[1]}").exists():
            shutil.rmtree(each, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f".{os.getpid()}-", dir=parent))


def _rename(unpacked: Path, bundle: Path) -> None:
    try:
        unpacked.rename(bundle)
    except OSError:
        # One that has files in it takes no other's place (rename(2)): it was there first.
        if not bundle.exists():
            raise


def _split_reference(reference: str) -> tuple[str, str]:
    match = _REFERENCE_PATTERN.fullmatch(reference)
    if match is None or ".." in reference:
        raise NodeTrouble(f"{reference!r} is no reference of an image: NAME:TAG", fatal=True)
    return match["name"], match["tag"] or "latest"


def _has_tag(layout: Path, tag: str) -> bool:
    try:
        _manifest(layout, tag)
    except (OSError, ValueError, KeyError):
        return False
    return True


def _manifest(layout: Path, tag: str) -> tuple[_Manifest, str]:
    """Return the manifest of a tag, and its digest in hexadecimal.

    Raises KeyError where the layout does not have the tag, NodeTrouble where the tag is of images
    for several machines, and what `_read_json` raises.
    """
    for each in _read_json(layout / "index.json", _Index).manifests or ():
        if (each.annotations or {}).get(_REF_NAME) == tag:
            descriptor = each
            break
    else:
        raise KeyError(tag)
    if descriptor.media_type == _INDEX_MEDIA_TYPE:
        raise NodeTrouble(
            f"{layout}:{tag} has images for several machines: copy the one for this machine, with "
            "skopeo copy"
        )
    return _read_blob(layout, descriptor.digest, _Manifest), _digest_hex(descriptor.digest)


def _read_blob(layout: Path, digest: str, struct_type: type[T]) -> T:
    return _read_json(layout / "blobs" / "sha256" / _digest_hex(digest), struct_type)


def _read_json(path: Path, struct_type: type[T]) -> T:
    """Return what a file says. Raises OSError, and ValueError where it is not of its kind."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=struct_type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def _digest_hex(digest: str) -> str:
    match = _DIGEST_PATTERN.fullmatch(digest)
    if match is None:
        raise ValueError(f"{digest} is no digest by sha256")
    return match[1]


def _image(root: Path, execution: _ExecutionParameters) -> Image:
    pairs = (each.partition("=") for each in execution.env or ())
    return Image(
        root=str(root),
        entrypoint=execution.entrypoint or (),
        command=execution.cmd or (),
        environment={name: value for name, _, value in pairs},
        working_directory=execution.working_dir or "",
    )
