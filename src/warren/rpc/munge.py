"""Credentials of MUNGE, encoded and decoded in this process through libmunge.

The library is loaded when the first credential is wanted, so that a site without MUNGE
needs none of it. Calls speak with the local munged and block: from a loop they go through
`asyncio.to_thread`. What a credential proves is judged in `rfc.signed_request`.
"""

import ctypes
import errno
import socket as sockets
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from warren.base.errors import Retryable, WarrenError
from warren.rfc import signed_request
from warren.rfc.signed_request import Credential, NotProven, SignedRequest

_LIBRARY: Final = "libmunge.so.2"

_SUCCESS: Final = 0
_SERVICE_FAILURES: Final = (1, 5, 6, 7)
"""Statuses that blame MUNGE itself: a bug, no memory, its socket, a timeout."""
_EXPIRED: Final = 15
_REPLAYED: Final = 17
_ENCODE_TIME: Final = 6
_SOCKET_PATH: Final = 8


class NotInstalled(WarrenError):
    """This machine has no libmunge; its administrator can install it."""


class Unreachable(Retryable):
    """The local munged does not answer."""


class CannotEncode(WarrenError):
    """MUNGE does not make a credential of this."""


class DecodedCredential(msgspec.Struct, frozen=True, kw_only=True):
    """What the library answers about a credential."""

    status: int
    problem: str
    userid: int
    payload: bytes
    encoded_at: int
    """Seconds since the epoch."""


class Library(Protocol):
    """The part of libmunge that is used here."""

    def encode(self, payload: bytes) -> tuple[int, str, bytes]:
        """Return the status, what is wrong in words, and the credential."""
        ...

    def decode(self, credential: bytes) -> DecodedCredential:
        """Return all that is known of a credential, whatever the status."""
        ...


class Munge:
    """Encodes credentials as the user of this process, and decodes those of all users."""

    def __init__(self, load: Callable[[], Library]) -> None:
        self._load = load
        self._library: Library | None = None

    def encode(self, payload: bytes) -> str:
        """Make a credential. Raises NotInstalled, Unreachable or CannotEncode."""
        status, problem, credential = self._loaded().encode(payload)
        if status != _SUCCESS:
            _check_service(status, problem)
            raise CannotEncode(f"MUNGE does not encode {len(payload)} bytes: {problem}")
        return credential.decode("ascii")

    def decode(self, credential: str) -> Credential:
        """Read a credential, be it expired or used before: a job's request is read often, and late.

        Raises NotProven for one that is not valid, else NotInstalled or Unreachable.
        """
        # The library itself would read on to the first end that fits, and pass over the rest.
        if not signed_request.CREDENTIAL_PATTERN.fullmatch(credential):
            raise NotProven("the credential is not MUNGE's")
        decoded = self._loaded().decode(credential.encode("ascii"))
        if decoded.status not in (_SUCCESS, _EXPIRED, _REPLAYED):
            _check_service(decoded.status, decoded.problem)
            raise NotProven(f"MUNGE does not accept the credential: {decoded.problem}")
        return Credential(
            userid=decoded.userid, payload=decoded.payload, encoded_at=float(decoded.encoded_at)
        )

    def _loaded(self) -> Library:
        if self._library is None:
            self._library = self._load()
        return self._library


def wrap(payload: bytes, userid: int, munge: Munge) -> str:
    """Sign a request as the user of this process, who must be `userid`."""
    signed_part = signed_request.signed_part(payload, userid, "munge")
    signature = munge.encode(signed_request.credential_payload(signed_part))
    return f"{signed_part}.{signature}"


def unwrap(
    token: str, munge: Munge, *, now: float, ttl: float, userid: int | None = None
) -> SignedRequest:
    """Take apart a request that is signed by MUNGE, and return only if all of it is proven.

    `now` is in seconds since the epoch, `ttl` how many seconds a request holds. Raises
    BadFormat, NotProven, NotInstalled or Unreachable.
    """
    request = signed_request.unwrap(token, userid=userid, mechanisms=("munge",))
    signed_request.verify(request, munge.decode(request.signature), now=now, ttl=ttl)
    return request


def system_munge(socket_path: str | None = None, library_name: str = _LIBRARY) -> Munge:
    """Return MUNGE as it is installed here; `socket_path` is its daemon's if not the usual one."""
    return Munge(lambda: load(socket_path, library_name))


def refusal(socket_path: str | None = None, library_name: str = _LIBRARY) -> str | None:
    """Return why no request can be proven here, for want of what is asked; None if one may be.

    It does not ask munged, which may take its time: what does not listen is seen without.
    A socket alone says nothing: it stays when its munged is killed.
    """
    try:
        path = load(socket_path, library_name).socket_path()
    except NotInstalled as error:
        return str(error)
    if listens(path):
        return None
    return (
        f"no munged listens at {path}, by which this cluster checks who has signed a request: its "
        "owner starts one there, or sets sign.munge.socket-path"
    )


