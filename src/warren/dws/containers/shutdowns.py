"""Which containers are asked to end, while PostRun waits for them (dws-spec section 12.4)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import msgspec

from warren.base.objects import Object
from warren.dws.containers import mpi
from warren.dws.containers.containerprofiles import ContainerProfile, port_count_of
from warren.dws.objects.workflows import State, Workflow
from warren.dws.pods.batchjobs import BatchJob

RETRY_DELAY: Final = 2.0
"""After how many seconds those that have not ended are asked again."""

BATCH_SIZE: Final = 64
"""How many of a Workflow's are asked at one time: silent ones hold up neither it nor others."""

PATH: Final = "/shutdown"
BODY: Final = {"message": "shutdown"}


class ShutdownRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the container behind a port of a rabbit to end."""

    rabbit: str
    """Whose name the container's certificate is for."""
    address: str
    port: int


def url(request: ShutdownRequest) -> str:
    """Return where a container is asked."""
    host = f"[{request.address}]" if ":" in request.address else request.address
    return f"https://{host}:{request.port}{PATH}"


def headers(token: str | None) -> dict[str, str]:
    """Return the headers of a request, by which a container knows whose it is."""
    if token is None:
        return {}
    return {"Authorization": f"Bearer {token}", "X-Auth-Type": "XOAUTH2"}


def may_wait_for_containers(workflow: Workflow) -> bool:
    """Return whether a Workflow may wait for containers to end."""
    status = workflow.status
    waits = status.state is State.POST_RUN is workflow.spec.desired_state and not status.ready
    return waits and not workflow.metadata.deleting


def decide(
    workflow: Workflow,
    profile: ContainerProfile,
    jobs: Collection[BatchJob],
    ports: Sequence[int],
    find_node: Callable[[str], Object | None],
) -> list[ShutdownRequest]:
    """Return the requests to make: none where PostRun does not wait.

    A container is asked at the first of its ports. Rabbits are addressed as their Nodes say, which
    `find_node` returns by name. Of an MPI application the launcher is asked alone: its workers end
    when they are removed.
    """
    if not may_wait_for_containers(workflow) or not profile.data.post_run_timeout_seconds:
        return []
    first_ports = list(_first_ports(profile, ports))
    running = [
        each
        for each in jobs
        if not (each.is_complete or each.failure or mpi.is_worker(each.metadata))
    ]
    rabbits = {each.node for each in running if each.node is not None}
    addresses = {name: _address(find_node(name) or {}) for name in sorted(rabbits)}
    return [
        ShutdownRequest(rabbit=rabbit, address=address, port=port)
        for rabbit, address in addresses.items()
        if address is not None
        for port in first_ports
    ]


def next_batch(
    requests: Sequence[ShutdownRequest], begin: int
) -> tuple[Sequence[ShutdownRequest], int]:
    """Return those that have their turn, and where the next turn begins: all have one, in time."""
    rotated = [*requests[begin:], *requests[:begin]]
    return rotated[:BATCH_SIZE], (begin + BATCH_SIZE) % len(requests) if len(
        requests
    ) > BATCH_SIZE else 0


def _first_ports(profile: ContainerProfile, ports: Sequence[int]) -> Iterator[int]:
    """Return the first port of each container that has some."""
    begin = 0
    for container in profile.containers:
        count = port_count_of(container, profile.data.num_ports)
        yield from ports[begin : begin + min(count, 1)]
        begin += count


def _address(node: Object) -> str | None:
    addresses = (node.get("status") or {}).get("addresses") or ()
    return next((each["address"] for each in addresses if each["type"] == "InternalIP"), None)
