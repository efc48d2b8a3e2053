"""Where a cluster is and how to get in, in the file that kubectl reads."""

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from warren.base.errors import UserMistake


@dataclass(frozen=True, kw_only=True)
class Access:
    """One way into one cluster."""

    server: str
    authority: bytes
    token: str

    def tls(self) -> ssl.SSLContext:
        """Give a context that trusts the cluster's authority and nobody else."""
        return ssl.create_default_context(cadata=self.authority.decode())


def load(path: Path) -> Access:
    """Read a kubeconfig's current context. Raises UserMistake with the path of what is wrong."""
    try:
        document = yaml.safe_load(path.read_text())
        context = _named(document, "contexts", document["current-context"])["context"]
        cluster = _named(document, "clusters", context["cluster"])["cluster"]
        user = _named(document, "users", context["user"])["user"]
        return Access(
            server=cluster["server"],
            authority=base64.b64decode(cluster["certificate-authority-data"], validate=True),
            token=user["token"],
        )
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}.") from error
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UserMistake(f"{path} is not a kubeconfig with a token: {error!r}.") from error


def _named(document: Any, section: str, name: str) -> Any:
    for entry in document[section]:
        if entry["name"] == name:
            return entry
    raise KeyError(f"{section}: {name}")


def write(path: Path, access: Access) -> None:
    """Write a kubeconfig that only its owner can read; a reader never sees half of it."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "warren",
                "cluster": {
                    "server": access.server,
                    "certificate-authority-data": base64.b64encode(access.authority).decode(),
                },
            }
        ],
        "users": [{"name": "admin", "user": {"token": access.token}}],
        "contexts": [{"name": "warren", "context": {"cluster": "warren", "user": "admin"}}],
        "current-context": "warren",
    }
    unfinished = path.with_suffix(".new")
    unfinished.touch(mode=0o600)
    unfinished.write_text(yaml.safe_dump(document, sort_keys=False))
    unfinished.rename(path)
