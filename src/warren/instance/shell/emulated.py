"""What libraries are told on emulated nodes that are in user namespaces of their own.

UCX, which MPICH is built on, takes processes of one kernel for processes of one node. It opens
shared memory in /proc of a task, or reads that task's memory, neither of which the kernel allows
from another user namespace. Over TCP it waits in the end for answers that tasks which have
come to PMI's barrier do not give any more. System V shared memory is for all of a user's tasks.
"""

from typing import Final

from warren.instance.shell.plugins import RunningShell, ShellPlugin

SETTINGS: Final = {"UCX_TLS": "sysv,self"}


class UserNamespaceSettings(ShellPlugin):
    """Sets variables in the tasks' environment, unless the user has set them."""

    async def init(self, shell: RunningShell) -> None:
        for name, value in SETTINGS.items():
            shell.environment.setdefault(name, value)
