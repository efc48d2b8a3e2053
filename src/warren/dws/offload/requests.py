"""A copy that a running job asks for: what the request says, and where its two ends are.

One end of it, or both, is in storage of the job as the named compute node has it mounted, the other
one in a global file system (dws-spec section 18). A refusal says with which HTTP status it is
answered. What becomes of a request stands in `dws.offload.movements`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from warren.base.errors import UserMistake
from warren.base.objects import Object
from warren.dws import kinds, labels
from warren.dws.copies import staging
from warren.dws.objects.decoding import Malformed, read_json
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.offload import copyservice

VERSION: Final = "1.0"
"""Of the requests, as the header `Accepts-version` says."""

MAX_BODY_SIZE: Final = 16 * 1024
"""Bytes of a request's body: two paths and a few words."""

_MAX_PATH_BYTES: Final = 4095
"""Bytes of a path (PATH_MAX)."""

_TOO_MANY_SLOTS: Final = 2**31
"""What programs of MPI count with is an int."""

_NODE_NAME_PATTERN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_CONTROL_PATTERN: Final = re.compile(r"[\x00-\x1f\x7f]")

BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
TOO_MANY: Final = 429
UNAVAILABLE: Final = 503


class Refusal(UserMistake):
    """A request is not done; the text is what its application is told."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class CopyRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a request for a copy says."""

    compute_name: str = ""
    source_path: str = ""
    destination_path: str = ""
    dryrun: bool = False
    dcp_options: str = ""
    mpirun_options: str = ""
    log_stdout: bool = False
    store_stdout: bool = False
    slots: int = 0
    """-1 is as the profile says."""
    max_slots: int = 0
    dm_profile: str = ""


def parse(body: bytes) -> CopyRequest:
    """Read a request's body. Raises Refusal."""
    try:
        request = read_json(body, CopyRequest)
    except Malformed as error:
        message = f"unable to decode data movement request body: {error}"
        raise Refusal(BAD_REQUEST, message) from None
    for mistake in _mistakes(request):
        raise Refusal(BAD_REQUEST, mistake)
    return request


def _mistakes(request: CopyRequest) -> Iterator[str]:
    if not request.compute_name:
        yield "compute name must be supplied"
    if not request.source_path:
        yield "source path must be supplied"
    if not request.destination_path:
        yield "destination path must be supplied"
    for name, value in (("slots", request.slots), ("maxSlots", request.max_slots)):
        if value < -1:
            yield f"{name} must be -1 (defer to profile), 0 (disable), or a positive integer"
        if value >= _TOO_MANY_SLOTS:
            yield f"{name} must be less than {_TOO_MANY_SLOTS}"
    if not _NODE_NAME_PATTERN.fullmatch(request.compute_name):
        yield f"{request.compute_name!r} is no name of a compute node"
    for path in (request.source_path, request.destination_path):
        if not path.startswith("/"):
            yield f"{path!r} is no absolute path"
        if len(path.encode(errors="surrogatepass")) > _MAX_PATH_BYTES or _CONTROL_PATTERN.search(
            path
        ):
            yield "a path has 4095 bytes at most, and no control characters"
        if ".." in path.split("/"):
            yield f"{path!r} leads out of its directory: write it without '..'"
    if request.dcp_options or request.mpirun_options:
        yield "options of dcp and mpirun are the profile's: name another one as dmProfile"


# Where its ends are


class CopyEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a copy: in storage of the job, or else in a global file system."""

    path: str
    """As the request has it; within storage, from its root on."""
    mount: Object | None = None
    """What the compute node has mounted there: one of a ClientMount."""
    directive_index: str = ""
    """The index of the storage's directive; empty for none."""
    file_system: LustreFileSystem | None = None

    @property
    def device_reference(self) -> Object:
        """The reference by which mounts of the storage on rabbits are known; empty without it."""
        return {} if self.mount is None else device_reference_of(self.mount)

    @property
    def rabbit(self) -> str | None:
        """The rabbit that alone has the storage; None where several may have it mounted."""
        reference: Object = self.device_reference.get("objectReference") or {}
        is_on_one_rabbit = reference.get("kind") == kinds.NNF_NODE_STORAGE.name
        return str(reference["namespace"]) if is_on_one_rabbit else None


def device_reference_of(mount: Object) -> Object:
    """Return the reference to the storage of a mount: the same for its mounts on all nodes."""
    reference: Object = mount["device"].get("deviceReference") or {}
    return reference


class CopyEnds(msgspec.Struct, frozen=True, kw_only=True):
    """Both ends of a copy; one of them at least is in storage."""

    source: CopyEnd
    destination: CopyEnd

    @property
    def storage_ends(self) -> Sequence[CopyEnd]:
        """Return those that are in storage."""
        return [each for each in (self.source, self.destination) if each.mount is not None]

    @property
    def rabbits(self) -> set[str]:
        """Return the rabbits that alone have some of the storage."""
        return {each.rabbit for each in self.storage_ends if each.rabbit is not None}


def find_ends(
    request: CopyRequest, compute_mounts: Sequence[Object], file_systems: Sequence[LustreFileSystem]
) -> CopyEnds:
    """Find the ends of a copy. Raises Refusal.

    `compute_mounts` are the ClientMounts that the named compute node has of this Workflow.
    """
    if not compute_mounts:
        message = f"this job has nothing mounted on {request.compute_name}"
        raise Refusal(
            BAD_REQUEST, f"{message}: computeName is the compute node that has the storage"
        )
    ends = CopyEnds(
        source=_find_end(request.source_path, compute_mounts, file_systems),
        destination=_find_end(request.destination_path, compute_mounts, file_systems),
    )
    if not ends.storage_ends:
        raise Refusal(
            FORBIDDEN,
            "neither path is in storage of this job: one at least begins with a DW_JOB_ or "
            "DW_PERSISTENT_ variable's value",
        )
    if len(ends.rabbits) > 1:
        raise Refusal(
            BAD_REQUEST, "the two paths are in storage of different rabbits: none has both"
        )
    return ends


def _find_end(
    path: str, compute_mounts: Sequence[Object], file_systems: Sequence[LustreFileSystem]
) -> CopyEnd:
    for client_mount in compute_mounts:
        for mount in client_mount["spec"]["mounts"]:
            root = mount["mountPath"].rstrip("/")
            if path != root and not path.startswith(f"{root}/"):
                continue
            type_name = _type_name(mount["type"])
            if type_name in copyservice.TYPES_MOUNTED_ONCE or not device_reference_of(mount):
                raise Refusal(
                    BAD_REQUEST,
                    f"filesystem not supported: {path!r} is in {type_name} storage, "
                    "which the compute node alone has mounted; take gfs2 or lustre",
                )
            object_labels = client_mount["metadata"].get("labels") or {}
            directive_index = object_labels.get(labels.DIRECTIVE_INDEX, "")
            return CopyEnd(path=path[len(root) :], mount=mount, directive_index=directive_index)
    file_system = staging.file_system_of(path, file_systems)
    if file_system is None:
        raise Refusal(
            FORBIDDEN,
            f"{path!r} is neither in storage that this job has on the named compute node nor in a "
            "global file system",
        )
    return CopyEnd(path=path, file_system=file_system)


def _type_name(mount_type: str) -> str:
    return "raw" if mount_type == "none" else mount_type
