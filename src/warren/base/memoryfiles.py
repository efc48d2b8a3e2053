"""Files in memory, which have no name and go with their last user (memfd_create(2))."""

import errno
import os
from typing import Final

_MFD_NOEXEC_SEAL: Final = 0x0008


def create(name: str, flags: int = os.MFD_CLOEXEC) -> int:
    """Return a descriptor of a new file in memory, of which no program can be run.

    Linux 6.3 to 6.5 refuse one of which a program can be, where an admin has set
    vm.memfd_noexec=2; kernels of before do not know the flag. Raises OSError.
    """
    try:
        return os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.memfd_create(name, flags)
