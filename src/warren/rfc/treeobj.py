"""KVS values and directories as they travel and are stored: tree objects (RFC 11).

All are `{"ver":1,"type":T,"data":D}`:

- `val`: D is the value in base64.
- `valref`: D lists blobrefs; the value is what they name, put together.
- `dir`: D maps names to tree objects.
- `dirref`: D lists one blobref, which names a directory in its canonical encoding.
- `symlink`: D is `{"target":key}`, with `"namespace"` if the key is in another one.
- `hdir`: D is `{"size":n,"func":hash,"bucket":[...]}`, a directory of dirrefs by hash.
  Nothing has written one yet; it is recognized, so that it can be refused by its name.

A blobref is the text of a digest (RFC 10): `sha1-` or `sha256-` and lower case hexadecimals.
"""

import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import orjson

from warren.rfc.errors import BadFormat

Algorithm = Literal["sha1", "sha256"]
TreeObject = Mapping[str, Any]

_DIGIT_COUNTS: Final[Mapping[str, int]] = {"sha1": 40, "sha256": 64}
_HEX_PATTERN: Final = re.compile(r"[0-9a-f]*")
_TYPES: Final = ("val", "valref", "dir", "dirref", "symlink", "hdir")

# Blobs


def blobref(blob: bytes, algorithm: Algorithm = "sha1") -> str:
    """Return the name of a blob: its digest, with the algorithm."""
    digest = hashlib.new(algorithm, blob, usedforsecurity=False)
    return f"{algorithm}-{digest.hexdigest()}"


def check_blobref(ref: Any, where: str = "blobref") -> str:
    """Return a blobref back. Raises BadFormat for what is none."""
    if not isinstance(ref, str):
        raise BadFormat(f"{where} is {ref!r}, not a blobref")
    algorithm, _, digits = ref.partition("-")
    if algorithm not in _DIGIT_COUNTS:
        raise BadFormat(f"{where}: {ref[:80]!r} begins with neither 'sha1-' nor 'sha256-'")
    match = _HEX_PATTERN.match(digits)
    assert match is not None  # it also matches nothing at all
    if match.end() < len(digits):
        position = len(algorithm) + 1 + match.end()
        raise BadFormat(
            f"{where}: {ref[:80]!r} holds {ref[position]!r} at {position}, not a hex digit"
        )
    if len(digits) != _DIGIT_COUNTS[algorithm]:
        raise BadFormat(
            f"{where}: {algorithm} has {_DIGIT_COUNTS[algorithm]} digits, not {len(digits)}"
        )
    return ref


def check_blob(ref: str, blob: bytes) -> bytes:
    """Return a blob back. Raises BadFormat when it is not the one that `ref` names."""
    algorithm = check_blobref(ref).partition("-")[0]
    hexdigest = hashlib.new(algorithm, blob, usedforsecurity=False).hexdigest()
    if ref[len(algorithm) + 1 :] != hexdigest:
        raise BadFormat(f"the blob of {ref} is that of {algorithm}-{hexdigest}")
    return blob


# Making


def val(data: bytes) -> dict[str, Any]:
    """Return the tree object of a value."""
    return {"ver": 1, "type": "val", "data": binascii.b2a_base64(data, newline=False).decode()}


def valref(refs: Iterable[str]) -> dict[str, Any]:
    """Return the tree object of a value that is stored as blobs."""
    return {"ver": 1, "type": "valref", "data": list(refs)}


def directory(entries: Mapping[str, TreeObject]) -> dict[str, Any]:
    """Return the tree object of a directory."""
    return {"ver": 1, "type": "dir", "data": dict(entries)}


def dirref(ref: str) -> dict[str, Any]:
    """Return the tree object of a directory that is stored as a blob."""
    return {"ver": 1, "type": "dirref", "data": [ref]}


def symlink(target: str, namespace: str | None = None) -> dict[str, Any]:
    """Return the tree object of a link to a key."""
    data = {"target": target}
    if namespace is not None:
        data["namespace"] = namespace
    return {"ver": 1, "type": "symlink", "data": data}


def encode(obj: TreeObject) -> bytes:
    """Write the canonical text: no spaces, keys sorted, so that equal objects have one digest.

    Raises BadFormat for what is no tree object.
    """
    check(obj)
    try:
        return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise BadFormat(f"tree object: it cannot be written: {error}") from None


# Reading


def decode(text: bytes | str) -> dict[str, Any]:
    """Read a tree object, however its JSON is laid out. Raises BadFormat for all else."""
    try:
        obj = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadFormat(f"a tree object is not JSON: {error}") from None
    check(obj)
    return dict(obj)


