"""The plugins that every shell with tasks of its own has."""

from pathlib import Path

from warren.instance.shell.affinity import NodeCores
from warren.instance.shell.commandpath import CommandPath
from warren.instance.shell.firstexit import FirstExit
from warren.instance.shell.input import Stdin
from warren.instance.shell.limits import CpuBinding, GpuVisibility, ResourceLimits
from warren.instance.shell.plugins import ShellPlugin
from warren.instance.shell.pmi import Pmi
from warren.instance.shell.pty import Pty
from warren.instance.shell.signals import Kill, SignalBeforeExpiration
from warren.instance.shell.templates import EnvExpand
from warren.instance.shell.tmpdir import Tmpdir


def builtin(tmp: Path, node: NodeCores) -> list[ShellPlugin]:
    """Return the plugins of one shell of a node.

    Jobs have their directories below `tmp`, which all may write.
    """
    return [
        Tmpdir(tmp),
        CommandPath(),
        EnvExpand(),
        Pty(),
        Stdin(),
        Pmi(),
        CpuBinding(node),
        GpuVisibility(),
        ResourceLimits(),
        Kill(),
        SignalBeforeExpiration(),
        FirstExit(),
    ]
