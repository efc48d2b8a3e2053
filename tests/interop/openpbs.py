"""A real PBS of a test's own: a server's host and two moms' hosts, on this machine.

The hosts are network namespaces below one process, the keeper, which is the first of a PID
namespace: with it the kernel ends every process, mount and link, and nothing is left. PBS
must be installed already, and PostgreSQL, in which it keeps its data. The test's directory
is `/mnt` inside, for PBS does not work below a directory that others may write to.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self, TextIO

SERVER: Final = "server"
MOMS: Final = ("mom1", "mom2")
USER: Final = "alice"

_ADDRESSES: Final = {SERVER: "10.77.0.1", "mom1": "10.77.0.11", "mom2": "10.77.0.12"}
_USERS: Final = {"pbsdata": 20001, USER: 20002}
"""Who keeps the data, for PostgreSQL does not run as root; and who submits, for PBS wants no
jobs of root's."""
_INSIDE: Final = "/mnt"
_STARTING: Final = 40.0


def executables() -> Path | None:
    """Find where PBS is installed."""
    named = os.environ.get("PBS_EXEC")
    qmgr = shutil.which("qmgr")
    places = [named, Path(qmgr).resolve().parents[1] if qmgr else None, "/opt/pbs"]
    return next((Path(each) for each in places if each and Path(each, "bin/qmgr").exists()), None)