def read_val(obj: Any) -> bytes:
    """Read a value. Raises BadFormat for any other tree object."""
    if not isinstance(obj, Mapping) or obj.get("ver") != 1 or obj.get("type") != "val":
        raise BadFormat("a tree object of type val is expected")
    return _decode_base64(obj.get("data"), "data")


def check(obj: Any) -> None:
    """Raise BadFormat, with the path of the mistake, unless `obj` is a tree object throughout."""
    # Not by recursion: the depth is whatever was sent.
    pending: list[tuple[str, Any]] = [("", obj)]
    while pending:
        path, node = pending.pop()
        kind, data = _envelope(path, node)
        data_path = f"{path}data"
        match kind:
            case "val":
                _decode_base64(data, data_path)
            case "valref":
                _blobrefs(data, data_path)
            case "dirref":
                if len(_blobrefs(data, data_path)) != 1:
                    raise _bad(data_path, f"holds {len(data)} blobrefs, not one")
            case "dir":
                pending.extend(_entries(data, data_path))
            case "symlink":
                _check_symlink(data, data_path)
            case _:
                pending.extend(_buckets(data, data_path))


def _envelope(path: str, obj: Any) -> tuple[str, Any]:
    if not isinstance(obj, Mapping):
        raise _bad(path.rstrip("."), f"is {_abbreviate(obj)}, not an object")
    if obj.keys() != {"ver", "type", "data"}:
        raise _bad(
            path.rstrip("."), f"has the keys {', '.join(map(str, obj))}, not ver, type, data"
        )
    if type(obj["ver"]) is not int or obj["ver"] != 1:
        raise _bad(f"{path}ver", f"is {_abbreviate(obj['ver'])}, not 1")
    if obj["type"] not in _TYPES:
        raise _bad(f"{path}type", f"is {_abbreviate(obj['type'])}, not one of {', '.join(_TYPES)}")
    return obj["type"], obj["data"]


def _entries(data: Any, data_path: str) -> list[tuple[str, Any]]:
    if not isinstance(data, Mapping):
        raise _bad(data_path, f"is {_abbreviate(data)}, not an object")
    for name in data:
        # A dot separates the names of a key: what has one in its name is never found.
        if not isinstance(name, str) or not name or "." in name:
            raise _bad(data_path, f"holds the name {name!r}, which no key can have")
    return [(f"{data_path}.{name}.", each) for name, each in data.items()]


def _buckets(data: Any, data_path: str) -> list[tuple[str, Any]]:
    if not isinstance(data, Mapping) or data.keys() != {"size", "func", "bucket"}:
        raise _bad(data_path, "does not hold size, func and bucket")
    size, func, buckets = data["size"], data["func"], data["bucket"]
    if type(size) is not int or size < 1:
        raise _bad(f"{data_path}.size", f"is {_abbreviate(size)}, not a positive number")
    if not isinstance(func, str) or not func:
        raise _bad(f"{data_path}.func", f"is {_abbreviate(func)}, not a name")
    if not isinstance(buckets, list) or len(buckets) > size:
        raise _bad(f"{data_path}.bucket", f"is not an array of at most {size}")
    found = []
    for index, each in enumerate(buckets):
        if each is None:
            continue
        path = f"{data_path}.bucket[{index}]."
        if _envelope(path, each)[0] != "dirref":
            raise _bad(f"{path}type", f"is {_abbreviate(each['type'])}, not dirref")
        found.append((path, each))
    return found


def _check_symlink(data: Any, data_path: str) -> None:
    if not isinstance(data, Mapping) or not {"target"} <= data.keys() <= {"target", "namespace"}:
        raise _bad(data_path, "does not hold a target and at most a namespace")
    for key, each in data.items():
        if not isinstance(each, str) or not each:
            raise _bad(f"{data_path}.{key}", f"is {_abbreviate(each)}, not a name")


def _blobrefs(data: Any, data_path: str) -> Sequence[str]:
    if not isinstance(data, list):
        raise _bad(data_path, f"is {_abbreviate(data)}, not an array of blobrefs")
    return [
        check_blobref(ref, f"tree object at {data_path}[{index}]") for index, ref in enumerate(data)
    ]


def _decode_base64(data: Any, data_path: str) -> bytes:
    if not isinstance(data, str):
        raise _bad(data_path, f"is {_abbreviate(data)}, not base64")
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise _bad(data_path, f"is not base64: {error}") from None


def _bad(path: str, problem: str) -> BadFormat:
    return BadFormat(f"tree object{f' at {path}' if path else ''}: {problem}")


def _abbreviate(value: Any) -> str:
    return repr(value)[:40]
