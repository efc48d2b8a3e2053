"""Checks directives before they are submitted: by a cluster's own rules, or by ours."""

import os
import time
from collections.abc import Sequence

import msgspec

from warren.base.objects import Object
from warren.cli.common import run
from warren.directives import rules as directive_rules
from warren.directives.diagnostics import Finding
from warren.directives.rules import Rule
from warren.dws import kinds
from warren.dws.containers import containerprofiles
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.storages import Storage
from warren.dws.offload import copyservice
from warren.dws.rabbits import rabbitstorages
from warren.dws.validation.facts import NO_FACTS, Facts, instance_facts
from warren.dws.validation.findings import findings
from warren.kube.kubeconfig import ClusterAccess


class DirectiveChecker(msgspec.Struct, frozen=True, kw_only=True):
    """The rules, and what is known of the cluster, by which directives are checked."""

    rules: Sequence[Rule]
    facts: Facts

    def findings(self, texts: Sequence[str]) -> list[Finding]:
        """Return all mistakes of some directives, as ingest finds them."""
        checked = directive_rules.check_directives(texts, self.rules)
        return findings(checked.directives, self.facts, checked.findings)


def checker_without_cluster() -> DirectiveChecker:
    """Return a checker with the rules that come with Warren, for no cluster."""
    from warren.daemons.clusterobjects import manifests

    rule_objects = [
        obj for obj in manifests("rules.yaml") if obj["kind"] == kinds.DIRECTIVE_RULE.name
    ]
    return DirectiveChecker(rules=directive_rules.rules_of(rule_objects), facts=NO_FACTS)


def checker_of_cluster(access: ClusterAccess) -> DirectiveChecker:
    """Return a checker with the rules of a cluster, and what it says of itself."""
    from warren.kube.http import connect

    listed_kinds = (
        kinds.DIRECTIVE_RULE,
        kinds.LUSTRE_FILE_SYSTEM,
        kinds.NNF_STORAGE_PROFILE,
        kinds.STORAGE,
        kinds.PERSISTENT_INSTANCE,
        kinds.CONTAINER_PROFILE,
        kinds.NODE,
        kinds.COPY_PROFILE,
        kinds.SYSTEM_CONFIGURATION,
    )

    async def list_all() -> list[list[Object]]:
        async with connect(access) as client:
            return [(await client.list(kind)).items for kind in listed_kinds]

    (
        rules,
        file_systems,
        profiles,
        storages,
        persistent_instances,
        container_profiles,
        nodes,
        copy_profiles,
        configurations,
    ) = run(list_all())
    rabbit_storages = [read(obj, Storage) for obj in storages]
    facts = Facts(
        userid=os.getuid(),
        now=time.time(),
        groups=frozenset(os.getgroups()),
        file_systems=[read(obj, LustreFileSystem) for obj in file_systems],
        raw_volume_access=rabbitstorages.raw_volume_access(rabbit_storages),
        why_not_made=lambda fs_type: rabbitstorages.why_not_made(fs_type, rabbit_storages),
        # Whose controllers run them on its nodes is not known.
        runs_containers=None if nodes else False,
        container_profiles=containerprofiles.by_name(
            _within(kinds.PROFILES_NAMESPACE, container_profiles)
        ),
        copy_profiles=frozenset(
            obj["metadata"]["name"] for obj in _within(kinds.PROFILES_NAMESPACE, copy_profiles)
        ),
        has_offload=any(copyservice.service_of_configuration(obj) for obj in configurations),
        groupid=os.getgid(),
        storage_profiles=[
            read(obj, NnfStorageProfile) for obj in _within(kinds.PROFILES_NAMESPACE, profiles)
        ],
        instances={
            instance.name: instance
            for instance in map(
                instance_facts, _within(kinds.DEFAULT_NAMESPACE, persistent_instances)
            )
        },
    )
    cluster_rules = directive_rules.rules_of(_within(kinds.RULES_NAMESPACE, rules))
    return DirectiveChecker(rules=cluster_rules, facts=facts)


def _within(namespace: str, objects: Sequence[Object]) -> list[Object]:
    return [obj for obj in objects if obj["metadata"]["namespace"] == namespace]