def lacking() -> str | None:
    """Say what this machine lacks for a PBS of a test's own."""
    if os.geteuid() != 0:
        return "namespaces and daemons of PBS take root"
    if executables() is None:
        return "PBS is not installed: there is no qmgr"
    for program in ("unshare", "nsenter", "ip", "pg_config"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    return None


class Pbs:
    """A PBS that runs for the length of a block."""

    def __init__(self, directory: Path) -> None:
        installed = executables()
        assert installed is not None
        self.exec = installed
        self.directory = directory
        self._pids: dict[str, int] = {}
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._lay_out()
        try:
            self._make_hosts()
            self._make_store()
            self._start_daemons()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._keeper is not None:
            if SERVER in self._pids:
                os.kill(self._pids[SERVER], signal.SIGKILL)
            else:
                self._keeper.kill()
            self._keeper.wait(60)

    def home(self, host: str) -> Path:
        return self.directory / host / "home"

    def inside(self, path: Path) -> str:
        """Say where processes inside find a file of the directory."""
        return f"{_INSIDE}/{path.relative_to(self.directory)}"

    def run(
        self, host: str, command: Sequence[str], *, user: str = "root", check: bool = True
    ) -> str:
        """Run a command on a host, and return what it prints."""
        ran = subprocess.run(
            self._command(host, command, user),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and ran.returncode:
            raise AssertionError(
                f"{shlex.join(command)}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
            )
        return ran.stdout + ran.stderr

    def qmgr(self, *directives: str) -> str:
        return "".join(self.run(SERVER, ["qmgr", "-c", each]) for each in directives)

    def log(self, mom: str) -> str:
        """Return what the log of a mom has, of whatever day."""
        return "".join(
            path.read_text(errors="replace")
            for path in sorted((self.home(mom) / "mom_logs").iterdir())
        )

    def _command(self, host: str, command: Sequence[str], user: str) -> list[str]:
        path = f"{self.exec}/bin:{self.exec}/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
        # PBS copies the output of a job to where it was submitted.
        home = _INSIDE if user == "root" else f"{_INSIDE}/users/{user}"
        environment = {
            "PATH": path,
            "PBS_CONF_FILE": f"{_INSIDE}/{host}/pbs.conf",
            "LANG": "C",
            "HOME": home,
            "USER": user,
            "LOGNAME": user,
        }
        identity = [] if user == "root" else ["-S", str(_USERS[user]), "-G", str(_USERS[user])]
        return [
            "nsenter", "-t", str(self._pids[host]), "-m", "-u", "-i", "-n", "-p",
            f"--wdns={home}", *identity, "env", "-i",
            *(f"{name}={value}" for name, value in environment.items()), *command,
        ]  # fmt: skip

    def _lay_out(self) -> None:
        """Write what an installation has before its first start."""
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.directory.chmod(0o755)
        etc = self.directory / "etc"
        etc.mkdir()
        hosts = "".join(f"{address} {host}\n" for host, address in _ADDRESSES.items())
        (etc / "hosts").write_text("127.0.0.1 localhost\n" + hosts)
        for name in ("passwd", "group", "shadow"):
            shutil.copy(f"/etc/{name}", etc)
        for user, number in _USERS.items():
            home = self.directory / "users" / user
            home.mkdir(parents=True)
            os.chown(home, number, number)
            for name, line in (
                ("passwd", f"{user}:x:{number}:{number}::{self.inside(home)}:/bin/sh"),
                ("group", f"{user}:x:{number}:"),
                ("shadow", f"{user}:*:19000:0:99999:7:::"),
            ):
                with (etc / name).open("a") as opened:
                    opened.write(line + "\n")
        for host in (SERVER, *MOMS):
            self._lay_out_host(host)

    def _lay_out_host(self, host: str) -> None:
        home = self.home(host)
        directories = {
            "": 0o755,
            "spool": 0o1777,
            **(_SERVER_HOME if host == SERVER else _MOM_HOME),
        }
        for name, mode in directories.items():
            (home / name).mkdir(parents=True, exist_ok=True)
            (home / name).chmod(mode)
        conf = {
            "PBS_EXEC": str(self.exec),
            "PBS_HOME": self.inside(home),
            "PBS_SERVER": SERVER,
            "PBS_CORE_LIMIT": "unlimited",
        }
        lines = "".join(f"{name}={value}\n" for name, value in conf.items())
        (self.directory / host / "pbs.conf").write_text(lines)
        (home / "pbs_environment").write_text("PATH=/bin:/usr/bin\n")
        if host != SERVER:
            (home / "mom_priv/config").write_text("$usecp *:/ /\n")
            return
        (home / "server_priv/db_user").write_text("pbsdata")
        (home / "server_priv/db_user").chmod(0o600)
        for source, name in _SCHEDULING.items():
            shutil.copy(self.exec / "etc" / source, home / "sched_priv" / name)
        for hooks in self.exec.glob("lib*/python/altair/pbs_hooks"):
            for path in hooks.glob("PBS_cray_atom.*"):
                shutil.copy(path, home / "server_priv/hooks")

    def _make_hosts(self) -> None:
        with (self.directory / "keeper.log").open("w") as log:
            self._keeper = self._keep(log)
        ready = self.directory / "ready"
        self.wait(lambda: ready.exists() or self._keeper_failed(), "the hosts")
        (keeper,) = _children(self._keeper.pid)
        self._pids = {SERVER: keeper, **dict(zip(MOMS, _children(keeper), strict=True))}

    def _keep(self, log: TextIO) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [
                # Also if the tests are killed, nothing of it stays.
                "setpriv", "--pdeathsig", "KILL",
                "unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child",
                "--mount-proc", "--propagation", "private",
                # Its daemons close every descriptor that they might have.
                "prlimit", "--nofile=1024:4096",
                sys.executable, "-I", __file__, str(self.directory),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def _keeper_failed(self) -> bool:
        assert self._keeper is not None
        if self._keeper.poll() is not None:
            raise AssertionError((self.directory / "keeper.log").read_text())
        return False

    def _make_store(self) -> None:
        self._daemon(
            SERVER,
            "export PBS_EXEC PBS_HOME PBS_SERVER PBS_DATA_SERVICE_USER=pbsdata "
            "PBS_DATA_SERVICE_PORT=15007; exec $PBS_EXEC/libexec/pbs_db_utility install_db",
        )

    def _start_daemons(self) -> None:
        # The others talk through pbs_comm, and are slow to try again where it is not there yet.
        self._daemon(SERVER, "exec $PBS_EXEC/sbin/pbs_comm")
        self._daemon(SERVER, "exec $PBS_EXEC/sbin/pbs_server.bin -t create")
        self.wait(lambda: "Server" in self.run(SERVER, ["qstat", "-B"], check=False), "the server")
        for mom in MOMS:
            self._daemon(mom, "exec $PBS_EXEC/sbin/pbs_mom")
        self._daemon(SERVER, "exec $PBS_EXEC/sbin/pbs_sched")
        self.qmgr(
            "create queue workq queue_type=execution,enabled=true,started=true",
            "set server default_queue=workq,scheduling=true,flatuid=true,job_history_enable=true",
            *(f"create node {mom}" for mom in MOMS),
        )
        self.wait(
            lambda: self.run(SERVER, ["pbsnodes", "-a"], check=False).count("= free") == len(MOMS),
            "the nodes",
        )
        # Until it has met the server, nothing is scheduled for ten minutes.
        self.wait(lambda: "state = down" not in self.qmgr("list sched"), "the scheduler")

    def _daemon(self, host: str, words: str) -> None:
        log = f"{_INSIDE}/{host}.out"
        script = (
            ". $PBS_CONF_FILE; export PBS_EXEC; . $PBS_EXEC/libexec/pbs_db_env; "
            f"exec >>{log} 2>&1 </dev/null; {words}"
        )
        self.run(host, ["sh", "-c", script])

    def wait(self, condition: Callable[[], object], what: str, seconds: float = _STARTING) -> Any:
        """Wait for something, and return what it is."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds:g} s for {what}")
            time.sleep(0.05)
        return found


_SERVER_HOME: Final = {
    "server_logs": 0o755, "server_priv": 0o750, "server_priv/accounting": 0o755,
    "server_priv/jobs": 0o750, "server_priv/users": 0o750, "server_priv/hooks": 0o750,
    "server_priv/hooks/tmp": 0o750, "sched_logs": 0o755, "sched_priv": 0o750, "comm_logs": 0o755,
}  # fmt: skip
_MOM_HOME: Final = {
    "aux": 0o755, "checkpoint": 0o700, "mom_logs": 0o755, "mom_priv": 0o751,
    "mom_priv/jobs": 0o751, "mom_priv/hooks": 0o750, "mom_priv/hooks/tmp": 0o750,
    "undelivered": 0o1777,
}  # fmt: skip
_SCHEDULING: Final = {
    "pbs_dedicated": "dedicated_time",
    "pbs_holidays": "holidays",
    "pbs_resource_group": "resource_group",
    "pbs_sched_config": "sched_config",
}


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# -- the keeper -------------------------------------------------------------------------------


def _keep(directory: Path) -> None:
    """Be the server's host, and the first process of all hosts."""

    def do(*command: str) -> None:
        subprocess.run(command, check=True)

    do("mount", "--bind", str(directory), _INSIDE)
    for name in ("hosts", "passwd", "group", "shadow"):
        do("mount", "--bind", str(directory / "etc" / name), f"/etc/{name}")
    # PostgreSQL's socket, and that of the process which qsub leaves behind: with others' there,
    # jobs would go to another PBS.
    for place in ("/run/postgresql", "/var/tmp"):
        if Path(place).is_dir():
            do("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", place)
    do("hostname", SERVER)
    do("ip", "link", "set", "lo", "up")
    do("ip", "link", "add", "br0", "type", "bridge")
    do("ip", "addr", "add", f"{_ADDRESSES[SERVER]}/24", "dev", "br0")
    do("ip", "link", "set", "br0", "up")
    for number, mom in enumerate(MOMS):
        _host(directory, number, mom, do)
    (directory / "ready").touch()
    while True:  # the first process buries all others
        try:
            os.wait()
        except ChildProcessError:
            return


def _host(directory: Path, number: int, mom: str, do: Callable[..., None]) -> None:
    """Make a mom's host: a process that holds its namespaces, and a link to the bridge."""
    made, up = directory / f"{mom}.made", directory / f"{mom}.up"
    own = (
        f"touch {made}; read go; hostname {mom}; ip link set lo up; "
        f"ip addr add {_ADDRESSES[mom]}/24 dev v{number}; ip link set v{number} up; "
        f"touch {up}; exec sleep infinity"
    )
    holder = subprocess.Popen(
        ["unshare", "--mount", "--uts", "--net", "sh", "-c", own], stdin=subprocess.PIPE
    )
    while not made.exists():
        time.sleep(0.01)
    do("ip", "link", "add", f"v{number}", "netns", str(holder.pid), "type", "veth", "peer", "name",
       f"p{number}")  # fmt: skip
    do("ip", "link", "set", f"p{number}", "master", "br0", "up")
    assert holder.stdin is not None
    holder.stdin.write(b"go\n")
    holder.stdin.close()
    while not up.exists():
        time.sleep(0.01)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
