"""Images: found, unpacked once, and described as their makers have said."""

import asyncio
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from warren.dws.node import NodeTrouble
from warren.dws.pods.plans import Image
from warren.node import commands
from warren.node.images import Images

CONFIG = {
    "Entrypoint": ["/bin/index"],
    "Cmd": ["--all"],
    "Env": ["PATH=/bin", "WORDS=a=b", "EMPTY="],
    "WorkingDir": "/data",
}


def layout(place: Path, tag: str, files: Mapping[str, str], config: Any = CONFIG) -> None:
    """Make or extend an OCI layout with an image of these files (OCI image spec)."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    blobs = place / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def keep(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    kind = "application/vnd.oci.image"
    whole = f"{kind}.manifest.v1+json"
    tree = keep(layer.getvalue(), f"{kind}.layer.v1.tar")
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [tree["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": whole,
        "config": keep(json.dumps(described).encode(), f"{kind}.config.v1+json"),
        "layers": [tree],
    }
    found = keep(json.dumps(manifest).encode(), whole)
    found["annotations"] = {"org.opencontainers.image.ref.name": tag}
    index = place / "index.json"
    known = json.loads(index.read_text())["manifests"] if index.exists() else []
    others = [each for each in known if each["annotations"] != found["annotations"]]
    index.write_text(json.dumps({"schemaVersion": 2, "manifests": [*others, found]}))
    (place / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


@pytest.fixture
def images(tmp_path: Path) -> Images:
    if shutil.which("umoci") is None:
        pytest.skip("umoci is not installed")
    return Images(tmp_path / "own", tmp_path / "library")


def ensure(images: Images, reference: str) -> Image:
    return asyncio.run(images.ensure(reference))


def test_an_image_is_unpacked_and_described(images: Images, tmp_path: Path) -> None:
    layout(tmp_path / "library" / "site" / "index", "1", {"bin/index": "program"})
    found = ensure(images, "site/index:1")
    assert (Path(found.root) / "bin" / "index").read_text() == "program"
    assert (found.entrypoint, found.command) == (("/bin/index",), ("--all",))
    assert found.environment == {"PATH": "/bin", "WORDS": "a=b", "EMPTY": ""}
    assert found.working_directory == "/data"


def test_without_a_tag_it_is_the_latest(images: Images, tmp_path: Path) -> None:
    layout(tmp_path / "library" / "index", "latest", {"it": "new"}, {})
    found = ensure(images, "index")
    assert (Path(found.root) / "it").read_text() == "new"
    assert (found.entrypoint, found.command, found.working_directory) == ((), (), "")


def test_an_image_is_unpacked_once_and_one_whose_tag_has_moved_again(
    images: Images, tmp_path: Path
) -> None:
    layout(tmp_path / "library" / "index", "1", {"it": "old"})
    layout(tmp_path / "library" / "index", "2", {"it": "other"})
    first = ensure(images, "index:1")
    (Path(first.root) / "mark").touch()
    assert ensure(images, "index:1") == first
    assert (Path(first.root) / "mark").exists()
    layout(tmp_path / "library" / "index", "1", {"it": "new"})
    assert (Path(ensure(images, "index:1").root) / "it").read_text() == "new"
    assert (Path(ensure(images, "index:2").root) / "it").read_text() == "other"


def test_those_who_ask_at_a_time_get_the_same(images: Images, tmp_path: Path) -> None:
    layout(tmp_path / "library" / "index", "1", {"it": "words"})

    async def story() -> list[Image]:
        return await asyncio.gather(*(images.ensure("index:1") for _ in range(4)))

    first, *others = asyncio.run(story())
    assert all(each == first for each in others)


def test_agents_of_several_rabbits_may_want_an_image_at_a_time(
    images: Images, tmp_path: Path
) -> None:
    layout(tmp_path / "library" / "index", "1", {"it": "words", "bin/x": "y" * 100_000})
    agents = [Images(tmp_path / "own", tmp_path / "library") for _ in range(4)]

    async def story() -> list[Image]:
        return await asyncio.gather(*(each.ensure("index:1") for each in agents))

    assert len({each.root for each in asyncio.run(story())}) == 1


def test_what_a_process_that_has_died_left_half_unpacked_is_removed(
    images: Images, tmp_path: Path
) -> None:
    layout(tmp_path / "library" / "index", "1", {"it": "words"})
    unpacked = tmp_path / "own" / "unpacked"
    dead = subprocess.Popen(["true"])
    dead.wait()
    left, others = unpacked / f".{dead.pid}-x", unpacked / f".{os.getppid()}-x"
    for each in (left, others):
        (each / "bundle" / "rootfs").mkdir(parents=True)
    assert (Path(ensure(images, "index:1").root) / "it").read_text() == "words"
    assert not left.exists()
    assert others.exists()
    assert [each.name for each in unpacked.glob(".*")] == [others.name]


def test_who_unpacks_an_image_waits_for_nobody_who_does_so_too(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout(tmp_path / "library" / "index", "1", {"it": "words"})
    run = commands.run

    async def story() -> list[Image]:
        slow, go_on = asyncio.Event(), asyncio.Event()

        async def held(argv: Sequence[str], *, seconds: float) -> str:
            if slow.is_set():
                return await run(argv, seconds=seconds)
            slow.set()
            said = await run(argv, seconds=seconds)
            await go_on.wait()
            return said

        monkeypatch.setattr(commands, "run", held)
        first = asyncio.ensure_future(images.ensure("index:1"))
        await slow.wait()
        second = await Images(tmp_path / "own", tmp_path / "library").ensure("index:1")
        go_on.set()
        return [await first, second]

    first, second = asyncio.run(story())
    assert first == second
    assert (Path(first.root) / "it").read_text() == "words"
    assert list((tmp_path / "own" / "unpacked").glob(".*")) == []


def test_an_image_that_is_there_does_not_wait_for_those_that_are_fetched(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout(tmp_path / "library" / "index", "1", {"it": "words"})
    there = ensure(images, "index:1")

    async def never(argv: Sequence[str], *, seconds: float) -> str:
        await asyncio.Event().wait()
        return ""

    async def story() -> Image:
        monkeypatch.setattr(commands, "run", never)
        async with asyncio.TaskGroup() as tasks:
            fetched = [tasks.create_task(images.ensure(f"far/{n}:1")) for n in range(8)]
            found = await images.ensure("index:1")
            for each in fetched:
                each.cancel()
        return found

    assert asyncio.run(story()) == there


def test_a_layout_with_images_for_several_machines_is_told_what_to_do(
    images: Images, tmp_path: Path
) -> None:
    place = tmp_path / "library" / "index"
    layout(place, "1", {"it": "words"})
    index = json.loads((place / "index.json").read_text())
    index["manifests"][0]["mediaType"] = "application/vnd.oci.image.index.v1+json"
    (place / "index.json").write_text(json.dumps(index))
    with pytest.raises(NodeTrouble, match="copy the one for this machine"):
        ensure(images, "index:1")


def test_an_image_that_cannot_be_had_is_told_with_where_it_was_looked_for(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(argv: list[str], *, seconds: float) -> str:
        assert argv[:2] == ["skopeo", "copy"]
        assert "docker://registry.example/site/index:1" in argv
        raise NodeTrouble("skopeo: no such host")

    monkeypatch.setattr(commands, "run", refused)
    words = f"no image registry.example/site/index:1 in {tmp_path / 'library'}, and .* no such host"
    with pytest.raises(NodeTrouble, match=words):
        ensure(images, "registry.example/site/index:1")


def test_an_image_of_a_registry_with_a_port_is_fetched_once(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    layout(tmp_path / "registry", "1", {"it": "words"})
    fetched: list[str] = []
    run = commands.run

    async def registry(argv: Sequence[str], *, seconds: float) -> str:
        if argv[0] == "skopeo":
            source = next(each for each in argv if each.startswith("docker://"))
            fetched.append(source)
            argv = [f"oci:{tmp_path}/registry:1" if each == source else each for each in argv]
        return await run(argv, seconds=seconds)

    monkeypatch.setattr(commands, "run", registry)
    for _ in range(2):
        found = ensure(images, "registry.example:5000/site/index:1")
        assert (Path(found.root) / "it").read_text() == "words"
    assert fetched == ["docker://registry.example:5000/site/index:1"]


NOT_WHOLE = {
    "no manifests": '{"schemaVersion": 2, "manifests": null}',
    "another form": '{"manifests": {"1": []}}',
    "a list": "[]",
    "deep": '{"manifests": ' + "[" * 100_000,
    "no JSON": "{",
}


@pytest.mark.parametrize("text", NOT_WHOLE.values(), ids=NOT_WHOLE.keys())
def test_a_layout_that_has_no_image_yet_is_one_without_this_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The first is what `umoci init` writes."""
    images, place = Images(tmp_path / "own", tmp_path / "library"), tmp_path / "library" / "index"
    place.mkdir(parents=True)
    (place / "index.json").write_text(text)

    async def refused(argv: list[str], *, seconds: float) -> str:
        raise NodeTrouble("skopeo: no such host")

    monkeypatch.setattr(commands, "run", refused)
    with pytest.raises(NodeTrouble, match=f"no image index:1 in {tmp_path / 'library'}"):
        ensure(images, "index:1")


