"""The ingest validator: directives are judged before a job is accepted.

Everything that Proposal would refuse is refused here, with the place of the
mistake; and a job that could never fit is not left to wait for ever.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from warren.base.accounts import groups_of
from warren.base.errors import UserMistake
from warren.base.placing import Locality
from warren.directives import rules as directive_rules
from warren.directives.diagnostics import raise_mistakes
from warren.directives.parse import Directive
from warren.directives.rules import Rule
from warren.dws import location, nodelocal
from warren.dws.breakdown import allocationneeds, computeaccess, maximums
from warren.dws.containers.containerprofiles import ContainerProfile
from warren.dws.faults import Fault
from warren.dws.jobs import placement, resources
from warren.dws.jobs.unsavedresults import UnsavedPolicy
from warren.dws.objects.breakdowns import AllocationNeed
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.storages import Storage
from warren.dws.persistent import expiry, instances
from warren.dws.pods.pod import NO_RUNTIME_MESSAGE
from warren.dws.rabbits import rabbitstorages
from warren.dws.storage import storageprofiles
from warren.dws.validation.facts import Facts, InstanceFacts
from warren.dws.validation.findings import findings
from warren.rfc import jobspec as jobspecs
from warren.scheduling.graph import Refusal
from warren.scheduling.request import Request, from_jobspec
from warren.wlm import jobdirectives, view


class StorageValidator:
    """Judges the storage part of jobspecs by what the API holds now."""

    def __init__(
        self,
        *,
        rules: Callable[[], Sequence[Rule]],
        file_systems: Callable[[], Sequence[LustreFileSystem]],
        profiles: Callable[[], Sequence[NnfStorageProfile]],
        rabbits: Callable[[], Iterable[Storage]],
        find_refusal: Callable[[Request], Refusal | None],
        largest_rabbit_gib: Callable[[], int | None] = lambda: None,
        policy: placement.PlacementPolicy = placement.DEFAULT_POLICY,
        min_allocation: int,
        persistent: Mapping[str, InstanceFacts],
        nodes: Callable[[str], Sequence[str] | None],
        now: Callable[[], float],
        max_lifetime: float | None = None,
        directives_of: Callable[[int, int], Sequence[str]] = lambda job, userid: (),
        read_groups: Callable[[int], Collection[int]] = groups_of,
        max_gib_per_node: Mapping[str, int] = {},
        creator: int | None = None,
        unsaved_choices: Sequence[str] = tuple(UnsavedPolicy),
        containers: Callable[[], Mapping[str, ContainerProfile] | str] = lambda: NO_RUNTIME_MESSAGE,
        copy_profiles: Callable[[], frozenset[str]] = frozenset,
        why_not_made: Callable[[str], str | None] = lambda fs_type: None,
        only_some_rabbits_make: Callable[[str], bool] = lambda kind: False,
        offload: Callable[[], bool] = lambda: False,
    ) -> None:
        """`persistent` are the instances by name, and `nodes` tells which nodes one is for.

        None stands for all nodes, or that it is not known yet. `directives_of` returns the
        directives of a job that is not over, if it is this user's. `max_gib_per_node` has the
        limits by type. `creator` alone may create persistent storage; None lets all users.
        `unsaved_choices` is what jobs may choose that becomes of what they have written.
        `containers` returns the profiles of containers by name, or why no rabbit runs any,
        `copy_profiles` the names of those of copies, `why_not_made` why no rabbit makes a type of
        file systems, if that is so, and `only_some_rabbits_make` whether some rabbits make one and
        others do not. `offload` tells whether running jobs may ask for copies.
        """
        self._rules = rules
        self._file_systems = file_systems
        self._profiles = profiles
        self._rabbits = rabbits
        self._find_refusal = find_refusal
        self._largest_rabbit_gib = largest_rabbit_gib
        self._policy = policy
        self._min_allocation = min_allocation
        self._persistent = persistent
        self._nodes = nodes
        self._directives_of = directives_of
        self._now = now
        self._max_lifetime = max_lifetime
        self._read_groups = read_groups
        self._max_gib_per_node = max_gib_per_node
        self._creator = creator
        self._unsaved_choices = unsaved_choices
        self._containers = containers
        self._copy_profiles = copy_profiles
        self._why_not_made = why_not_made
        self._only_some_rabbits_make = only_some_rabbits_make
        self._offload = offload

    def __call__(self, spec: Mapping[str, Any], userid: int) -> Mapping[str, Any]:
        """Return a jobspec as it will be scheduled, its flash included.

        Raises UserMistake where it must not be accepted from this user.
        """
        texts = jobdirectives.directives(spec)
        jobdirectives.check_directive_limits(texts or ())
        if texts is not None and not texts:
            raise UserMistake("The job's dw attribute holds no #DW directive.")
        view.failure_tolerance(spec)
        view.unsaved_results(spec, self._unsaved_choices)
        self._check_expiry(spec)
        directives = self._check_directives(texts, spec, userid) if texts else ()
        rewritten = self._rewrite(spec, directives)
        refusal = self._find_refusal(from_jobspec(rewritten))
        if refusal is not None:
            raise UserMistake(refusal.reason)
        return rewritten

    def _check_expiry(self, spec: Mapping[str, Any]) -> None:
        """Raise UserMistake for a moment at which storage that is created cannot expire."""
        moment, now = view.storage_expiry(spec), self._now()
        if moment is None:
            return
        if moment <= now:
            raise UserMistake("The storage would expire before it is created.")
        if self._max_lifetime is not None and moment > now + self._max_lifetime:
            latest = expiry.expiry_text(now + self._max_lifetime)
            raise UserMistake(
                f"Persistent storage is kept until {latest} at most (storage.persistent-max)."
            )

    def _check_directives(
        self, texts: Sequence[str], spec: Mapping[str, Any], userid: int
    ) -> Sequence[Directive]:
        """Return the directives. Raises Mistakes, or the only Mistake."""
        awaited_jobs = view.awaited_jobs(spec)
        profiles_or_why = (
            self._containers() if any("container" in text for text in texts) else NO_RUNTIME_MESSAGE
        )
        why_no_containers = profiles_or_why if isinstance(profiles_or_why, str) else None
        facts = Facts(
            runs_containers=why_no_containers is None,
            why_no_containers=why_no_containers or NO_RUNTIME_MESSAGE,
            container_profiles=None if isinstance(profiles_or_why, str) else profiles_or_why,
            copy_profiles=self._copy_profiles(),
            has_offload=self._offload(),
            userid=userid,
            may_create=self._creator in (None, userid),
            file_systems=self._file_systems(),
            # All rabbits are looked at only where that can matter.
            raw_volume_access=rabbitstorages.raw_volume_access(self._rabbits())
            if self._may_name_raw_storage(texts)
            else None,
            why_not_made=self._why_not_made,
            instances=self._persistent,
            storage_profiles=self._profiles(),
            groups=self._read_groups(userid) if self._needs_groups(texts) else (),
            now=self._now(),
            duration=jobspecs.system(spec).get("duration") or 0.0,
            has_dependencies=bool(awaited_jobs),
            storage_of_dependencies=frozenset(
                name
                for job in awaited_jobs
                for name in instances.instance_names(
                    self._directives_of(job, userid), ("create_persistent",)
                )
            ),
        )
        checked = directive_rules.check_directives(texts, self._rules())
        raise_mistakes(findings(checked.directives, facts, checked.findings))
        return [each for each in checked.directives if each is not None]

    def _needs_groups(self, texts: Sequence[str]) -> bool:
        """Return whether it matters which groups the user is in: they are looked up for that."""
        named_instances = (self._persistent.get(name) for name in instances.instance_names(texts))
        return any(each is not None and each.sharing.groups for each in named_instances)

    def _may_name_raw_storage(self, texts: Sequence[str]) -> bool:
        """Return whether directives may be about raw volumes: new ones, or those of an instance."""
        named_instances = (self._persistent.get(name) for name in instances.instance_names(texts))
        return any("raw" in text for text in texts) or any(
            each is not None and each.fs_type == "raw" for each in named_instances
        )

    def _rewrite(
        self, spec: Mapping[str, Any], directives: Sequence[Directive]
    ) -> Mapping[str, Any]:
        """Return the jobspec as it will be when the storage side has rewritten it."""
        available = self._profiles()
        try:
            needs: list[AllocationNeed] = []
            localities: list[Locality] = []
            typed_needs: list[tuple[str, Sequence[AllocationNeed]]] = []
            for directive in directives:
                if self._creates_storage(directive):
                    profile = storageprofiles.choose(directive.values.get("profile"), available)
                    directive_needs = allocationneeds.needs_of(directive, profile)
                    fs_type = directive.values["type"]
                    if self._only_some_rabbits_make(fs_type):
                        directive_needs = allocationneeds.with_supported_type_label(
                            directive_needs, fs_type
                        )
                    needs += self._policy.with_site_limits(directive_needs)
                    typed_needs.append((fs_type, directive_needs))
                    localities += self._localities(directive, directive_needs, profile)
            node_count = resources.least_node_count(spec["resources"])
            maximums.check_maximums(
                typed_needs, node_count, self._min_allocation, self._max_gib_per_node
            )
            new_resources = resources.rewrite(
                spec["resources"],
                needs,
                self._min_allocation,
                self._largest_rabbit_gib(),
                localities,
            )
            allowed_nodes = self._nodes_of_persistent(directives)
            if allowed_nodes is not None:
                nodelocal.check_enough_nodes(allowed_nodes, node_count)
        except Fault as fault:
            raise UserMistake(f"{str(fault)[:1].upper()}{str(fault)[1:]}.") from fault
        attributes = spec.get("attributes") or {}
        system = {**(attributes.get("system") or {}), "dw_constraints": new_resources.constraints}
        rewritten = {
            **spec,
            "resources": new_resources.resources,
            "attributes": {**attributes, "system": system},
        }
        return (
            rewritten
            if allowed_nodes is None
            else view.constrain_to_nodes(rewritten, allowed_nodes)
        )

    def _creates_storage(self, directive: Directive) -> bool:
        """Return whether a directive has storage made, rather than name some that is there."""
        if directive.command.text == "create_persistent":
            return directive.values["name"] not in self._persistent
        return directive.command.text == "jobdw"

    def _localities(
        self, directive: Directive, needs: Sequence[AllocationNeed], profile: NnfStorageProfile
    ) -> Iterator[Locality]:
        for need in needs:
            access = computeaccess.access_constraints(directive.values["type"], need.label, profile)
            typed_priorities = [(each["type"], each["priority"]) for each in access]
            yield location.locality(
                typed_priorities, allow_any_rabbit=self._policy.allow_any_rabbit
            )

    def _nodes_of_persistent(self, directives: Sequence[Directive]) -> tuple[str, ...] | None:
        """Return the nodes that have all node-local storage that is there already."""
        allowed: tuple[str, ...] | None = None
        for directive in directives:
            if directive.command.text == "persistentdw":
                nodes = self._nodes(directive.values["name"])
                if nodes is not None:
                    common = set(nodes) if allowed is None else {*nodes} & {*allowed}
                    allowed = tuple(each for each in nodes if each in common)
        return allowed
