"""What guests boot: modules in the order in which they can be loaded, in an archive."""

import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.guests import kernel
from tools.guests.packages import Unavailable


def test_modules_are_loaded_after_what_they_need() -> None:
    text = "kernel/a.ko: kernel/b-c.ko kernel/d.ko\nkernel/b-c.ko: kernel/d.ko\nkernel/d.ko:\n"

    found = kernel.with_dependencies(kernel.dependencies(text), ["a", "built-in", "b_c"])

    assert found == ["kernel/d.ko", "kernel/b-c.ko", "kernel/a.ko"]


@given(st.binary(), st.binary(max_size=64))
def test_a_kernel_is_found_in_its_image(head: bytes, tail: bytes) -> None:
    elf = b"\x7fELF" + head

    assert kernel.decompress(b"\xfd7zXZ\x00" + head + lzma.compress(elf) + tail) == elf


def test_an_image_without_a_kernel_is_refused() -> None:
    with pytest.raises(Unavailable, match="not compressed as kernels of Debian 12"):
        kernel.decompress(b"MZ" + lzma.compress(b"something else"))


def test_an_archive_has_each_directory_before_what_is_in_it() -> None:
    packed = kernel.archive({"bin/sh": b"abc", "modules/a/b": b""})

    names = [part.split(b"\0")[0][104:] for part in packed.split(b"070701")[1:]]
    assert len(packed) % 4 == 0
    assert names == [b"bin", b"modules", b"modules/a", b"bin/sh", b"modules/a/b", b"TRAILER!!!"]
