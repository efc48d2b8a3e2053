"""Directories as flash: what a crash leaves behind, and whose the files are."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.node.copied import User
from warren.dws.node import NodeTrouble, RawVolumeAccess, Volume
from warren.node import directory
from warren.node.directory import DirectoryFlash
from warren.node.linking import node_path


@pytest.fixture
def flash(tmp_path: Path) -> DirectoryFlash:
    return DirectoryFlash(tmp_path, 1000)


def volume(name: str = "a", size: int = 100, user: User | None = None) -> Volume:
    user = user or User(os.geteuid(), os.getegid())
    return Volume(
        rabbit="rabbit1",
        name=name,
        size=size,
        file_system="xfs",
        userid=user.userid,
        groupid=user.groupid,
    )


def test_a_volume_belongs_to_its_user(flash: DirectoryFlash, user: User) -> None:
    asyncio.run(flash.make(volume(user=user)))

    found = flash.files_path("rabbit1", "a").stat()
    assert (found.st_uid, found.st_gid) == (user.userid, user.groupid)
    assert found.st_mode & 0o777 == 0o700


def test_a_volume_is_found_where_mount_is_told_and_otherwise_it_is_a_trouble(
    flash: DirectoryFlash,
) -> None:
    with pytest.raises(NodeTrouble, match="rabbit1/a does not exist") as caught:
        asyncio.run(flash.source("rabbit1", "a", "xfs"))
    assert not caught.value.fatal

    asyncio.run(flash.make(volume()))

    source = asyncio.run(flash.source("rabbit1", "a", "xfs"))
    assert source.arguments == ("--bind", str(flash.files_path("rabbit1", "a")))
    assert not source.is_file


def test_every_rabbit_has_as_much_whatever_is_taken(flash: DirectoryFlash) -> None:
    asyncio.run(flash.make(volume()))

    assert asyncio.run(flash.capacity("rabbit1")) == 1000
    assert asyncio.run(flash.capacity("rabbit2")) == 1000


@pytest.mark.parametrize("name", ["", ".", "..", ".new-a", "a/b", "/etc"])
def test_a_name_that_leads_elsewhere_is_refused(flash: DirectoryFlash, name: str) -> None:
    for action in (flash.make(volume(name)), flash.release("rabbit1", name)):
        with pytest.raises(NodeTrouble, match="is no name of a volume") as caught:
            asyncio.run(action)
        assert caught.value.fatal


def test_a_raw_volume_is_no_directory(flash: DirectoryFlash) -> None:
    raw = replace(volume(), file_system="raw")
    with pytest.raises(NodeTrouble, match="a raw one is a block device") as caught:
        asyncio.run(flash.make(raw))

    assert caught.value.fatal
    assert asyncio.run(flash.raw_volume_access("rabbit1")) is RawVolumeAccess.NONE


def test_a_narrow_umask_does_not_shut_the_user_out(flash: DirectoryFlash) -> None:
    before = os.umask(0o077)
    try:
        asyncio.run(flash.make(volume()))
    finally:
        os.umask(before)

    assert flash.files_path("rabbit1", "a").stat().st_mode & 0o777 == 0o700


def test_no_rabbit_has_volumes_before_the_first_is_made(flash: DirectoryFlash) -> None:
    assert flash.volumes("rabbit1") == {}


def test_what_is_no_volume_hides_none(flash: DirectoryFlash, tmp_path: Path) -> None:
    """As lost+found, or a file of an admin's."""
    rabbit = tmp_path / "rabbit1"
    for name in "abcd":
        (rabbit / f"lost+{name}").mkdir(parents=True)
        asyncio.run(flash.make(volume(name)))
        (rabbit / f"notes-{name}").touch()

    assert flash.volumes("rabbit1") == dict.fromkeys("abcd", 100)
    with pytest.raises(NodeTrouble, match="600 bytes of flash left"):
        asyncio.run(flash.make(volume("e", 700)))


@pytest.mark.parametrize("text", [b"", b'{"size": 1', b"\xff", b"[]", b"{}"])
def test_a_record_that_cannot_be_read_is_told_by_its_path(
    flash: DirectoryFlash, tmp_path: Path, text: bytes
) -> None:
    asyncio.run(flash.make(volume("a")))
    record = tmp_path / "rabbit1" / "a" / "volume.json"
    record.write_bytes(text)

    with pytest.raises(NodeTrouble, match=f"^{record} does not say how large") as caught:
        asyncio.run(flash.make(volume("b")))
    assert not caught.value.fatal, "an admin may repair it"

    record.write_text('{"size": 100}')
    asyncio.run(flash.make(volume("b")))
    assert flash.volumes("rabbit1") == {"a": 100, "b": 100}


def test_a_volume_whose_record_cannot_be_read_is_released(
    flash: DirectoryFlash, tmp_path: Path
) -> None:
    asyncio.run(flash.make(volume("a")))
    (tmp_path / "rabbit1" / "a" / "volume.json").write_bytes(b"")

    asyncio.run(flash.release("rabbit1", "a"))

    assert flash.volumes("rabbit1") == {}


