"""What root does for another user's job: the proof of the request, and the change of user."""

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import users
from tests.rpc.test_munge import NOW, FakeLibrary
from warren.instance.shell import imp
from warren.instance.shell.imp import IdentityRefused
from warren.rfc import signed_request
from warren.rpc import munge
from warren.rpc.munge import Munge

USER = 1500
TTL = 3600

real = pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))


@pytest.fixture
def library() -> FakeLibrary:
    """A MUNGE that takes all for one user."""
    library = FakeLibrary()
    library.userid = USER
    return library


def signed(library: FakeLibrary, payload: bytes = b"{}", userid: int = USER) -> str:
    return munge.wrap(payload, userid, Munge(lambda: library))


def proven(library: FakeLibrary, token: str | None, userid: int = USER, now: float = NOW) -> bytes:
    return imp.proven_payload(token, userid, Munge(lambda: library), now=now, ttl=TTL)


# The proof


def test_what_a_user_has_signed_is_given_however_often(library: FakeLibrary) -> None:
    token = signed(library, b'{"a": 1}')

    assert [proven(library, token) for _ in range(2)] == [b'{"a": 1}'] * 2


@pytest.mark.parametrize("status", [15, 17])
def test_a_credential_may_have_expired_for_munge_and_been_used(
    library: FakeLibrary, status: int
) -> None:
    token = signed(library)
    library.status = status

    assert proven(library, token, now=NOW + TTL) == b"{}"


def refused(asked: Callable[[], Any]) -> str:
    with pytest.raises(IdentityRefused) as error:
        asked()
    return str(error.value)


def test_a_request_holds_for_as_long_as_the_site_says(library: FakeLibrary) -> None:
    words = refused(lambda: proven(library, signed(library), now=NOW + TTL + 1))

    assert words == (
        "the job does not run as user 1500: the request was signed 3601 s ago, and holds for 3600 s"
    )


def forged(library: FakeLibrary) -> dict[str, tuple[str | None, int]]:
    """Requests that prove nothing, and the user that the instance says they are of."""
    header, payload, signature = signed(library).split(".")
    root = signed(library, userid=0).split(".")
    return {
        "of another user": (signed(library), USER + 1),
        "claiming another user": (signed(library, userid=USER + 1), USER + 1),
        "with another payload": (f"{header}.e319.{signature}", USER),
        "with another's signature": (f"{root[0]}.{payload}.{signature}", 0),
        "signed by nothing": (signed_request.wrap(b"{}", USER), USER),
        "with a wrong credential": (f"{header}.{payload}.MUNGE:AAAA:", USER),
        "not a request": ("J", USER),
        "none at all": (None, USER),
    }


@pytest.mark.parametrize("which", forged(FakeLibrary()))
def test_a_forged_request_is_refused(library: FakeLibrary, which: str) -> None:
    token, userid = forged(library)[which]

    words = refused(lambda: proven(library, token, userid))
    assert words.startswith("the job does not run as ")


def test_no_user_signs_for_root(library: FakeLibrary) -> None:
    library.userid = 0

    words = refused(lambda: proven(library, signed(library, userid=0), 0))
    assert words == "the job does not run as root: only root's own jobs do"


def test_while_munge_does_not_answer_nothing_is_proven(library: FakeLibrary) -> None:
    token = signed(library)
    library.status = 6

    assert "MUNGE does not answer" in refused(lambda: proven(library, token))


# Who can be become


def test_every_user_runs_as_themselves() -> None:
    assert imp.refusal(os.geteuid()) is None


def test_an_ordinary_users_instance_runs_no_other_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: USER)

    assert imp.refusal(USER + 1) == (
        "this instance is user 1500's, who cannot run jobs as other users: an instance for "
        "several users is root's"
    )
    assert imp.refusal(0) == "only root's own instance runs jobs as root"


@real
def test_root_runs_jobs_of_all_users_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for userid in users.userids():
        assert imp.refusal(userid) is None
    nobody = max(entry.pw_uid for entry in pwd.getpwall()) + 1
    assert imp.refusal(nobody) == f"there is no user {nobody} on this machine"

    monkeypatch.setattr(imp, "_effective_capabilities", lambda: 0)
    assert imp.refusal(users.userids()[0]) == (
        "this instance cannot run jobs as other users here: it lacks CAP_CHOWN, CAP_KILL, "
        "CAP_SETGID, CAP_SETUID"
    )


# The change


