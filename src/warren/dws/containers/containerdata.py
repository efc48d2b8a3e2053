"""NnfContainerData: where the storage is of an application that others start.

A profile that says `createContainer: false` is of such a one (dws-spec section 12.3). The object
is its Workflow's, and goes with it.
"""

from collections.abc import Mapping, Sequence

from warren.base.objects import Object
from warren.directives.parse import Directive
from warren.dws import children
from warren.dws.containers.applications import Application


def make(
    application: Application,
    target_index_by_argument: Mapping[str, int],
    directives: Sequence[Directive],
) -> Object:
    """Make the object. Global file systems, which are where they always are, are not in it.

    `target_index_by_argument` has the index of the directive of each storage.
    """
    workflow = application.workflow
    volumes = [
        {
            "name": each.name,
            "command": directives[target_index_by_argument[each.need.argument]].command.text,
            "directiveIndex": target_index_by_argument[each.need.argument],
            "mountPath": each.path,
        }
        for each in application.storages
        if each.need.argument in target_index_by_argument
    ]
    return {
        "metadata": children.metadata(workflow, children.name(workflow, application.index)),
        "data": {"volumes": volumes},
    }
