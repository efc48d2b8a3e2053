"""A cluster of two guests with a lock manager, as gfs2 takes it."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NAME = "guests"
SECONDS = 120.0

CONFIGURATION = f"""
totem {{
    version: 2
    cluster_name: {NAME}
    transport: udpu
    token: 20000
}}
nodelist {{
    node {{
        ring0_addr: 10.0.0.1
        nodeid: 1
    }}
    node {{
        ring0_addr: 10.0.0.2
        nodeid: 2
    }}
}}
quorum {{
    provider: corosync_votequorum
    two_node: 1
}}
logging {{
    to_stderr: yes
    to_syslog: no
    to_logfile: no
}}
"""
"""An emulated guest may be silent for long, and is not dead."""


@contextmanager
def member() -> Iterator[None]:
    """Be a member of the cluster, together with the other one, for the length of a block."""
    misc = Path("/dev/misc")
    misc.mkdir(exist_ok=True)
    for name in ("dlm-control", "dlm-monitor", "dlm_plock"):
        (misc / name).symlink_to(f"/dev/{name}")
    file = Path("/etc/corosync/corosync.conf")
    file.parent.mkdir(exist_ok=True)
    file.write_text(CONFIGURATION)
    Path("/var/lib/corosync").mkdir(exist_ok=True)
    with ExitStack() as stack:
        for argv in (["corosync", "-f"], ["dlm_controld", "-D", "--enable_fencing=0"]):
            process = stack.enter_context(
                subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.terminate)
            if argv[0] == "corosync":
                _wait(lambda: _succeeds("corosync-cmapctl", "runtime.votequorum.this_node_id"))
        comms = Path("/sys/kernel/config/dlm/cluster/comms")
        _wait(lambda: all((comms / number).exists() for number in "12"))
        yield


def _succeeds(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True).returncode == 0


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "the cluster is not formed"
        time.sleep(0.2)
