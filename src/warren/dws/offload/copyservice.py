"""Copies that a running job asks for: where the service is that takes them, and what it is asked.

The service says where it is in an annotation of the SystemConfiguration, which all who have to do
with it watch. Without that there is none, and what `requires=copy-offload` means is a site's
matter, and its daemon's (dws-spec section 18, ADR 092).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from warren.base.objects import Change, Object
from warren.directives.parse import Directive
from warren.dws import kinds, labels
from warren.dws.objects.decoding import Malformed, read_json
from warren.dws.objects.workflows import Workflow

REQUIRES_WORD: Final = "copy-offload"
"""The word of `requires` by which a user asks for it."""

TYPES_MOUNTED_ONCE: Final = ("xfs", "ext4", "raw")
"""Types of storage that one node mounts at a time: rabbits do not while compute nodes do."""


class OffloadService(msgspec.Struct, frozen=True, kw_only=True):
    """Where the service is, as compute nodes know it."""

    host: str = msgspec.field(name="launcher")
    """The name of its machine, for which its certificate is. NNF calls it the launcher."""
    port: int
    certificate: str
    """The file with the certificate by which it is known."""


def announce(service: OffloadService | None) -> Change:
    """Say where the service is; None takes it back."""
    text = None if service is None else msgspec.json.encode(service).decode()
    return Change(
        kind=kinds.SYSTEM_CONFIGURATION,
        key=kinds.CONFIGURATION_KEY,
        patch={"metadata": {"annotations": {labels.COPY_OFFLOAD: text}}},
    )


def service_of_configuration(obj: Object | None) -> OffloadService | None:
    """Return where the service is, by a SystemConfiguration; None where there is none."""
    return find_service((obj or {"metadata": {}})["metadata"].get("annotations") or {})


def find_service(annotations: Mapping[str, str]) -> OffloadService | None:
    """Return where the service is, by the annotations of the SystemConfiguration."""
    try:
        return read_json(annotations.get(labels.COPY_OFFLOAD) or "", OffloadService)
    except Malformed:
        return None


def is_requested(directives: Iterable[Directive]) -> bool:
    """Return whether a job asks for copies of the service.

    Beside containers it does not: they have the variables by which the service is found.
    """
    directive_list = list(directives)
    is_asked = any(
        REQUIRES_WORD in (each.values.get("requires") or "").split(",") for each in directive_list
    )
    return is_asked and not any(each.command.text == "container" for each in directive_list)


def is_enabled(workflow: Workflow) -> bool:
    """Return whether a Workflow may have copies that its job has asked for."""
    return REQUIRES_WORD in workflow.status.requires


def variables(service: OffloadService) -> Mapping[str, str]:
    """Return the variables by which a job's tasks find the service."""
    return {
        "NNF_CONTAINER_LAUNCHER": service.host,
        "NNF_CONTAINER_PORTS": str(service.port),
        "TLS_CERT_PATH": service.certificate,
    }
