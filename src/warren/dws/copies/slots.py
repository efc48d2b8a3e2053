"""Which copy is next on a rabbit: its slots are shared fairly between users.

A slot is room for one copy at a time. Those that a profile names are MPI's (`copyprofiles`).
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

import msgspec

from warren.base.objects import Key


class WaitingCopy(msgspec.Struct, frozen=True):
    """A copy that waits for a slot."""

    key: Key
    userid: int


def next_copies(
    waiting: Sequence[WaitingCopy],
    running_userids: Sequence[int],
    last_turn_by_user: Mapping[int, int],
    slots: int,
) -> list[WaitingCopy]:
    """Return the copies that are to begin now, in order.

    No user waits for another user's copies, which may take as long as that user likes: a user who
    has none at work is given one, also beyond `slots`. Otherwise each free slot goes to the user
    with the fewest copies at work; of several, to the one whose last turn is longest ago. A
    user's own copies go in the order in which they are `waiting`. `running_userids` has the user of
    each copy at work, and `last_turn_by_user` a number for each user's last turn, greater for later
    ones.
    """
    running_counts = Counter(running_userids)
    queues: dict[int, deque[WaitingCopy]] = {}
    for copy in waiting:
        queues.setdefault(copy.userid, deque()).append(copy)
    newest_turn_by_user = dict(last_turn_by_user)
    chosen: list[WaitingCopy] = []
    while queues:
        user = min(
            queues, key=lambda each: (running_counts[each], newest_turn_by_user.get(each, -1))
        )
        if running_counts[user] and len(running_userids) + len(chosen) >= slots:
            break
        chosen.append(queues[user].popleft())
        if not queues[user]:
            del queues[user]
        running_counts[user] += 1
        newest_turn_by_user[user] = max(newest_turn_by_user.values(), default=0) + 1
    return chosen
