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

MAX_BYTES: Final = 3 * 2**20
"""The most bytes that a body may have."""

MAX_DEPTH: Final = 100
"""Levels of objects and lists in one another. What works on objects recurses, and what writes
them (orjson) stops at 254 levels, a list of objects with their owners' fields included."""

_MAX_YAML_BYTES: Final = 2**18
"""Bytes of YAML. Of JSON the same take a hundredth of the time, so whatever writes much of it can
write JSON; as kubectl does, whatever its users write."""

_SMALL_BYTES: Final = 2**12
"""Bytes that are read in less time than it takes to wait for a thread."""

_YAML_TYPES: Final = ("application/yaml", "application/apply-patch+yaml")


class BodyReader:
    """Reads bodies, within bounds."""

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        max_yaml_bytes: int = _MAX_YAML_BYTES,
        max_depth: int = MAX_DEPTH,
        small_bytes: int = _SMALL_BYTES,
    ) -> None:
        self.max_bytes = max_bytes
        self._max_yaml_bytes = max_yaml_bytes
        self._max_depth = max_depth
        self._small_bytes = small_bytes
        self._thread_lock = asyncio.Lock()

    async def read_value(self, request: web.Request) -> Any:
        """Read the body. Raises RequestError."""
        data = await request.read()
        try:
            return await self._parse(request.content_type, data)
        except protobuf.UnknownKind as error:
            raise RequestError(415, "UnsupportedMediaType", str(error)) from None
        except protobuf.Malformed as error:
            raise RequestError(400, "BadRequest", f"the body is not protobuf: {error}") from None
        except yamltext.Malformed as error:
            raise RequestError(400, "BadRequest", f"the body is not YAML: {error}") from None
        except orjson.JSONDecodeError as error:
            raise RequestError(400, "BadRequest", f"the body is not JSON: {error}") from None

    async def read_object(self, request: web.Request) -> dict[str, Any]:
        """Read a body that must be an object. Raises RequestError."""
        found = await self.read_value(request)
        if not isinstance(found, dict):
            raise RequestError(400, "BadRequest", "the body is not an object")
        return found

    async def _parse(self, content_type: str, data: bytes) -> Any:
        if content_type == protobuf.CONTENT_TYPE:
            return self._check_depth(await self._parse_in_thread(protobuf.decode, data))
        if content_type in _YAML_TYPES:
            # JSON is YAML, too: kubectl sends JSON under the type of YAML when it applies.
            with suppress(orjson.JSONDecodeError):
                return self._parse_json(data)
            if len(data) > self._max_yaml_bytes:
                raise RequestError(
                    413,
                    "RequestEntityTooLarge",
                    f"the body is {len(data)} bytes of YAML, of which {self._max_yaml_bytes} are "
                    f"read: send it as JSON, of which {self.max_bytes} are",
                )
            return await self._parse_in_thread(
                partial(yamltext.load, max_depth=self._max_depth), data
            )
        return self._parse_json(data)

    def _parse_json(self, data: bytes) -> Any:
        value = orjson.loads(data)
        # Each level has a bracket, and brackets are counted much faster than levels.
        brackets = data.count(b"{") + data.count(b"[")
        return self._check_depth(value) if brackets > self._max_depth else value

    def _check_depth(self, value: Any) -> Any:
        if is_nested_deeper(value, self._max_depth):
            raise RequestError(
                400,
                "BadRequest",
                f"the values in the body are nested deeper than {self._max_depth} levels",
            )
        return value

    async def _parse_in_thread(self, parse: Callable[[bytes], Any], data: bytes) -> Any:
        if len(data) <= self._small_bytes:
            return parse(data)
        async with self._thread_lock:
            return await asyncio.to_thread(parse, data)


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether objects and lists are nested deeper than so many levels."""
    values = [value]
    for _ in range(levels):
        values = [
            inner
            for each in values
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return any(isinstance(each, dict | list) for each in values)
