"""What a request says besides its path: body, selectors, and how a write is to be done."""

from dataclasses import replace
from typing import Any, Final, get_args

import orjson
import yaml
from aiohttp import web

from warren.base.objects import Object
from warren.kube.admission import User
from warren.kube.server.rest import protobuf
from warren.kube.server.writing import How, Propagation

_YAML: Final = ("application/yaml", "application/apply-patch+yaml")
_TRUE: Final = ("true", "True", "1")


class Bad(Exception):
    """A request that cannot be served: an HTTP status, a reason, and a sentence."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


async def body(request: web.Request) -> Any:
    """Read the body: JSON, or YAML or protobuf where the request says so."""
    data = await request.read()
    try:
        if request.content_type == protobuf.CONTENT_TYPE:
            return protobuf.decoded(data)
        if request.content_type in _YAML:
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            return yaml.load(data, Loader=loader)
        return orjson.loads(data)
    except protobuf.UnknownKind as error:
        raise Bad(415, "UnsupportedMediaType", str(error)) from None
    except protobuf.Malformed as error:
        raise Bad(400, "BadRequest", f"the body is not protobuf: {error}") from None
    except orjson.JSONDecodeError as error:
        raise Bad(400, "BadRequest", f"the body is not JSON: {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise Bad(
            400, "BadRequest", f"the body is not YAML: {' '.join(str(error).split())}"
        ) from None


async def object_body(request: web.Request) -> dict[str, Any]:
    """Read a body that must be an object."""
    found = await body(request)
    if not isinstance(found, dict):
        raise Bad(400, "BadRequest", "the body is not an object")
    return found


def flag(request: web.Request, parameter: str) -> bool:
    """Tell whether a parameter is set to true."""
    return request.query.get(parameter) in _TRUE


def number(request: web.Request, parameter: str) -> str:
    """Read a parameter that is a whole number, or not there."""
    text = request.query.get(parameter, "")
    if text and not text.isdecimal():
        raise Bad(400, "BadRequest", f"{parameter}: {text!r} is not a number")
    return text


class Writing:
    """How a request wants its write to be done, and what its writer is warned of."""

    def __init__(self, request: web.Request, user: User, *, status: bool = False) -> None:
        dry_run = request.query.getall("dryRun", [])
        if any(each != "All" for each in dry_run):
            raise Bad(400, "BadRequest", f"dryRun: {', '.join(dry_run)} is not All")
        self._validation = request.query.get("fieldValidation", "Warn")
        if self._validation not in ("Ignore", "Warn", "Strict"):
            known = "Ignore, Warn or Strict"
            raise Bad(400, "BadRequest", f"fieldValidation: {self._validation} is not {known}")
        self.warnings: list[str] = []
        self.how = How(
            user=user,
            status=status,
            dry_run=bool(dry_run),
            manager=request.query.get("fieldManager", ""),
            told=self._unknown,
        )

    async def deleting(self, request: web.Request) -> How:
        """Give how something is to be deleted: what the body says, and the parameters."""
        options = await object_body(request) if request.can_read_body else {}
        policy = options.get("propagationPolicy") or request.query.get("propagationPolicy")
        if options.get("orphanDependents"):  # what older clients say
            policy = "Orphan"
        only = options.get("preconditions") or {}
        if not isinstance(only, dict):
            raise Bad(400, "BadRequest", "preconditions: this is not an object")
        dry_run = self.how.dry_run or options.get("dryRun") == ["All"]
        return replace(
            self.how,
            propagation=_propagation(policy),
            uid=only.get("uid"),
            seen=only.get("resourceVersion"),
            dry_run=dry_run,
        )

    def _unknown(self, fields: list[str]) -> None:
        named = [f'unknown field "{field}"' for field in fields]
        if self._validation == "Strict":
            raise Bad(400, "BadRequest", f"strict decoding error: {', '.join(named)}")
        if self._validation == "Warn":
            self.warnings += named


def _propagation(policy: Any) -> Propagation | None:
    match policy:
        case None | "Background" | "Foreground" | "Orphan":
            return policy
        case _:
            known = ", ".join(get_args(Propagation))
            raise Bad(400, "BadRequest", f"propagationPolicy: {policy!r} is not one of {known}")


def spelled_as(obj: Object, kind: str, api_version: str) -> None:
    """Raise Bad where an object says that it is of another kind or version than its address."""
    for name, expected in (("apiVersion", api_version), ("kind", kind)):
        if obj.get(name, expected) != expected:
            raise Bad(400, "BadRequest", f"{name}: {obj[name]!r} is not {expected!r}")
