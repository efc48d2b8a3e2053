"""Plugins that every instance has: dependencies, changes of jobs, resources of one's own."""

from warren.base.clock import Clock
from warren.instance.jobs.jobtap import Plugin
from warren.instance.jobs.plugins.after import After
from warren.instance.jobs.plugins.begin_time import BeginTime
from warren.instance.jobs.plugins.bypass import AllocBypass
from warren.instance.jobs.plugins.singleton import Singleton
from warren.instance.jobs.plugins.updates import Updates


def builtin(clock: Clock, owner: int) -> list[Plugin]:
    """Return all of them, for an instance of this owner."""
    return [After(owner), BeginTime(), Singleton(), Updates(clock), AllocBypass(owner)]
