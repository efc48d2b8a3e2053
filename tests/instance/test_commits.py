"""Actions that wait for what is written down before them."""

from tests.instance.parts import OWNER, living, virtually
from warren.instance.jobs.commits import Commits
from warren.instance.kvs import Kvs
from warren.journal import MemoryJournal


@virtually
async def test_an_action_that_fails_costs_no_other_one() -> None:
    kvs = Kvs(MemoryJournal(), OWNER)
    commits = Commits(kvs)
    done: list[int] = []

    def fail() -> None:
        raise TypeError("unhashable type: 'list'")

    async with living(kvs.run, commits.run):
        commits.when_durable(fail)
        commits.when_durable(lambda: done.append(1))
        await commits.wait_durable()
        commits.when_durable(lambda: done.append(2))
        await commits.wait_durable()

    assert done == [1, 2]
