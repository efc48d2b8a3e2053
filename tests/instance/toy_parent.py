"""A parent of toy shells, as a program: SOCKET MARKER DIRECTORY.

A toy shell writes its process id into a file named `<job>-<rank>`, and ends when
there is a file `<job>-<rank>.end` with its exit code. On a host called `messy`
it leaves a process behind, whose id it writes down as well.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from warren.instance.shell.parent import ShellParent
from warren.instance.shell.tasks import die_with_parent

socket, marker, directory = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])


def shell(job: int, rank: int, host: str) -> int:
    die_with_parent()
    if host == "broken":
        raise RuntimeError("a shell with a bug")
    said = [str(os.getpid()), host]
    if host == "messy":
        name, _, value = marker.partition("=")
        task = subprocess.Popen(["sleep", "1000"], start_new_session=True, env={name: value})
        said.append(str(task.pid))
    place = directory / f"{job}-{rank}"
    unfinished = place.with_suffix(".new")
    unfinished.write_text(" ".join(said))
    unfinished.rename(place)
    end = place.with_suffix(".end")
    while not end.exists():
        time.sleep(0.01)
    return int(end.read_text())


ShellParent(socket, marker, shell).run()
