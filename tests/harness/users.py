"""Ordinary users, for tests that run as root: of this machine, and of no machine."""

import json
import os
import pwd
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from warren.daemons import munged

NAMES = ("daemon", "games")
"""Whom every Debian has, and who owns nothing."""

TEST_USER: Final = 2**25 + 64 * os.getpid()
"""The first of 64 user ids of this process's own, which stand in no table.

For tests that look at, end or give up all that a user has: others run at the same time. What a
test starts is told the id, for it would count from its own.
"""


def why_not() -> str | None:
    """Say why there are no two users to be here; None if there are."""
    if os.geteuid() != 0:
        return "only root can be other users"
    known = {each.pw_name for each in pwd.getpwall()}
    missing = [name for name in NAMES if name not in known]
    return f"there is no user {missing[0]} here" if missing else None


def without_munge() -> str | None:
    """Say why no munged can be run here; None if one can."""
    return None if munged.program() else "munged is not installed: tools/packages installs it"


def userids() -> tuple[int, int]:
    """Return the two users."""
    first, second = (pwd.getpwnam(name).pw_uid for name in NAMES)
    return first, second


def acting_as(userid: int, action: Callable[[], Any]) -> Any:
    """Do something as another user, in a process of its own; return its result, as JSON has it.

    What the action imports is to be there already: the interpreter's own files may be root's.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            os.close(reading)
            os.setgroups([])
            os.setresgid(userid, userid, userid)
            os.setresuid(userid, userid, userid)
            found = json.dumps(action()).encode()
            while found:
                found = found[os.write(writing, found) :]
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        found = answer.read()
    _, status = os.waitpid(process, 0)
    assert status == 0, f"user {userid} has failed, as told above"
    return json.loads(found)


@contextmanager
def common_ground() -> Iterator[Path]:
    """Return a directory that all users can reach, which pytest's own are not; and remove it."""
    directory = Path(tempfile.mkdtemp(prefix="warren-test-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
