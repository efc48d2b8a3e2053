"""In which form a client wants objects: whole, as rows of a Table, or only what describes them."""

from enum import StrEnum
from typing import Any, Final

from warren.base.objects import Object

META_VERSION: Final = "meta.k8s.io/v1"
"""The version of those forms; all that ask for one know this one."""


class View(StrEnum):
    """A form of objects, by the name that a client asks for it."""

    WHOLE = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


_VIEW_BY_NAME: Final = {
    "Table": View.TABLE,
    "PartialObjectMetadata": View.METADATA,
    "PartialObjectMetadataList": View.METADATA,
}


def accepted_view(accept: str) -> View:
    """Return the first form that a client accepts, among those that are written as JSON."""
    for each in accept.split(","):
        media_type, *parameters = (part.strip() for part in each.split(";"))
        if media_type not in ("application/json", "application/*", "*/*"):
            continue
        parameter_values = dict(
            parameter.split("=", 1) for parameter in parameters if "=" in parameter
        )
        if "as" not in parameter_values:
            return View.WHOLE
        if (
            parameter_values["as"] in _VIEW_BY_NAME
            and f"{parameter_values.get('g')}/{parameter_values.get('v')}" == META_VERSION
        ):
            return _VIEW_BY_NAME[parameter_values["as"]]
    return View.WHOLE


def metadata_of(obj: Object) -> dict[str, Any]:
    """Return what describes an object: its metadata alone."""
    return {"kind": View.METADATA.value, "apiVersion": META_VERSION, "metadata": obj["metadata"]}
