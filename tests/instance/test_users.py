"""Who users are."""

import asyncio
import grp
import os
import pwd

from warren.instance.users import User, look_up_user, unknown_names, user_exists


def ask(userid: int) -> User:
    async def asked() -> User:
        return await look_up_user(userid)

    return asyncio.run(asked())


def test_a_user_has_a_name_and_the_names_of_its_groups() -> None:
    entry = pwd.getpwuid(os.getuid())
    user = ask(os.getuid())

    assert user.name == entry.pw_name
    assert grp.getgrgid(entry.pw_gid).gr_name in user.groups


def test_a_number_that_no_user_has_is_nameless_and_in_no_group() -> None:
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    free = next(number for number in range(2_000_000, 3_000_000) if number not in taken)

    assert ask(free) == User(None)
    assert not asyncio.run(user_exists(free))
    assert asyncio.run(user_exists(os.getuid()))


def test_names_of_no_user_or_group_are_unknown() -> None:
    user, group = pwd.getpwuid(0).pw_name, grp.getgrgid(0).gr_name

    assert list(unknown_names([user, "no-such-user"], [group, "no-such-group"])) == [
        "no-such-user",
        "no-such-group",
    ]
