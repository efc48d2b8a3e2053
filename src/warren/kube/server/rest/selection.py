"""The label and field selectors of a request, and its page of a list (`limit`, `continue`)."""

import base64
from bisect import bisect_right
from itertools import islice
from typing import Any

import orjson
from aiohttp import web

from warren.base.objects import Key, Object, key_of
from warren.kube.client import Refused
from warren.kube.server import selectors
from warren.kube.server.resources import Resource
from warren.kube.server.rest.requests import RequestError, number_text
from warren.kube.server.selectors import Operator


class Selection:
    """The selectors and the page of one request. Raises RequestError where they make no sense."""

    def __init__(self, request: web.Request, resource: Resource) -> None:
        try:
            self._labels = selectors.parse_labels(request.query.get("labelSelector", ""))
            self._fields = selectors.parse_fields(
                request.query.get("fieldSelector", ""), resource.selectable_fields
            )
        except Refused as error:
            raise RequestError(400, "BadRequest", str(error)) from None
        self._limit = int(number_text(request, "limit") or 0)
        self._after_key, self.resource_version = _read_continue(request.query.get("continue", ""))
        """After which object the page begins, and of which version the pages are, if of one."""

    @property
    def name(self) -> str:
        """The one name that is asked for, if there is one."""
        return self._fields.required_value("metadata.name")

    def equalities(self) -> dict[str, str]:
        """Return the labels that are asked for by equality: the store finds those at once."""
        return {
            each.key: each.values[0]
            for each in self._labels.requirements
            if each.operator is Operator.EQUALS
        }

    def matches(self, obj: Object) -> bool:
        return self._fields.matches(obj) and self._labels.matches(obj["metadata"].get("labels"))

    @property
    def _selects_all(self) -> bool:
        return not self._labels.requirements and not self._fields.terms

    def page(
        self, items: list[Object], version: int | None = None
    ) -> tuple[list[Object], dict[str, Any]]:
        """Return the objects of this page, and what the list's metadata says of those after it.

        The objects are in order, and the pages after this one show them as they are then, or as
        they were in version `version`. How many come after is told where all are asked for.
        """
        first_index = (
            bisect_right(items, self._after_key, key=key_of) if self._after_key.name else 0
        )
        items_after = items[first_index:] if first_index else items
        if self._selects_all:
            page, remaining = (
                (items_after[: self._limit], len(items_after) - self._limit)
                if self._limit
                else (items_after, 0)
            )
            remaining_metadata = {"remainingItemCount": remaining}
        else:
            matching = (obj for obj in items_after if self.matches(obj))
            found_items = [*islice(matching, self._limit + 1 if self._limit else None)]
            page = found_items[: self._limit] if self._limit else found_items
            remaining, remaining_metadata = len(found_items) - len(page), {}
        if remaining <= 0:
            return page, {}
        continue_position = [*key_of(page[-1]), *([] if version is None else [version])]
        token = base64.urlsafe_b64encode(orjson.dumps(continue_position)).decode()
        return page, {"continue": token, **remaining_metadata}


def _read_continue(token: str) -> tuple[Key, int | None]:
    """Read after which key a list goes on, and as of which version.

    Without one it shows what is there now, not what was there.
    """
    try:
        if not token:
            return Key("", ""), None
        namespace, name, *version = orjson.loads(base64.urlsafe_b64decode(token))
        return Key(namespace, name), int(version[0]) if version else None
    except (ValueError, TypeError):
        raise RequestError(
            400, "BadRequest", "continue: this is not what an earlier answer gave"
        ) from None
