"""What a cluster is to be: the options that were given, and those that its directory remembers.

An option that is not given stays as it was. One that is given and differs is applied, or
refused with what stands in the way: what is in use is not taken away, and nodes keep their
names.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NoReturn

import msgspec

from warren.base.bytesize import format_bytes
from warren.base.errors import UserMistake
from warren.daemons.clustershape import ClusterShape

IMAGE: Final = "image"
"""The value of `--rabbit-device` that gives a rabbit an image again."""

ANY_PORT: Final = 0


class RequestedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `warren up` was told; None for what it was not."""

    rabbits: int | None = None
    computes_per_rabbit: int | None = None
    capacity: int | None = None
    """Bytes of flash on each rabbit."""
    flash: Literal["directory", "image", "simulated"] | None = None
    faults: Mapping[str, Any] | None = None
    """Times and faults of simulated flash."""
    devices: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By rabbit, for those that are named: the others keep theirs."""
    global_file_systems: tuple[str, ...] | None = None
    port: int | None = None
    isolated: bool | None = None
    separate: bool | None = None
    conductor: bool | None = None
    agents: bool | None = None


class ExistingCluster(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a cluster when it is started again."""

    count_volumes: Callable[[], Mapping[str, int]] = dict
    """Looks how many volumes each rabbit has, for those that have any."""
    shells_alive: bool = False
    """Whether its shells have outlived it."""
    why_no_images: str | None = None
    """Why flash cannot be images here; None if it can."""


def cluster_shape(
    previous: ClusterShape | None, requested: RequestedOptions, existing: ExistingCluster
) -> ClusterShape:
    """Return what the cluster is from now on. Raises UserMistake for what cannot be."""
    shape = _merged_shape(previous, requested, existing)
    if not (shape.conductor or shape.separate):
        raise UserMistake(
            "--no-conductor: where all is one process, the conductor is part of it. Add "
            "--separate, or --conductor if this cluster has had none so far."
        )
    if previous is None:
        return shape
    if shape.rabbits < previous.rabbits:
        _refuse(
            f"--rabbits {shape.rabbits}",
            f"there are {previous.rabbits} here, and rabbits can only be added",
        )
    if shape.computes_per_rabbit != previous.computes_per_rabbit:
        _refuse(
            f"--computes-per-rabbit {shape.computes_per_rabbit}",
            f"there are {previous.computes_per_rabbit} here, and another number would give "
            "compute nodes other names",
        )
    if shape.flash != previous.flash:
        _refuse(
            f"--flash {shape.flash}",
            f"volumes are {_VOLUME_DESCRIPTIONS[previous.flash]} here, and stay that",
        )
    if shape.isolated != previous.isolated and existing.shells_alive:
        option = "--namespaces" if shape.isolated else "--no-namespaces"
        raise UserMistake(
            f"{option}: jobs of this cluster still run as they were started: end them with "
            "'warren down' first."
        )
    if previous.agents and not shape.agents and (volume_counts := existing.count_volumes()):
        rabbit = min(volume_counts)
        raise UserMistake(
            f"--no-agents: {rabbit} still has volumes of jobs, which the agents of this cluster "
            "have made. Start it without this option, and let those jobs end first."
        )
    rabbits_with_new_device = {
        rabbit
        for rabbit in {*previous.devices, *shape.devices}
        if previous.devices.get(rabbit) != shape.devices.get(rabbit)
    }
    if shape.capacity < previous.capacity or rabbits_with_new_device:
        _check_empty(previous, shape, rabbits_with_new_device, existing.count_volumes())
    return shape


_VOLUME_DESCRIPTIONS: Final = {
    "directory": "plain directories",
    "image": "on block devices",
    "simulated": "simulated",
}


def _merged_shape(
    previous: ClusterShape | None, requested: RequestedOptions, existing: ExistingCluster
) -> ClusterShape:
    """Return what was remembered with what is asked for in its place."""
    base = previous or ClusterShape()
    rabbits = base.rabbits if requested.rabbits is None else requested.rabbits
    rabbit_names = [f"rabbit-{number}" for number in range(rabbits)]
    for rabbit, device in requested.devices.items():
        if rabbit not in rabbit_names:
            raise UserMistake(
                f"--rabbit-device {rabbit}={device}: the rabbits are {', '.join(rabbit_names)}."
            )
    all_devices = {**base.devices, **requested.devices}
    devices = {rabbit: device for rabbit, device in all_devices.items() if device != IMAGE}
    flash = requested.flash or (
        "image" if requested.devices else previous.flash if previous else None
    )
    if flash == "directory" and requested.devices:
        raise UserMistake("--rabbit-device: plain directories need no device.")
    if flash == "simulated" and requested.devices:
        raise UserMistake("--rabbit-device: simulated flash needs no device.")
    if flash != "simulated" and requested.faults is not None:
        raise UserMistake("--faults: only flash that is simulated has them. Add --flash simulated.")
    if flash == "image" and existing.why_no_images is not None:
        raise UserMistake(
            f"Flash cannot be disk images with loop devices here: {existing.why_no_images}."
        )
    return msgspec.structs.replace(
        base,
        rabbits=rabbits,
        computes_per_rabbit=_default(requested.computes_per_rabbit, base.computes_per_rabbit),
        capacity=_default(requested.capacity, base.capacity),
        flash=flash or ("image" if existing.why_no_images is None else "directory"),
        faults=base.faults if requested.faults is None else requested.faults,
        devices=devices,
        global_file_systems=(
            base.global_file_systems
            if requested.global_file_systems is None
            else requested.global_file_systems
        ),
        port=(base.port if requested.port is None else requested.port) or None,
        isolated=base.isolated if requested.isolated is None else requested.isolated,
        separate=base.separate if requested.separate is None else requested.separate,
        conductor=base.conductor if requested.conductor is None else requested.conductor,
        agents=base.agents if requested.agents is None else requested.agents,
    )


def _check_empty(
    previous: ClusterShape,
    shape: ClusterShape,
    rabbits_with_new_device: set[str],
    volume_counts: Mapping[str, int],
) -> None:
    """Refuse to take flash from under volumes."""
    # Where capacity shrinks, all rabbits with volumes, and not only those with more than they would
    # have room for: what jobs hold is counted in parts of a rabbit, which would become smaller.
    shrinks = shape.capacity < previous.capacity
    occupied = sorted(set(volume_counts) & rabbits_with_new_device) or (
        sorted(volume_counts) if shrinks else []
    )
    if not occupied:
        return
    rabbit = occupied[0]
    if rabbit in rabbits_with_new_device:
        option = f"--rabbit-device {rabbit}={shape.devices.get(rabbit, IMAGE)}"
        location = f"on {previous.devices.get(rabbit, 'its image')}"
    else:
        option = f"--rabbit-capacity {shape.capacity // 2**30}GiB"
        location = f"in {format_bytes(previous.capacity)}"
    count = volume_counts[rabbit]
    raise UserMistake(
        f"{option}: {rabbit} still has {count} {'volume' if count == 1 else 'volumes'} of jobs "
        f"{location}. Start the cluster without this option, and let those jobs end first."
    )


def _refuse(option: str, why: str) -> NoReturn:
    raise UserMistake(f"{option}: {why}. Leave the option out, or choose another state directory.")


def _default(requested: int | None, previous: int) -> int:
    return previous if requested is None else requested
