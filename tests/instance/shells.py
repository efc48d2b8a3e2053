"""What tests of a shell's parts stand on: parts of jobs that were never submitted."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tests.instance.parts import OWNER
from warren.instance.shell import shellinfo
from warren.instance.shell.shellinfo import ShellInfo
from warren.rfc import jobspec, resource_set, signed_request
from warren.rfc.fluid import JobId

JOB = JobId(6731191091817518)
"""ƒuZZybuNNy"""


def info(
    *,
    rank: int = 0,
    nodes: Sequence[Sequence[int]] = ((0, 1, 2, 3),),
    gpus: Sequence[int] = (),
    options: Mapping[str, Any] | None = None,
    change: Mapping[str, Any] | None = None,
    expiration: float = 0.0,
    **asked: Any,
) -> ShellInfo:
    """Read a job as a shell does. `nodes` are their cores, `change` replaces keys of the task."""
    spec = jobspec.make(**{"command": ["app"], "nodes": len(nodes), **asked})
    spec["tasks"][0].update(change or {})
    if options is not None:
        spec["attributes"]["system"]["shell"] = {"options": options}
    ranks = [
        resource_set.NodeResources(number, f"node{number}", tuple(cores), tuple(gpus))
        for number, cores in enumerate(nodes)
    ]
    found = {
        "J": signed_request.wrap(orjson.dumps(spec), OWNER),
        "jobspec": orjson.dumps(jobspec.without_environment(spec)).decode(),
        "R": orjson.dumps(resource_set.encode_nodes(ranks, expiration=expiration)).decode(),
    }
    return shellinfo.read(found, JOB, rank)
