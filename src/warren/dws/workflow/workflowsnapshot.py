"""A Workflow with all that decisions look at, and what a piece of its work comes to."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from warren.base.objects import Key, Kind, Object, Write
from warren.directives.diagnostics import Mistake
from warren.directives.parse import Directive, parse
from warren.dws import children, containerauth, tolerance
from warren.dws.containers import containerprofiles
from warren.dws.containers.mpi import SshKey
from warren.dws.containers.ports import NnfPortManager
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import Workflow
from warren.dws.offload.copyservice import OffloadService
from warren.dws.persistent.instances import InstanceSnapshot
from warren.dws.pods.batchjobs import BatchJob
from warren.dws.pods.pod import NO_RUNTIME_MESSAGE
from warren.dws.rabbits import rabbitstorages
from warren.dws.validation.facts import Facts
from warren.dws.validation.findings import findings


class WorkflowSnapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A Workflow and what belongs to it. Children are by name, in the Workflow's namespace."""

    workflow: Workflow
    breakdowns: Mapping[str, DirectiveBreakdown]
    servers: Mapping[str, Servers]
    storages: Mapping[str, NnfStorage]
    accesses: Mapping[str, NnfAccess]
    movements: Sequence[NnfDataMovement]
    computes: Computes | None
    file_systems: Sequence[LustreFileSystem]
    rabbits: Mapping[str, Storage]
    """All of them: each is read when it is looked at."""
    instances: Mapping[str, InstanceSnapshot] = msgspec.field(default_factory=dict)
    """The persistent storage that the directives name, by name: what there is of it."""
    groups: Collection[int] = ()
    """The groups of the Workflow's user, where an instance is shared with some."""
    dependents: Sequence[tuple[Kind, Key]]
    """Everything that is labelled as the Workflow's, of whatever kind."""
    wiring: Mapping[str, str] | None = None
    """The rabbit of each compute node, empty for one without; None while that is not known."""
    positions: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The position of each compute node among those of its rabbit, as far as `wiring` is known."""
    copy_profiles: Mapping[str, Object] = msgspec.field(default_factory=dict)
    """The NnfDataMovementProfiles that directives choose from."""
    pinned_copy_profiles: Mapping[str, Object] = msgspec.field(default_factory=dict)
    """The copies of them that directives have, by the name of the directive's objects."""
    container_profiles: Mapping[str, Object] = msgspec.field(default_factory=dict)
    """The NnfContainerProfiles that directives choose from."""
    pinned_container_profiles: Mapping[str, Object] = msgspec.field(default_factory=dict)
    """The copies of them that directives have, by the name of the directive's objects."""
    container_jobs: Mapping[str, BatchJob] = msgspec.field(default_factory=dict)
    """The batch jobs of its containers."""
    port_manager: NnfPortManager | None = None
    token_secrets: containerauth.TokenSecrets | None = None
    """The Secrets of its token; None where they were not looked at."""
    pod_nodes: Mapping[str, Object] = msgspec.field(default_factory=dict)
    """The Nodes of the Kubernetes cluster, by name. Rabbits that are some run containers."""
    why_no_containers: str | None = None
    """Why none of them can, if that is so."""
    offload_service: OffloadService | None = None
    """Where running jobs ask for copies, if they do anywhere."""
    new_ssh_key: Callable[[], SshKey] = SshKey
    """Makes a key pair for an MPI application."""
    why_not_made: Callable[[str], str | None] = lambda fs_type: None
    """Tells why no rabbit makes a type of file systems; None where one does."""
    mount_prefix: str
    """Where nodes mount; a Workflow's own place under it has its UID in its name."""
    now: float

    def child_name(self, index: int) -> str:
        """Return the name of the objects made for one directive."""
        return children.name(self.workflow, index)

    def mount_path(self, index: int) -> str:
        """Return where the storage of one directive is mounted, on computes as on rabbits."""
        return f"{self.mount_prefix}/{self.workflow.metadata.uid}-{index}"

    @cached_property
    def lost_nodes(self) -> frozenset[str]:
        """The compute nodes that the Workflow goes on without."""
        return tolerance.lost_nodes(self.workflow.metadata)

    @cached_property
    def directives(self) -> Sequence[Directive]:
        return [parse(text) for text in self.workflow.spec.dw_directives]

    @property
    def has_containers(self) -> bool:
        """Whether some directive asks for containers."""
        return any(each.command.text == "container" for each in self.directives)

    @cached_property
    def mistakes(self) -> Mapping[int, Mistake]:
        """The first mistake of each directive that has one, by the directive's index."""
        names_raw = any(each.values.get("type") == "raw" for each in self.directives)
        facts = Facts(
            userid=self.workflow.spec.user_id,
            file_systems=self.file_systems,
            raw_volume_access=rabbitstorages.raw_volume_access(self.rabbits.values())
            if names_raw
            else None,
            why_not_made=self.why_not_made,
            groupid=self.workflow.spec.group_id,
            copy_profiles=frozenset(self.copy_profiles),
            has_offload=self.offload_service is not None,
            runs_containers=bool(self.pod_nodes) and self.why_no_containers is None,
            why_no_containers=self.why_no_containers or NO_RUNTIME_MESSAGE,
            container_profiles=containerprofiles.by_name(self.container_profiles.values())
            if self.has_containers
            else None,
        )
        mistake_by_index: dict[int, Mistake] = {}
        for finding in findings(self.directives, facts):
            mistake_by_index.setdefault(finding.directive_index, finding.mistake)
        return mistake_by_index


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler writes, and what it waits for."""

    writes: Sequence[Write] = ()
    waiting: str | None = None
    """What the Workflow's message says; None when the handler is done."""
    env: Mapping[str, str] | None = None
    """Variables for the job's tasks."""


DONE: Final = Outcome()
