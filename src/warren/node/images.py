"""Images of containers: found in a directory of OCI layouts or in a registry, and unpacked once.

A reference is `NAME:TAG`. Of the admin's own directory `DIR/NAME` is a layout, as
`skopeo copy ... oci:DIR/NAME:TAG` makes it; other images are fetched by skopeo(1) and kept in
such a directory. umoci(1) unpacks. What is unpacked has the name of its manifest's digest, so
that a tag that is moved is seen, and is whole or not there.
"""

import asyncio
import fcntl
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from warren.dws.node import NodeTrouble
from warren.dws.podplans import Image
from warren.node import commands
from warren.node.threads import in_thread

_PULL_SECONDS: Final = 600.0
_UNPACK_SECONDS: Final = 300.0

_REFERENCE: Final = re.compile(
    r"(?P<name>[a-z0-9]+(?:[._:/-]+[a-zA-Z0-9]+)*?)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
)
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")

_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_NAME: Final = "org.opencontainers.image.ref.name"


class Images:
    """The images of one machine. `find` unpacks those that were not used before."""

    def __init__(self, directory: Path, library: Path) -> None:
        """`directory` is for what is fetched and unpacked, `library` is the admin's own."""
        self._directory = directory
        self._library = library
        self._finding: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def find(self, reference: str) -> Image:
        """Return an image, fetched and unpacked if it must be. Raises NodeTrouble."""
        name, tag = _split(reference)
        async with self._finding.setdefault(name, asyncio.Lock()):
            try:
                layout = await self._layout(name, tag)
                manifest, digest = await in_thread(_manifest, layout, tag)
                config = await in_thread(_blob, layout, manifest["config"]["digest"])
                bundle = self._directory / "unpacked" / digest
                if not bundle.exists():
                    await self._unpack(layout, tag, bundle)
            except (OSError, ValueError, KeyError) as error:
                raise NodeTrouble(f"the image {reference} cannot be read: {error!r}") from error
        return _described(bundle / "rootfs", config.get("config") or {})

    async def _layout(self, name: str, tag: str) -> Path:
        """Return the layout that has an image."""
        own = self._library / name
        if await in_thread(_has, own, tag):
            return own
        fetched = self._directory / "fetched" / name
        if not await in_thread(_has, fetched, tag):
            fetched.parent.mkdir(parents=True, exist_ok=True)
            try:
                await commands.run(
                    ["skopeo", "copy", "--quiet", f"docker://{name}:{tag}", f"oci:{fetched}:{tag}"],
                    seconds=_PULL_SECONDS,
                )
            except NodeTrouble as trouble:
                raise NodeTrouble(
                    f"there is no image {name}:{tag} in {self._library}, and it cannot be fetched: "
                    f"{trouble}"
                ) from trouble
        return fetched

    async def _unpack(self, layout: Path, tag: str, bundle: Path) -> None:
        bundle.parent.mkdir(parents=True, exist_ok=True)
        # Agents of other rabbits may want the same one now.
        with (bundle.parent / f".{bundle.name}.lock").open("wb") as lock:
            await in_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            if await in_thread(bundle.exists):
                return
            unfinished = bundle.parent / f".{bundle.name}"
            await in_thread(shutil.rmtree, unfinished, ignore_errors=True)
            rootless = ["--rootless"] if os.geteuid() != 0 else []
            await commands.run(
                ["umoci", "unpack", *rootless, "--image", f"{layout}:{tag}", str(unfinished)],
                seconds=_UNPACK_SECONDS,
            )
            unfinished.rename(bundle)


def _split(reference: str) -> tuple[str, str]:
    match = _REFERENCE.fullmatch(reference)
    if match is None or ".." in reference:
        raise NodeTrouble(f"{reference!r} is no reference of an image: NAME:TAG", fatal=True)
    return match["name"], match["tag"] or "latest"


def _has(layout: Path, tag: str) -> bool:
    try:
        _manifest(layout, tag)
    except (OSError, ValueError, KeyError):
        return False
    return True


def _manifest(layout: Path, tag: str) -> tuple[Mapping[str, Any], str]:
    """Return the manifest of a tag and its digest. Raises KeyError, and what files raise."""
    index = json.loads((layout / "index.json").read_text())
    for each in index["manifests"]:
        if (each.get("annotations") or {}).get(_NAME) == tag:
            found = each
            break
    else:
        raise KeyError(tag)
    if found.get("mediaType") == _INDEX:
        raise NodeTrouble(
            f"{layout}:{tag} has images for several machines: copy the one for this machine, with "
            "skopeo copy"
        )
    return _blob(layout, found["digest"]), _hex(found["digest"])


def _blob(layout: Path, digest: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((layout / "blobs" / "sha256" / _hex(digest)).read_text())
    return found


def _hex(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ValueError(f"{digest} is no digest by sha256")
    return match[1]


def _described(root: Path, config: Mapping[str, Any]) -> Image:
    pairs = (each.partition("=") for each in config.get("Env") or ())
    return Image(
        root=str(root),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
        environment={name: value for name, _, value in pairs},
        directory=config.get("WorkingDir") or "",
    )
