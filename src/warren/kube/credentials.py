"""Credentials for an API: fixed ones, and ones that a source renews.

A source is asked in a thread of its own, because it may take its time: a plug-in may
wait for a person. Plug-ins and auth providers are read by the official Python package,
which is imported when it is needed and not before: it costs a quarter of a second.
"""

import asyncio
import math
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import UserMistake, WarrenError
from warren.base.times import parse_rfc3339
from warren.kube.client import Unavailable

_REREAD_DELAY: Final = 60.0
"""Seconds after which a file is read again."""

_RETRY_DELAY: Final = 5.0
"""Seconds for which a source is not asked after a failure, or after it was asked for a refusal."""

_RENEWAL_FRACTION: Final = 0.8
"""The part of their lifetime after which credentials are renewed."""

_PLUGIN_TIMEOUT: Final = 60.0
"""Seconds that a plug-in may take."""
_WAIT_SECONDS: Final = 20.0
"""Seconds that a request waits for credentials."""
_MAX_REASON_LENGTH: Final = 300


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A header, a certificate with its key as PEM, both, or none for anonymous requests."""

    authorization: str = field(default="", repr=False)
    """The value of the Authorization header."""
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    expires: float = field(default=math.inf, compare=False)
    """When it expires, in seconds since the epoch."""


class IdentitySource(Protocol):
    """Where identities come from. Asking may block."""

    @property
    def origin(self) -> str:
        """Where the source is configured, for error messages."""
        ...

    @property
    def refresh_seconds(self) -> float | None:
        """Seconds after which to ask again; None where the identity says how long it lasts."""
        ...

    def fetch(self) -> Identity:
        """Return the identity from now on. Raises UserMistake, and Unavailable."""
        ...


class Credentials(Protocol):
    """The identity to use, at any time."""

    async def current(self) -> Identity:
        """Return the identity to use now. Raises UserMistake, and Unavailable."""
        ...

    async def renew(self, refused: Identity) -> Identity:
        """Return the identity to use after the API has refused one: the same if none is newer."""
        ...


class FixedCredentials:
    """Credentials that stay as they are."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def current(self) -> Identity:
        return self._identity

    async def renew(self, refused: Identity) -> Identity:
        return self._identity


class RenewedCredentials:
    """Credentials that are renewed before they expire, and after they were refused.

    No request waits while the present ones are valid. A source is asked by one thread at a
    time, however many requests wait; when it has failed, it is not asked for a few seconds.
    A mistake is the user's at first. Later it is most likely a file in the middle of being
    written, and the API is unavailable until it is there again.
    """

    def __init__(
        self,
        source: IdentitySource,
        clock: Clock,
        wait_seconds: float = _WAIT_SECONDS,
        check: Callable[[Identity], object] = lambda identity: None,
    ) -> None:
        """`wait_seconds` is the longest that a request waits for an answer.

        `check` raises UserMistake for an identity that cannot be used.
        """
        self._source = source
        self._check = check
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._identity: Identity | None = None
        self._failure: WarrenError | None = None
        self._pending: Future[Identity] | None = None
        self._renew_at = -math.inf
        self._last_renewal = -math.inf

    async def current(self) -> Identity:
        self._take_result()
        if self._clock.now() >= self._renew_at:
            self._start_renewal()
        identity = self._identity
        if identity is not None and self._clock.now() < identity.expires:
            return identity
        return await self._wait_result()

    async def renew(self, refused: Identity) -> Identity:
        self._take_result()
        if self._identity is not None and self._identity != refused:
            return self._identity
        if self._clock.now() < self._last_renewal + _RETRY_DELAY:
            return refused
        self._last_renewal = self._clock.now()
        self._start_renewal()
        return await self._wait_result()

    def _start_renewal(self) -> None:
        if self._pending is not None:
            return
        future: Future[Identity] = Future()
        future.set_running_or_notify_cancel()  # a caller that gives up does not end it for others
        # Not a thread of the loop's: our end would wait for it, and it may wait for ever.
        threading.Thread(
            target=_fetch_into,
            args=(self._source, self._check, future),
            name="credentials",
            daemon=True,
        ).start()
        self._pending = future

    def _take_result(self) -> None:
        """Take over what the source has answered meanwhile."""
        if self._pending is None or not self._pending.done():
            return
        future, self._pending = self._pending, None
        now = self._clock.now()
        error = future.exception()
        if error is None:
            self._failure = None
            self._identity = future.result()
            renew_after = (self._identity.expires - now) * _RENEWAL_FRACTION
            self._renew_at = now + max(
                _RETRY_DELAY,
                renew_after
                if self._source.refresh_seconds is None
                else self._source.refresh_seconds,
            )
        elif isinstance(error, WarrenError):
            is_renewal = self._identity is not None
            self._failure = Unavailable(str(error)) if is_renewal else error
            self._renew_at = now + _RETRY_DELAY
            log.warning("credentials are not renewed", reason=str(error))
        else:
            raise error

    async def _wait_result(self) -> Identity:
        if self._pending is not None:
            answer = asyncio.wrap_future(self._pending)
            try:
                done, _ = await asyncio.wait({answer}, timeout=self._wait_seconds)
            finally:
                answer.cancel()
            if not done:
                raise Unavailable(
                    f"{self._source.origin} gives no answer in {self._wait_seconds:g} s."
                )
            answer.exception()  # it is told below
            self._take_result()
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure
        assert self._identity is not None
        return self._identity