@pytest.mark.parametrize("text", ["{", "[]", '{"config": []}', "[" * 100_000], ids=range(4))
def test_a_damaged_image_is_told_whatever_has_become_of_it(
    images: Images, tmp_path: Path, text: str
) -> None:
    layout(tmp_path / "library" / "index", "1", {"it": "words"})
    for blob in (tmp_path / "library" / "index" / "blobs" / "sha256").iterdir():
        if b'"architecture"' in blob.read_bytes():
            blob.write_text(text)
    with pytest.raises(NodeTrouble, match="the image index:1 cannot be read"):
        ensure(images, "index:1")


def test_what_an_image_does_not_say_is_empty(images: Images, tmp_path: Path) -> None:
    nothing = dict.fromkeys(["Entrypoint", "Cmd", "Env", "WorkingDir"])
    layout(tmp_path / "library" / "index", "1", {"it": "words"}, nothing)
    layout(tmp_path / "library" / "index", "2", {"it": "words"}, None)
    for found in (ensure(images, "index:1"), ensure(images, "index:2")):
        assert (found.entrypoint, found.command, found.working_directory) == ((), (), "")
        assert found.environment == {}


def test_a_damaged_image_is_told(images: Images, tmp_path: Path) -> None:
    layout(tmp_path / "library" / "index", "1", {"it": "words"})
    for blob in (tmp_path / "library" / "index" / "blobs" / "sha256").iterdir():
        if blob.read_bytes()[:1] == b"{":
            blob.write_text("{")
    with pytest.raises(NodeTrouble, match="index:1"):
        ensure(images, "index:1")


@pytest.mark.parametrize("reference", ["../etc", "a/../b", "", "/etc", "a b", "-a", "a:b:", "a\n"])
def test_what_is_no_reference_is_refused(images: Images, reference: str) -> None:
    with pytest.raises(NodeTrouble, match="no reference of an image") as caught:
        ensure(images, reference)
    assert caught.value.fatal
