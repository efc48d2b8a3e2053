"""What is served, as clients ask for it before everything else."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from warren import __version__
from warren.kube.server.resources import Resource
from warren.kube.server.rest import openapi


def versions() -> dict[str, Any]:
    """Return the versions of the core group (`/api`)."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def groups(resources: Iterable[Resource]) -> dict[str, Any]:
    """Return the API groups (`/apis`)."""
    versions_by_group: dict[str, list[str]] = {}
    for resource in resources:
        if resource.group:
            versions = versions_by_group.setdefault(resource.group, [])
            versions.extend(version for version in resource.versions if version not in versions)
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [group(name, versions) for name, versions in sorted(versions_by_group.items())],
    }


def group(name: str, versions: list[str]) -> dict[str, Any]:
    """Return one API group (`/apis/GROUP`)."""
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": listed,
        "preferredVersion": listed[0],
    }


def resources_of(resources: Iterable[Resource], group: str, version: str) -> dict[str, Any]:
    """Return the resources of a group in a version (`/apis/GROUP/VERSION`, `/api/v1`)."""
    listed: list[dict[str, Any]] = []
    for resource in resources:
        if resource.group != group or version not in resource.versions:
            continue
        entry = {
            "name": resource.plural,
            "singularName": resource.kind_name.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind_name,
            "verbs": resource.verbs,
        }
        short = {"shortNames": resource.short_names} if resource.short_names else {}
        categories = {"categories": resource.categories} if resource.categories else {}
        listed.append({**entry, **short, **categories})
        for name, verbs in resource.subresources.items():
            listed.append({**entry, "name": f"{resource.plural}/{name}", "verbs": verbs})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": listed,
    }


def documents(resources: Sequence[Resource]) -> dict[str, bytes]:
    """Return the OpenAPI documents of all groups and versions (`/openapi/v3/PATH`), by path."""
    group_versions = {(each.group, version) for each in resources for version in each.versions}
    document_by_path = {}
    for group, version in sorted(group_versions):
        schemas = {
            each.plural: each.schemas[version]
            for each in resources
            if each.group == group and version in each.schemas
        }
        document = openapi.document(group, version, resources, schemas)
        document_by_path[openapi.group_version_path(group, version)] = orjson.dumps(document)
    return document_by_path


def version() -> dict[str, str]:
    """Return the server's version (`/version`): the API that it follows, and its build."""
    return {
        "major": "1",
        "minor": "32",
        "gitVersion": f"v1.32.0+warren-{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }
