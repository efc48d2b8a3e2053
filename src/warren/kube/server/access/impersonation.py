"""Impersonation: requests in another user's name, for users whose roles allow it."""

from collections.abc import Iterator
from typing import Final

from multidict import CIMultiDictProxy

from warren.kube.admission import User
from warren.kube.client import Refused
from warren.kube.server.access.authorization import (
    ANONYMOUS,
    AUTHENTICATED,
    Attributes,
    Authorizer,
    forbidden_message,
    service_account,
)

_USER_HEADER: Final = "Impersonate-User"
_GROUP_HEADER: Final = "Impersonate-Group"
_UNSUPPORTED_HEADERS: Final = ("Impersonate-Uid", "Impersonate-Extra-")
_ACCOUNT_PREFIX: Final = "system:serviceaccount:"


class ImpersonationForbidden(Refused):
    """A user may not act as another one."""


def acting_user(user: User, headers: CIMultiDictProxy[str], authorizer: Authorizer) -> User:
    """Return the user that a request acts as: its own, or the one that its headers name.

    Raises ImpersonationForbidden, and Refused for what makes no sense or is not done here.
    """
    name, groups = headers.get(_USER_HEADER, ""), headers.getall(_GROUP_HEADER, [])
    if any(header.startswith(_UNSUPPORTED_HEADERS) for header in map(str.title, headers)):
        raise Refused("only a user and groups can be impersonated, no uid and nothing extra")
    if not name and not groups:
        return user
    if not name:
        raise Refused(f"{_GROUP_HEADER} without {_USER_HEADER}")
    for attributes in _impersonation_attributes(name, groups):
        if not authorizer.allows(user, attributes):
            raise ImpersonationForbidden(forbidden_message(user, attributes))
    return _user(name, frozenset(groups))


def _impersonation_attributes(name: str, groups: list[str]) -> Iterator[Attributes]:
    namespace, _, account = name.removeprefix(_ACCOUNT_PREFIX).partition(":")
    if name.startswith(_ACCOUNT_PREFIX) and account:
        yield Attributes(
            verb="impersonate", resource="serviceaccounts", namespace=namespace, name=account
        )
    else:
        yield Attributes(verb="impersonate", resource="users", name=name)
    for group in groups:
        yield Attributes(verb="impersonate", resource="groups", name=group)


def _user(name: str, groups: frozenset[str]) -> User:
    if name == ANONYMOUS.name:
        return User(name, groups | ANONYMOUS.groups)
    namespace, _, account = name.removeprefix(_ACCOUNT_PREFIX).partition(":")
    if name.startswith(_ACCOUNT_PREFIX) and account and not groups:
        return service_account(namespace, account)
    return User(name, groups | {AUTHENTICATED})