def test_a_record_is_on_the_disk_before_its_volume_has_a_name(
    flash: DirectoryFlash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut leaves of a file that is not synced is empty."""
    synced: list[tuple[str, bool]] = []
    sync, final = os.fsync, tmp_path / "rabbit1" / "a"

    def fsync(opened: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{opened}"), final.exists()))
        sync(opened)

    monkeypatch.setattr(os, "fsync", fsync)
    asyncio.run(flash.make(volume("a")))

    unfinished = str(final.with_name(".new-a"))
    assert synced == [
        (f"{unfinished}/volume.new", False),
        (unfinished, False),
        (str(final.parent), True),
        (str(tmp_path), True),
    ]


def test_volumes_are_found_again_by_another_process(flash: DirectoryFlash, tmp_path: Path) -> None:
    asyncio.run(flash.make(volume("a", 700)))

    again = DirectoryFlash(tmp_path, 1000)
    assert again.volumes("rabbit1") == {"a": 700}
    with pytest.raises(NodeTrouble, match="300 bytes of flash left"):
        asyncio.run(again.make(volume("b", 700)))


def test_a_volume_that_was_being_made_takes_no_room_and_is_made_anew(
    flash: DirectoryFlash, tmp_path: Path
) -> None:
    unfinished = tmp_path / "rabbit1" / ".new-a" / "files"
    unfinished.mkdir(parents=True)
    (unfinished / "rubbish").touch()
    (unfinished.parent / "volume.json").write_text(json.dumps({"size": 1000}))

    asyncio.run(flash.make(volume("a", 1000)))

    assert flash.volumes("rabbit1") == {"a": 1000}
    assert list(flash.files_path("rabbit1", "a").iterdir()) == []


def test_a_volume_that_was_being_released_takes_no_room_and_goes_with_the_next_try(
    flash: DirectoryFlash, tmp_path: Path
) -> None:
    asyncio.run(flash.make(volume()))
    (tmp_path / "rabbit1" / "a").rename(tmp_path / "rabbit1" / ".old-a")
    assert flash.volumes("rabbit1") == {}

    asyncio.run(flash.release("rabbit1", "a"))

    assert list((tmp_path / "rabbit1").iterdir()) == []


def test_what_a_release_has_left_does_not_keep_the_next_one_from_its_work(
    flash: DirectoryFlash, tmp_path: Path
) -> None:
    (tmp_path / "rabbit1" / ".old-a" / "files").mkdir(parents=True)
    asyncio.run(flash.make(volume()))
    asyncio.run(flash.release("rabbit1", "a"))

    assert list((tmp_path / "rabbit1").iterdir()) == []


def test_volumes_are_made_while_a_release_is_tried_again_that_takes_long(
    flash: DirectoryFlash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rabbit1" / ".old-a" / "files").mkdir(parents=True)
    removing, let_go = threading.Event(), threading.Event()
    run_quietly = directory._run_quietly

    def hold(*argv: str) -> None:
        removing.set()
        assert let_go.wait(60)
        run_quietly(*argv)

    async def main() -> None:
        await flash.make(volume("a"))
        monkeypatch.setattr(directory, "_run_quietly", hold)
        releasing = asyncio.create_task(flash.release("rabbit1", "a"))
        await asyncio.to_thread(removing.wait)
        make = asyncio.create_task(flash.make(volume("b", 1000)))
        done, _ = await asyncio.wait({make}, timeout=30)
        let_go.set()
        await releasing
        assert done == {make}
        await make

    asyncio.run(main())

    assert flash.volumes("rabbit1") == {"b": 1000}
    assert [entry.name for entry in (tmp_path / "rabbit1").iterdir()] == ["b"]


def test_all_that_releases_have_left_goes_with_the_next_try_and_nothing_else(
    flash: DirectoryFlash, tmp_path: Path
) -> None:
    left = [".old-a", ".old-a-1", ".old-a-2", ".old-b", ".old-aa", ".old-a-b"]
    for name in left:
        (tmp_path / "rabbit1" / name / "files").mkdir(parents=True)

    asyncio.run(flash.release("rabbit1", "a"))

    assert sorted(entry.name for entry in (tmp_path / "rabbit1").iterdir()) == [
        ".old-a-b",
        ".old-aa",
        ".old-b",
    ]


def test_a_volume_is_released_however_deep_its_directories_are(flash: DirectoryFlash) -> None:
    asyncio.run(flash.make(volume()))
    here = os.open(flash.files_path("rabbit1", "a"), os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.mkdir("locked", dir_fd=here)
    os.mkdir("locked/within", dir_fd=here)
    os.chmod("locked", 0o000, dir_fd=here)
    os.close(here)

    asyncio.run(flash.release("rabbit1", "a"))
    assert list((flash.files_path("rabbit1", "a").parent.parent).iterdir()) == []


def test_a_file_that_has_a_name_elsewhere_keeps_its_mode_when_a_volume_goes(
    flash: DirectoryFlash, tmp_path: Path
) -> None:
    asyncio.run(flash.make(volume()))
    (own := tmp_path / "own").touch(0o400)
    os.link(own, flash.files_path("rabbit1", "a") / "name")
    asyncio.run(flash.release("rabbit1", "a"))

    assert own.stat().st_mode & 0o777 == 0o400


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/mnt/nnf", "/node/mnt/nnf"),
        ("/mnt/nnf/job/0", "/node/mnt/nnf/job/0"),
        ("/mnt/nnf/job/", "/node/mnt/nnf/job/"),
        ("/mnt/nnf2/job", "/mnt/nnf2/job"),
        ("/mnt", "/mnt"),
        ("/home/somebody", "/home/somebody"),
    ],
)
def test_a_node_without_a_namespace_has_paths_of_its_own_below_the_prefix_alone(
    path: str, own: str
) -> None:
    assert node_path(Path("/node"), Path("/mnt/nnf"), path) == own