def become(body: str, user: str, **environment: str) -> str:
    """Become a user in a fresh process and return what `body` prints there."""
    script = (
        "import ctypes, os, resource, subprocess, sys\n"
        "from warren.instance.shell import imp\n"
        "user = imp.account(int(sys.argv[1]))\n"
        "try:\n"
        "    imp.become(user)\n"
        "except imp.IdentityRefused as error:\n"
        "    sys.exit(print('refused:', error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script + body, user],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@real
def test_nothing_of_root_is_left() -> None:
    userid = users.userids()[0]
    account = pwd.getpwuid(userid)
    body = (
        "print(os.getresuid(), os.getresgid(), sorted(os.getgroups()))\n"
        "print(imp._effective_capabilities(), os.getcwd(), oct(os.umask(0)))\n"
        "print(sorted(os.environ.items()))\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
        "print(ctypes.CDLL(None).prctl(3), ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))\n"
    )
    said = become(body, str(userid), ROOTS_SECRET="1", LD_LIBRARY_PATH="/nowhere").splitlines()

    groups = sorted(os.getgrouplist(account.pw_name, account.pw_gid))
    assert said[0] == f"{(userid,) * 3} {(account.pw_gid,) * 3} {groups}"
    assert said[1] == "0 / 0o22"
    names = [("HOME", account.pw_dir), ("LOGNAME", account.pw_name), ("PATH", "/bin:/usr/bin"),
             ("USER", account.pw_name)]  # fmt: skip
    assert said[2] == str(names)
    # No core; not to be looked into; setuid programs work as they do elsewhere.
    assert said[3:5] == ["0", "0 0"]


@real
def test_a_user_leaves_half_of_the_machines_processes_to_others() -> None:
    most = min(
        int(Path("/proc/sys/kernel", name).read_text()) for name in ("pid_max", "threads-max")
    )
    said = become("print(*resource.getrlimit(resource.RLIMIT_NPROC))", str(users.userids()[0]))

    assert all(0 < int(each) <= most // 2 for each in said.split())


@real
def test_a_user_has_no_more_processes_than_where_the_cluster_was_started() -> None:
    body = "print(*resource.getrlimit(resource.RLIMIT_NPROC))"
    script = (
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_NPROC, (500, 600))\n"
        "from warren.instance.shell import imp\nimp.become(imp.account(int(sys.argv[1])))\n" + body
    )
    words = [sys.executable, "-c", script, str(users.userids()[0])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["500", "600"]


@real
def test_root_is_not_to_be_had_again() -> None:
    body = (
        "for action in (lambda: os.setuid(0), lambda: os.setgroups([0]), lambda: os.setgid(0),\n"
        "             lambda: os.chown('/', 0, 0), lambda: os.kill(os.getppid(), 0)):\n"
        "    try:\n"
        "        action()\n"
        "        print('done')\n"
        "    except PermissionError:\n"
        "        print('refused')\n"
    )

    assert become(body, str(users.userids()[0])).split() == ["refused"] * 5


@real
def test_capabilities_that_would_survive_a_change_of_user_do_not() -> None:
    """The kernel keeps them for a process that was told to keep them."""
    keep = "PR_SET_KEEPCAPS = 8\nimport ctypes\nctypes.CDLL(None).prctl(8, 1)\n"
    script = (
        keep + "import sys\nfrom warren.instance.shell import imp\n"
        "imp.become(imp.account(int(sys.argv[1])))\n"
        "print(*[line.split()[1] for line in open('/proc/self/status') if line[:3] == 'Cap'\n"
        "        and line[3:6] in ('Prm', 'Eff', 'Inh', 'Amb')])\n"
    )
    words = [sys.executable, "-c", script, str(users.userids()[0])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["0" * 16] * 4


@real
def test_a_kernel_that_does_not_do_what_it_says_is_not_believed() -> None:
    body = "print('went on')\n"
    for lie in ("setresuid", "setresgid", "setgroups"):
        script = (
            "import os, sys\n"
            "from warren.instance.shell import imp\n"
            f"os.{lie} = lambda *ids: None\n"
            "try:\n"
            "    imp.become(imp.account(int(sys.argv[1])))\n"
            f"    {body}"
            "except imp.IdentityRefused as error:\n"
            "    print(error)\n"
            "except PermissionError:\n"
            "    print('has not become')\n"
        )
        words = [sys.executable, "-c", script, str(users.userids()[0])]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert "has not become" in done.stdout, lie
