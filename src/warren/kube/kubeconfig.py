"""Where a cluster is and how to get in, in the files that kubectl reads.

What is plain is read here: a token or a client certificate, embedded or in files. For
plug-ins, providers and service accounts, `credentials` asks the official package.
"""

import base64
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from warren.base import memoryfiles
from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.kube.credentials import (
    Credentials,
    FixedCredentials,
    Identity,
    IdentitySource,
    KubernetesPackageSource,
    PluginSource,
    RenewedCredentials,
    StaticSource,
    bearer,
)

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT_KUBECONFIG: Final = Path("~/.kube/config")

_IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")
"""What a user may say that would let us do more than was meant, were it passed over."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ClusterAccess:
    """One way into one cluster."""

    server: str
    authority: bytes = field(default=b"", repr=False)
    """The certificate authority, as PEM; where it is empty, those of the machine count."""
    token: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    source: IdentitySource | None = field(default=None, repr=False, compare=False)
    """What tells token, certificate and key instead, where they do not last."""
    server_name: str = ""
    """The name in the server's certificate, where it is not the host of `server`."""
    insecure: bool = False
    """Whether any server will do."""
    origin: str = field(default="", repr=False, compare=False)
    """Where it stands written, for sentences."""

    def credentials(self, clock: Clock) -> Credentials:
        """Return the user's identity in this cluster."""
        return (
            FixedCredentials(self._identity())
            if self.source is None
            else RenewedCredentials(self.source, clock, check=self._check_certificate)
        )

    def tls(self, identity: Identity | None = None) -> ssl.SSLContext:
        """Return a context that trusts the cluster's authority and no other.

        It shows the certificate of `identity`, or else the one that is fixed. Raises
        UserMistake where a certificate is none.
        """
        if self.insecure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            try:
                context = ssl.create_default_context(cadata=self.authority.decode() or None)
            except (ssl.SSLError, ValueError) as error:
                raise self._unusable("certificate-authority", error) from error
        presented = identity or self._identity()
        if presented.certificate:
            try:
                _load_certificate(context, presented)
            except (ssl.SSLError, ValueError) as error:
                raise self._unusable("client-certificate and client-key", error) from error
        return context

    def _check_certificate(self, identity: Identity) -> None:
        """Raise UserMistake for a certificate that cannot be shown to the server."""
        if identity.certificate and self.server.startswith("https://"):
            self.tls(identity)

    def _identity(self) -> Identity:
        return Identity(
            authorization=bearer(self.token, self.origin) if self.token else "",
            certificate=self.certificate,
            key=self.key,
        )

    def _unusable(self, what: str, error: Exception) -> UserMistake:
        return UserMistake(f"{self.origin or self.server}: {what}: not usable: {error}.")


def _load_certificate(context: ssl.SSLContext, identity: Identity) -> None:
    # OpenSSL takes keys from files alone; this one is never on a disk.
    with open(memoryfiles.create("client"), "wb") as file:
        file.write(identity.certificate + b"\n" + identity.key)
        file.flush()
        # Without a password it would ask the terminal for that of an encrypted key.
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")


# Finding one


def find(
    path: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = _SERVICE_ACCOUNT,
) -> ClusterAccess:
    """Return the way in that was named, or that kubectl would take, or that a pod has.

    That is the file at `path`, those that KUBECONFIG lists, the pod's service account,
    or the file in the home directory. Raises UserMistake, with what is wrong and where.
    """
    if path is not None:
        return load(path, context)
    paths = [
        Path(each).expanduser() for each in environ.get("KUBECONFIG", "").split(os.pathsep) if each
    ]
    if paths:
        existing_paths = [each for each in paths if each.exists()]
        if not existing_paths:
            raise UserMistake(f"KUBECONFIG: {', '.join(map(str, paths))}: No such file.")
        return _read(existing_paths, context)
    in_pod = environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists()
    if in_pod and context is None:
        return _in_pod(environ, service_account)
    home = _DEFAULT_KUBECONFIG.expanduser()
    if not home.exists():
        raise UserMistake(
            f"No cluster is known here: name a kubeconfig, set KUBECONFIG, or write {home}."
        )
    return load(home, context)


def load(path: Path, context: str | None = None) -> ClusterAccess:
    """Read a context of a kubeconfig, or its current one.

    Raises UserMistake, with what is wrong and where.
    """
    return _read([path], context)


