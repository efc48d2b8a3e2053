"""The user of a request, by a bearer token or by a certificate of the cluster's authority."""

import hmac
from collections.abc import Mapping
from typing import Any, Final

from warren.kube.admission import User
from warren.kube.server.access.authorization import ANONYMOUS, AUTHENTICATED

_BEARER: Final = "Bearer "


class Authenticator:
    """Knows the tokens of a few users, and reads certificates that TLS has verified."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self._tokens = [(token.encode(), _authenticated(user)) for token, user in tokens.items()]

    def user(self, authorization: str, certificate: Mapping[str, Any] | None) -> User | None:
        """Return the user of a request; None for an unknown token.

        `authorization` is the request's header, `certificate` what `ssl` says of the peer's.
        """
        if certificate:
            certificate_user = _user_of_certificate(certificate)
            if certificate_user is not None:
                return certificate_user
        if not authorization:
            return ANONYMOUS
        # Bytes that are no text are no token, and no mistake of ours.
        bearer_token = authorization.removeprefix(_BEARER).encode(errors="surrogateescape")
        # All are compared, so that the time that it takes tells nothing.
        matching_users = [
            user for token, user in self._tokens if hmac.compare_digest(bearer_token, token)
        ]
        return matching_users[0] if matching_users and authorization.startswith(_BEARER) else None


def _authenticated(user: User) -> User:
    return User(user.name, user.groups | {AUTHENTICATED})


def _user_of_certificate(certificate: Mapping[str, Any]) -> User | None:
    """Read a subject: its common name is the user, its organizations are the groups."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for name, value in subject if name == "commonName"]
    groups = {value for name, value in subject if name == "organizationName"}
    return _authenticated(User(names[0], frozenset(groups))) if names else None
