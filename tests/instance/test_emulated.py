"""What tasks are told on emulated nodes in user namespaces."""

import asyncio
from types import SimpleNamespace
from typing import cast

from warren.instance.shell.emulated import SETTINGS, UserNamespaceSettings
from warren.instance.shell.plugins import RunningShell


def told(**environment: str) -> dict[str, str]:
    shell = SimpleNamespace(environment=environment)
    asyncio.run(UserNamespaceSettings().init(cast(RunningShell, shell)))
    return environment


def test_tasks_are_told_of_a_transport_that_crosses_user_namespaces() -> None:
    assert told(HOME="/home/u") == {"HOME": "/home/u", **SETTINGS}


def test_what_a_user_has_set_stands() -> None:
    assert told(UCX_TLS="tcp,self") == {"UCX_TLS": "tcp,self"}