def _in_pod(environ: Mapping[str, str], directory: Path) -> ClusterAccess:
    """Return what a pod's service account may reach (Kubernetes: Accessing the API from a Pod)."""
    token, authority = directory / "token", directory / "ca.crt"
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not port.isdecimal():
        raise UserMistake(f"{directory}: KUBERNETES_SERVICE_PORT is {port!r}, not a port.")
    try:
        authority_pem = authority.read_bytes()
        token_text = token.read_bytes().strip()
    except OSError as error:
        raise UserMistake(f"{error.filename}: {error.strerror}.") from error
    if not token_text or not authority_pem.strip():
        raise UserMistake(f"{authority if token_text else token}: The file is empty.")
    return ClusterAccess(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        authority=authority_pem,
        # The kubelet renews the token: from here on it is a file like any other.
        source=StaticSource(origin=str(directory), token=token),
        origin=str(directory),
    )


# Reading


class _NamedEntry(msgspec.Struct, frozen=True):
    name: str
    cluster: dict[str, Any] | None = None
    user: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class _Document(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str | None = None
    clusters: list[_NamedEntry] | None = None
    users: list[_NamedEntry] | None = None
    contexts: list[_NamedEntry] | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str = ""


class _Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None
    username: str = ""


class _Section(msgspec.Struct, frozen=True):
    """A cluster, user or context of one file: what it says, and how to say where it stands."""

    path: Path
    name: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.path}: {self.name}"

    def read(self, struct_type: type[T]) -> T:
        """Return what it says, in its shape. Raises UserMistake."""
        try:
            return msgspec.convert(self.fields, struct_type)
        except msgspec.ValidationError as error:
            raise UserMistake(f"{self}: {error}.") from error

    def file(self, name: str) -> Path:
        """Return the file of that name: it is relative to the one that names it."""
        return self.path.parent.absolute() / name

    def data_or_path(self, field: str) -> bytes | Path:
        """Return what a field embeds, or else the file that it names. Raises UserMistake."""
        data = self.fields.get(f"{field}-data")
        if not data:
            name = self.fields.get(field)
            return self.file(name) if name else b""
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except ValueError as error:
            raise UserMistake(f"{self}/{field}-data: {error}.") from error

    def content(self, field: str, data_or_path: bytes | Path) -> bytes:
        """Return what a field embeds, or what is in its file. Raises UserMistake."""
        if isinstance(data_or_path, bytes):
            return data_or_path
        try:
            return data_or_path.read_bytes()
        except OSError as error:
            raise UserMistake(f"{self}/{field}: {data_or_path}: {error.strerror}.") from error


_Documents = Sequence[tuple[Path, _Document]]


def _read(paths: Sequence[Path], context_name: str | None) -> ClusterAccess:
    """Read several files as one: of what several of them say, the first one's word counts.

    So does kubectl. The official package takes the last one's current context, and would
    lead to another cluster than kubectl does.
    """
    documents = [(path, _document(path)) for path in paths]
    current_contexts = [each.current_context for _, each in documents if each.current_context]
    name = context_name or next(iter(current_contexts), "")
    if not name:
        raise UserMistake(f"{paths[0]}: current-context: none is set.")
    context = _section(documents, "contexts", name).read(_Context)
    cluster = _section(documents, "clusters", context.cluster)
    access = _cluster_access(cluster)
    if not context.user:
        return access
    user = _section(documents, "users", context.user)
    if user.fields and not access.server.startswith("https://"):
        raise UserMistake(f"{cluster}/server: {access.server} would hear {user.name} in the clear.")
    static_source, source = _credential_sources(user, cluster, tuple(paths), name)
    if source is not None:
        return replace(access, source=source, origin=str(user))
    identity = static_source.fetch()
    if not static_source.is_fixed():
        return replace(access, source=static_source, origin=str(user))
    return replace(
        access,
        token=user.fields.get("token", ""),
        certificate=identity.certificate,
        key=identity.key,
        origin=str(user),
    )


def _document(path: Path) -> _Document:
    try:
        document = yaml.safe_load(path.read_text())
        return _Document() if document is None else msgspec.convert(document, _Document)
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}.") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserMistake(f"{path} is not a kubeconfig: {' '.join(str(error).split())}.") from error