def listens(path: str) -> bool:
    """Return whether a process has the socket at a path.

    It is asked with a socket of another type, which the kernel refuses with a word of its own where
    there is a process: munged has no connection of it, which it would log, and nothing waits.
    """
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_DGRAM) as other:
        try:
            other.connect(path)
        except OSError as error:
            return error.errno == errno.EPROTOTYPE
    return False


def load(socket_path: str | None = None, library_name: str = _LIBRARY) -> "_Libmunge":
    """Load libmunge. Raises NotInstalled."""
    try:
        library = ctypes.CDLL(library_name)
    except OSError as error:
        raise NotInstalled(
            f"requests cannot be signed by MUNGE on this machine: {library_name} cannot be loaded"
        ) from error
    return _Libmunge(library, socket_path)


def _check_service(status: int, problem: str) -> None:
    if status in _SERVICE_FAILURES:
        raise Unreachable(f"MUNGE does not answer: {problem}")


class _Libmunge:
    """libmunge by ctypes. Each call has a context of its own: none may be shared by threads."""

    def __init__(self, library: ctypes.CDLL, socket_path: str | None) -> None:
        self._socket_path = None if socket_path is None else socket_path.encode()
        self._munge = library
        self._free = ctypes.CDLL(None).free
        self._free.argtypes, self._free.restype = [ctypes.c_void_p], None
        library.munge_ctx_create.argtypes = []
        library.munge_ctx_create.restype = ctypes.c_void_p
        library.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
        library.munge_ctx_destroy.restype = None
        library.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
        library.munge_ctx_strerror.restype = ctypes.c_char_p
        library.munge_strerror.argtypes = [ctypes.c_int]
        library.munge_strerror.restype = ctypes.c_char_p
        library.munge_encode.argtypes = [
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int,
        ]
        library.munge_decode.argtypes = [
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.POINTER(ctypes.c_int),
            ctypes.POINTER(ctypes.c_uint32),
            ctypes.POINTER(ctypes.c_uint32),
        ]
        # These take what follows as C does with "...": its types are given at each call.
        library.munge_ctx_set.restype = library.munge_ctx_get.restype = ctypes.c_int

    def socket_path(self) -> str:
        """Return where munged is looked for."""
        context, path = self._context(), ctypes.c_char_p()
        try:
            self._munge.munge_ctx_get(context, ctypes.c_int(_SOCKET_PATH), ctypes.byref(path))
            return (path.value or b"").decode()
        finally:
            self._munge.munge_ctx_destroy(context)

    def encode(self, payload: bytes) -> tuple[int, str, bytes]:
        context = self._context()
        credential = ctypes.c_void_p()
        try:
            status = self._munge.munge_encode(
                ctypes.byref(credential), context, payload, len(payload)
            )
            return status, self._problem(status, context), _text(credential)
        finally:
            self._free(credential)
            self._munge.munge_ctx_destroy(context)

    def decode(self, credential: bytes) -> DecodedCredential:
        context = self._context()
        payload, length = ctypes.c_void_p(), ctypes.c_int(0)
        user, group = ctypes.c_uint32(2**32 - 1), ctypes.c_uint32(2**32 - 1)
        encode_time = ctypes.c_long(0)
        try:
            status = self._munge.munge_decode(
                credential,
                context,
                ctypes.byref(payload),
                ctypes.byref(length),
                ctypes.byref(user),
                ctypes.byref(group),
            )
            problem = self._problem(status, context)
            self._munge.munge_ctx_get(
                context, ctypes.c_int(_ENCODE_TIME), ctypes.byref(encode_time)
            )
            data = b"" if not payload.value else ctypes.string_at(payload.value, length.value)
        finally:
            # Expired and replayed credentials come with a payload, too.
            self._free(payload)
            self._munge.munge_ctx_destroy(context)
        return DecodedCredential(
            status=status,
            problem=problem,
            userid=user.value,
            payload=data,
            encoded_at=encode_time.value,
        )

    def _context(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p(self._munge.munge_ctx_create())
        if not context.value:
            raise Unreachable("MUNGE does not answer: there is no memory for it")
        if self._socket_path is not None:
            self._munge.munge_ctx_set(
                context, ctypes.c_int(_SOCKET_PATH), ctypes.c_char_p(self._socket_path)
            )
        return context

    def _problem(self, status: int, context: ctypes.c_void_p) -> str:
        if status == _SUCCESS:
            return ""
        problem = self._munge.munge_ctx_strerror(context) or self._munge.munge_strerror(status)
        return str((problem or b"an unknown error").decode(errors="replace"))


def _text(pointer: ctypes.c_void_p) -> bytes:
    return b"" if not pointer.value else ctypes.string_at(pointer.value)
