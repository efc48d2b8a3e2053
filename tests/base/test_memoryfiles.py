"""Files in memory, on kernels that ask for different flags."""

import errno
import os

import pytest

from warren.base import memoryfiles

NOEXEC_SEAL = 0x0008


def refuse(monkeypatch: pytest.MonkeyPatch, code: int, *, has_flag: bool) -> None:
    """Be on a kernel that refuses files in memory with the flag, or without."""
    create = os.memfd_create

    def memfd_create(name: str, flags: int) -> int:
        if bool(flags & NOEXEC_SEAL) == has_flag:
            raise OSError(code, os.strerror(code))
        return create(name, flags & ~NOEXEC_SEAL)

    monkeypatch.setattr(os, "memfd_create", memfd_create)


@pytest.mark.parametrize(
    ("code", "has_flag"),
    [(errno.EACCES, False), (errno.EINVAL, True)],
    ids=["vm.memfd_noexec=2", "before Linux 6.3"],
)
def test_a_file_is_made_on_each_kernel(
    monkeypatch: pytest.MonkeyPatch, code: int, *, has_flag: bool
) -> None:
    refuse(monkeypatch, code, has_flag=has_flag)

    with open(memoryfiles.create("one"), "wb") as file:
        assert file.write(b"x") == 1
        assert not os.get_inheritable(file.fileno())


def test_what_fails_for_another_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EMFILE, has_flag=True)

    with pytest.raises(OSError, match="Too many open files"):
        memoryfiles.create("one")
