"""What is wrong with a SystemConfiguration: told in its status, where administrators look.

There is one, `default/default` (dws-spec section 6): what others say has no effect.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from warren.base.objects import Write
from warren.dws import kinds, reports
from warren.dws.faults import Fault
from warren.dws.objects.systemconfiguration import SystemConfiguration

_STORAGE_NODE_TYPES: Final = ("Rabbit",)
_MAX_NAMES: Final = 10
"""How many of many names a sentence has."""


def report(configuration: SystemConfiguration) -> Sequence[Write]:
    """Write down that nothing is left to do for a configuration, or what is wrong with it."""
    mistakes = list(_mistakes(configuration))
    fault = Fault(f"{'; '.join(mistakes)}.", type="User") if mistakes else None
    error = fault.as_error() if fault else None
    current = configuration.status
    if current.ready is not bool(mistakes) and reports.same_error(current.error, error):
        return []
    status = {"ready": not mistakes, "error": error}
    return [reports.status(kinds.SYSTEM_CONFIGURATION, configuration.metadata, status)]


def is_valid(configuration: SystemConfiguration) -> bool:
    """Return whether nothing is wrong with a configuration."""
    return next(_mistakes(configuration), None) is None


def _mistakes(configuration: SystemConfiguration) -> Iterator[str]:
    key, spec = configuration.metadata.key, configuration.spec
    valid_key = kinds.CONFIGURATION_KEY
    if key != valid_key:
        yield f"the SystemConfiguration is {valid_key}, and {key} has no effect: delete it"
        return
    wired = [each.name for node in spec.storage_nodes for each in node.computes_access]
    external = [each.name for each in spec.external_compute_nodes]
    storages = [node.name for node in spec.storage_nodes]
    for names, mistake in (
        (storages, "listed more than once in storageNodes"),
        ([*wired, *external], "listed more than once among the compute nodes"),
    ):
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            yield f"{_shortened_list(repeated)} {'is' if len(repeated) == 1 else 'are'} {mistake}"
    in_both = sorted({*storages} & {*wired, *external})
    if in_both:
        yield f"{_shortened_list(in_both)} cannot be both a storage node and a compute node"
    of_unknown_type = [
        node.name for node in spec.storage_nodes if node.type not in _STORAGE_NODE_TYPES
    ]
    if of_unknown_type:
        yield f"the type of {_shortened_list(of_unknown_type)} is not Rabbit, which is the only one"
    yield from (
        f"{port!r} is neither a port nor a range START-END of ports"
        for port in spec.ports
        if not _is_ports(port)
    )


def _is_ports(port: int | str) -> bool:
    match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", str(port))
    return match is not None and 0 < int(match[1]) <= int(match[2] or match[1]) < 2**16


def _shortened_list(names: Iterable[str]) -> str:
    all_names = list(names)
    more_count = len(all_names) - _MAX_NAMES
    return ", ".join(all_names[:_MAX_NAMES]) + (f" and {more_count} more" if more_count > 0 else "")