def _section(documents: _Documents, section: str, name: str) -> _Section:
    for path, document in documents:
        for entry in getattr(document, section) or ():
            if entry.name == name:
                values = getattr(entry, section.removesuffix("s")) or {}
                fields = {field: value for field, value in values.items() if value is not None}
                return _Section(path, f"{section}/{name}", fields)
    raise UserMistake(f"{documents[0][0]}: {section}/{name}: there is none of this name.")


def _cluster_access(section: _Section) -> ClusterAccess:
    """Return how to reach a cluster, without credentials."""
    cluster = section.read(_Cluster)
    if not cluster.server.startswith(("https://", "http://")):
        raise UserMistake(f"{section}/server: {cluster.server!r} does not begin with https://.")
    if cluster.proxy_url:
        raise UserMistake(f"{section}/proxy-url: Warren cannot go through a proxy.")
    authority = section.data_or_path("certificate-authority")
    if authority and cluster.insecure_skip_tls_verify:
        raise UserMistake(
            f"{section}/insecure-skip-tls-verify: it contradicts certificate-authority."
        )
    return ClusterAccess(
        server=cluster.server,
        authority=section.content("certificate-authority", authority),
        server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        origin=str(section),
    )


def _credential_sources(
    section: _Section, cluster: _Section, paths: tuple[Path, ...], context: str
) -> tuple[StaticSource, IdentitySource | None]:
    """Return what a user says plainly, and where the rest comes from if that is not all."""
    user = section.read(_User)
    for name in _IMPERSONATION:
        if section.fields.get(name):
            raise UserMistake(f"{section}/{name}: Warren does not impersonate.")
    static_source = StaticSource(
        origin=str(section),
        # kubectl takes a token's file before the token, but what is embedded before any other file.
        token=section.file(user.token_file) if user.token_file else user.token,
        certificate=section.data_or_path("client-certificate"),
        key=section.data_or_path("client-key"),
    )
    if bool(static_source.certificate) != bool(static_source.key):
        missing = "client-key" if static_source.certificate else "client-certificate"
        raise UserMistake(f"{section}/{missing}: it is missing.")
    if static_source.token:
        return static_source, None
    if user.exec is not None:
        return static_source, PluginSource(
            origin=f"{section}/exec",
            settings=user.exec,
            cluster=cluster.fields,
            directory=section.path.parent.absolute(),
            static=static_source,
        )
    if user.auth_provider is not None or user.username:
        setting = "auth-provider" if user.auth_provider is not None else "username"
        origin = f"{section}/{setting}"
        return static_source, KubernetesPackageSource(
            origin=origin, paths=paths, context=context, static=static_source
        )
    if not static_source.certificate and cluster.fields["server"].startswith("https://"):
        raise UserMistake(f"{section}: it says neither a token nor a client certificate.")
    return static_source, None


# Writing

_DUMPER: Final[type[Any]] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""Writes the same in an eighth of the time where libyaml is there: a start writes a dozen."""


def write(path: Path, access: ClusterAccess, user: str = "admin") -> None:
    """Write a kubeconfig that only its owner can read; a reader never sees half of it.

    Only credentials that are fixed can be written.
    """
    assert access.source is None
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "warren", "cluster": _cluster_fields(access)}],
        "users": [{"name": user, "user": _user_fields(access)}],
        "contexts": [{"name": "warren", "context": {"cluster": "warren", "user": user}}],
        "current-context": "warren",
    }
    unfinished = path.with_suffix(".new")
    unfinished.touch(mode=0o600)
    unfinished.write_text(yaml.dump(document, Dumper=_DUMPER, sort_keys=False))
    unfinished.rename(path)


def _cluster_fields(access: ClusterAccess) -> dict[str, Any]:
    fields: dict[str, Any] = {"server": access.server}
    if access.authority:
        fields["certificate-authority-data"] = _base64(access.authority)
    if access.server_name:
        fields["tls-server-name"] = access.server_name
    if access.insecure:
        fields["insecure-skip-tls-verify"] = True
    return fields


def _user_fields(access: ClusterAccess) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if access.token:
        fields["token"] = access.token
    if access.certificate:
        fields["client-certificate-data"] = _base64(access.certificate)
        fields["client-key-data"] = _base64(access.key)
    return fields


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
