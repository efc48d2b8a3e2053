"""The bodies of requests: JSON, or YAML or protobuf where the request says so.

JSON is read at once. The others are read in Python, which takes long enough for other requests to
notice: those that are not small are read in a thread, one after the other, so that the event loop
shares the processor with one of them at most.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from warren.kube.server.rest import protobuf, yamltext
from warren.kube.server.rest.requests import RequestError

LARGEST: Final = 3 * 2**20
"""Bytes of a body."""

DEEPEST: Final = 100
"""Levels of objects and lists in one another. What works on objects recurses, and what writes
them (orjson) stops at 254 levels, a list of objects with their owners' fields included."""

_LARGEST_YAML: Final = 2**18
"""Bytes of YAML. Of JSON the same take a hundredth of the time, so whatever writes much of it can
write JSON; as kubectl does, whatever its users write."""

_SMALL: Final = 2**12
"""Bytes that are read in less time than it takes to wait for a thread."""

_YAML: Final = ("application/yaml", "application/apply-patch+yaml")


class Bodies:
    """Reads bodies, within bounds."""

    def __init__(
        self,
        *,
        largest: int = LARGEST,
        largest_yaml: int = _LARGEST_YAML,
        deepest: int = DEEPEST,
        small: int = _SMALL,
    ) -> None:
        self.largest = largest
        self._largest_yaml = largest_yaml
        self._deepest = deepest
        self._small = small
        self._thread = asyncio.Lock()

    async def value(self, request: web.Request) -> Any:
        """Read the body. Raises RequestError."""
        data = await request.read()
        try:
            return await self._read(request.content_type, data)
        except protobuf.UnknownKind as error:
            raise RequestError(415, "UnsupportedMediaType", str(error)) from None
        except protobuf.Malformed as error:
            raise RequestError(400, "BadRequest", f"the body is not protobuf: {error}") from None
        except yamltext.Malformed as error:
            raise RequestError(400, "BadRequest", f"the body is not YAML: {error}") from None
        except orjson.JSONDecodeError as error:
            raise RequestError(400, "BadRequest", f"the body is not JSON: {error}") from None

    async def object(self, request: web.Request) -> dict[str, Any]:
        """Read a body that must be an object. Raises RequestError."""
        found = await self.value(request)
        if not isinstance(found, dict):
            raise RequestError(400, "BadRequest", "the body is not an object")
        return found

    async def _read(self, content_type: str, data: bytes) -> Any:
        if content_type == protobuf.CONTENT_TYPE:
            return self._checked(await self._read_in_thread(protobuf.decode, data))
        if content_type in _YAML:
            # What is JSON is YAML, too; kubectl applies so.
            with suppress(orjson.JSONDecodeError):
                return self._json(data)
            if len(data) > self._largest_yaml:
                raise RequestError(
                    413,
                    "RequestEntityTooLarge",
                    f"the body is {len(data)} bytes of YAML, of which {self._largest_yaml} are "
                    f"read: send it as JSON, of which {self.largest} are",
                )
            return await self._read_in_thread(partial(yamltext.load, deepest=self._deepest), data)
        return self._json(data)

    def _json(self, data: bytes) -> Any:
        value = orjson.loads(data)
        # Each level has a bracket, and brackets are counted much faster than levels.
        brackets = data.count(b"{") + data.count(b"[")
        return self._checked(value) if brackets > self._deepest else value

    def _checked(self, value: Any) -> Any:
        if is_nested_deeper(value, self._deepest):
            raise RequestError(
                400,
                "BadRequest",
                f"the values in the body are nested deeper than {self._deepest} levels",
            )
        return value

    async def _read_in_thread(self, read: Callable[[bytes], Any], data: bytes) -> Any:
        if len(data) <= self._small:
            return read(data)
        async with self._thread:
            return await asyncio.to_thread(read, data)


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether objects and lists are nested deeper than so many levels."""
    found = [value]
    for _ in range(levels):
        found = [
            inner
            for each in found
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return any(isinstance(each, dict | list) for each in found)