def _fetch_into(
    source: IdentitySource, check: Callable[[Identity], object], future: Future[Identity]
) -> None:
    try:
        answer = source.fetch()
        check(answer)
        future.set_result(answer)
    except BaseException as error:
        future.set_exception(error)


# Where identities come from


@dataclass(frozen=True, kw_only=True)
class StaticSource:
    """A token, and a certificate with its key, each given as it is or as a file."""

    origin: str
    token: str | Path = field(default="", repr=False)
    certificate: bytes | Path = field(default=b"", repr=False)
    key: bytes | Path = field(default=b"", repr=False)
    refresh_seconds: float | None = _REREAD_DELAY

    def is_fixed(self) -> bool:
        """Return whether its answer never changes."""
        return not any(isinstance(each, Path) for each in (self.token, self.certificate, self.key))

    def fetch(self) -> Identity:
        token = self.token
        if isinstance(token, Path):
            token = self._read(token, "tokenFile").decode(errors="replace").strip()
        return Identity(
            authorization=bearer(token, self.origin) if token else "",
            certificate=self._read(self.certificate, "client-certificate"),
            key=self._read(self.key, "client-key"),
        )

    def _read(self, material: bytes | Path, name: str) -> bytes:
        if isinstance(material, bytes):
            return material
        try:
            content = material.read_bytes()
        except OSError as error:
            raise UserMistake(f"{self.origin}/{name}: {material}: {error.strerror}.") from error
        if not content.strip():
            raise UserMistake(f"{self.origin}/{name}: {material} is empty.")
        return content


def _check_package(origin: str) -> None:
    """Raise UserMistake where the package kubernetes is missing: only a few kubeconfigs need it."""
    try:
        import kubernetes  # noqa: F401
    except ImportError:
        raise UserMistake(
            f"{origin}: this way to log in needs the Python package kubernetes: "
            "pip install 'warren[kubernetes]'."
        ) from None


