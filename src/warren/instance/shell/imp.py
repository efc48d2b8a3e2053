"""What is done as root for another user's job: its request is proven, and its user become.

This is the part of an IMP (RFC 15). A process that was forked for one shell, and has
nothing open but its standard streams, comes here first: the signed request is believed
and nothing else that the instance says, neither the user it names nor the command in its
store. What is left afterwards is the user's own process, for good. No program is run
before that, so nothing in any environment has a say.

`no_new_privs` is not set: jobs may use setuid programs, as they may elsewhere.
"""

import ctypes
import os
import platform
import pwd
import resource
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from warren.base import userlimits
from warren.base.errors import WarrenError
from warren.rpc import munge
from warren.rpc.munge import Munge

_CAPABILITIES: Final = {"CAP_CHOWN": 0, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
"""What root itself may lack in a container, and what it takes to run jobs of others."""

_PR_SET_DUMPABLE: Final = 4
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522
_KEYCTL_NUMBERS: Final = {"x86_64": 250, "aarch64": 219, "ppc64le": 271}
"""The number of the system call, which the C library has no function for."""
_KEYCTL_JOIN_SESSION_KEYRING: Final = 1

_libc: Final = ctypes.CDLL(None, use_errno=True)


class IdentityRefused(WarrenError):
    """The job does not run as the user that it is said to be of."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A user of this machine."""

    userid: int
    name: str
    home: str
    gid: int
    gids: Sequence[int]


def refusal(userid: int) -> str | None:
    """Return why a process like this one cannot run the jobs of a user; None if it can."""
    if userid == os.geteuid():
        return None
    if userid == 0:
        return "only root's own instance runs jobs as root"
    if os.geteuid() != 0:
        return (
            f"this instance is user {os.geteuid()}'s, who cannot run jobs as other users: "
            "an instance for several users is root's"
        )
    lacking = [
        name for name, bit in _CAPABILITIES.items() if not _effective_capabilities() >> bit & 1
    ]
    if lacking:
        return f"this instance cannot run jobs as other users here: it lacks {', '.join(lacking)}"
    return None if account(userid) is not None else f"there is no user {userid} on this machine"


def account(userid: int) -> Account | None:
    """Look a user up; None where there is no such user."""
    try:
        found = pwd.getpwuid(userid)
    except KeyError:
        return None
    return Account(
        userid=found.pw_uid,
        name=found.pw_name,
        home=found.pw_dir,
        gid=found.pw_gid,
        gids=os.getgrouplist(found.pw_name, found.pw_gid),
    )


def proven_payload(
    token: str | None, userid: int, with_munge: Munge, *, now: float, ttl: float
) -> bytes:
    """Return the payload of a signed request, if it is this user's and all of it is proven.

    Mechanism `none` proves nothing here. Raises IdentityRefused.
    """
    if userid == 0:
        raise IdentityRefused("the job does not run as root: only root's own jobs do")
    if token is None:
        raise IdentityRefused(f"the job does not run as user {userid}: it has no signed request")
    try:
        return munge.unwrap(token, with_munge, now=now, ttl=ttl, userid=userid).payload
    except WarrenError as error:
        raise IdentityRefused(f"the job does not run as user {userid}: {error}") from error


def become(user: Account) -> None:
    """Become a user for good: ids, groups, no capabilities, and nothing else of root's.

    Raises OSError, or IdentityRefused where the kernel has not done what it said; the process must
    end then.
    """
    userlimits.raise_oom_score()
    _leave_keyring()
    os.chdir("/")
    os.umask(0o022)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard_limit))
    userlimits.limit_processes()
    os.setgroups(list(user.gids))
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.userid, user.userid, user.userid)
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _set_no_capabilities()
    # The memory is still a copy of root's: the user's other processes do not look into it.
    # What this process executes is the user's alone again, and may be looked at.
    _libc.prctl(_PR_SET_DUMPABLE, 0)
    _check(user)
    os.environ.clear()
    os.environ.update(
        PATH=os.defpath.lstrip(":"), HOME=user.home, USER=user.name, LOGNAME=user.name
    )


def _check(user: Account) -> None:
    """Raise IdentityRefused unless this process is the user, and cannot be another one again."""
    ids = (os.getresuid(), os.getresgid(), sorted(os.getgroups()), _effective_capabilities())
    expected = ((user.userid,) * 3, (user.gid,) * 3, sorted(user.gids), 0)
    if ids != expected:
        raise IdentityRefused(f"the process has not become user {user.userid}")
    with suppress(PermissionError):
        os.setresuid(0, 0, 0)
        raise IdentityRefused(f"user {user.userid} can become root again")


def _leave_keyring() -> None:
    """Take a session keyring of our own: its starter's may hold keys."""
    number = _KEYCTL_NUMBERS.get(platform.machine())
    if number is not None:
        _libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


def _set_no_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    no_capabilities = (ctypes.c_uint32 * 6)()
    if _libc.capset(header, no_capabilities) != 0:
        errnum = ctypes.get_errno()
        raise OSError(errnum, os.strerror(errnum))


def _effective_capabilities() -> int:
    """Return the capabilities that this process has, as the kernel numbers them."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    masks = (ctypes.c_uint32 * 6)()
    if _libc.capget(header, masks) != 0:
        errnum = ctypes.get_errno()
        raise OSError(errnum, os.strerror(errnum))
    # Effective, permitted and inheritable; first the lower half of each, then the upper.
    return int(masks[0]) | int(masks[3]) << 32