@dataclass(frozen=True, kw_only=True)
class PluginSource:
    """An exec plug-in (client.authentication.k8s.io)."""

    origin: str
    settings: Mapping[str, Any] = field(repr=False)
    """What the kubeconfig says under `exec`."""
    cluster: Mapping[str, Any] = field(repr=False)
    directory: Path
    """Of the kubeconfig: a path of the program is relative to it."""
    static: StaticSource
    """What the kubeconfig says plainly besides."""
    timeout: float = _PLUGIN_TIMEOUT
    refresh_seconds: float | None = None

    def fetch(self) -> Identity:
        _check_package(self.origin)
        from kubernetes.config import ConfigException
        from kubernetes.config.exec_provider import ExecProvider
        from kubernetes.config.kube_config import ConfigNode

        static = self.static.fetch()
        try:
            provider = ExecProvider(  # type: ignore[no-untyped-call] # it has no types
                ConfigNode("exec", dict(self.settings)),  # type: ignore[no-untyped-call]
                str(self.directory),
                ConfigNode("cluster", dict(self.cluster)),  # type: ignore[no-untyped-call]
            )
        except (ConfigException, TypeError, ValueError) as error:
            raise UserMistake(f"{self.origin}: {_one_line(error)}.") from error
        self._check_installed(provider.args[0], provider.env)
        # The package waits for ever. This ends the program, and what it has started.
        provider.args = ["timeout", "--kill-after=5", f"{self.timeout:g}", *provider.args]
        try:
            answer = provider.run()  # type: ignore[no-untyped-call]
        except (ConfigException, OSError, TypeError, ValueError) as error:
            raise Unavailable(f"{self.origin}: {_one_line(error)}.") from error
        return self._identity_of(answer, static)

    def _check_installed(self, command: Any, environment: Mapping[str, str]) -> None:
        """Check that the program is installed. Raises UserMistake with its install hint."""
        program = str(self.directory / command) if "/" in str(command) else str(command)
        if shutil.which(program, path=environment.get("PATH")) is None:
            hint = self.settings.get("installHint")
            advice = f" {_one_line(hint)}." if hint else ""
            raise UserMistake(f"{self.origin}/command: {command} cannot be run here.{advice}")

    def _identity_of(self, answer: Any, static: Identity) -> Identity:
        if not isinstance(answer, dict):
            raise Unavailable(f"{self.origin}: the plug-in tells no status.")
        token = answer.get("token")
        certificate, key = answer.get("clientCertificateData"), answer.get("clientKeyData")
        if not (token or (certificate and key)):
            raise Unavailable(
                f"{self.origin}: the plug-in tells neither a token nor a certificate with its key."
            )
        try:
            expiration_text = answer.get("expirationTimestamp")
            expires = parse_rfc3339(expiration_text) if expiration_text else math.inf
        except (TypeError, ValueError) as error:
            raise Unavailable(f"{self.origin}: expirationTimestamp: {error}.") from error
        identity = replace(static, expires=expires)
        if token:
            identity = replace(identity, authorization=bearer(str(token).strip(), self.origin))
        if certificate and key:
            identity = replace(
                identity, certificate=str(certificate).encode(), key=str(key).encode()
            )
        return identity


class KubernetesPackageSource(msgspec.Struct, frozen=True, kw_only=True):
    """What only the official package reads: auth providers, passwords."""

    origin: str
    paths: tuple[Path, ...]
    context: str
    static: StaticSource
    refresh_seconds: float | None = _REREAD_DELAY

    def fetch(self) -> Identity:
        _check_package(self.origin)
        from kubernetes.client import Configuration
        from kubernetes.config import kube_config

        static = self.static.fetch()
        configuration = Configuration()
        try:
            # It renews what has ended, and writes that back: the next one must begin with it.
            kube_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=os.pathsep.join(map(str, self.paths)),
                context=self.context,
                client_configuration=configuration,
            )
        except Exception as error:  # a provider of any kind, in what is its own library
            raise Unavailable(f"{self.origin}: {_one_line(error)}.") from error
        # Each release files it under another name, and there is but one.
        header = next(iter(configuration.api_key.values()), "")
        if not header:
            raise UserMistake(
                f"{self.origin}: this way in is not known, or says nothing; "
                "an exec plug-in, a token or a client certificate would do."
            )
        return replace(static, authorization=header)


def bearer(token: str, origin: str) -> str:
    """Return the header of a token. Raises UserMistake for what can be none."""
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise UserMistake(f"{origin}: the token has characters that no token has.")
    return f"Bearer {token}"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:_MAX_REASON_LENGTH].rstrip(".")
