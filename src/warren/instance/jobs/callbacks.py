"""Callbacks of plugins by topic, and what a plugin may cost that fails."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from warren.base import log
from warren.instance.jobs.jobtap import Jobtap, Plugin, Rejected
from warren.instance.jobs.known import ActiveJob, InactiveJob
from warren.rfc import fluid
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId

OnFailure = Callable[[ActiveJob, str], None]
"""Called when a plugin has failed, with the job and the plugin's name."""


class _Callback(msgspec.Struct, frozen=True):
    plugin: str
    call: Callable[..., Any]


class PluginStack:
    """All plugins, in the order in which they were loaded."""

    def __init__(self, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._plugins: dict[str, Plugin] = {}
        self._callbacks: dict[str, list[_Callback]] = {}
        self.current: ActiveJob | None = None
        """The job that a callback is being called for."""

    @property
    def plugin_names(self) -> list[str]:
        return list(self._plugins)

    def load(self, plugin: Plugin, tap: Jobtap) -> None:
        """Add a plugin. Raises ValueError for a second one of the same name."""
        if plugin.name in self._plugins:
            raise ValueError(f"there is a plugin {plugin.name} already")
        self._plugins[plugin.name] = plugin
        for topic, callback in plugin.load(tap).items():
            self._callbacks.setdefault(topic, []).append(_Callback(plugin.name, callback))

    def has_callback(self, topic: str) -> bool:
        """Return whether a plugin has a callback on a topic."""
        return topic in self._callbacks

    def call(self, topic: str, active_job: ActiveJob) -> None:
        """Call all plugins for a job. One that fails costs the job; the others are called, too."""
        callbacks = self._callbacks.get(topic)
        if callbacks is not None:
            for callback in callbacks:
                self._call_guarded(callback, topic, active_job, active_job.job)

    def call_subscribers(self, active_job: ActiveJob, event: Event) -> None:
        """Call the plugins that have subscribed to the events of a job."""
        for callback in self._callbacks.get("job.event.*", ()):
            if callback.plugin in active_job.subscribers:
                self._call_guarded(callback, "job.event.*", active_job, active_job.job, event)

    def check(self, topic: str, active_job: ActiveJob, *arguments: Any) -> None:
        """Ask all plugins for objections. Raises Rejected at the first objection, or failure."""
        for _ in self.collect(topic, active_job, *arguments):
            pass

    def collect(self, topic: str, active_job: ActiveJob, *arguments: Any) -> Iterator[Any]:
        """Return the answers of all plugins. Raises Rejected at the first objection, or failure."""
        for callback in self._callbacks.get(topic, ()):
            before, self.current = self.current, active_job
            try:
                answer = callback.call(active_job.job, *arguments)
            except Rejected:
                raise
            except Exception as error:
                self._report(callback.plugin, topic, active_job.job.id, error)
                raise Rejected(f"plugin {callback.plugin} failed on {topic}") from error
            finally:
                self.current = before
            yield answer

    def call_removed(self, removed: InactiveJob) -> None:
        """Call all plugins for an inactive job that is purged."""
        for callback in self._callbacks.get("job.inactive-remove", ()):
            try:
                callback.call(removed.job)
            except Exception as error:  # a bug must not keep jobs from being purged
                self._report(callback.plugin, "job.inactive-remove", removed.id, error)

    def query(self, plugin: str) -> Any:
        """Return what a plugin tells of itself."""
        for callback in self._callbacks.get("plugin.query", ()):
            if callback.plugin == plugin:
                return callback.call()
        return {}

    def configure(self, config: Any) -> None:
        """Call all plugins with the configuration. If one raises, the instance does not start."""
        for callback in self._callbacks.get("conf.update", ()):
            callback.call(config)

    def _call_guarded(
        self, callback: _Callback, topic: str, active_job: ActiveJob, *arguments: Any
    ) -> None:
        before, self.current = self.current, active_job
        try:
            callback.call(*arguments)
        except Exception as error:  # a bug may cost one job, not all
            self._report(callback.plugin, topic, active_job.job.id, error)
            self._on_failure(active_job, f"plugin {callback.plugin} failed on {topic}")
        finally:
            self.current = before

    @staticmethod
    def _report(plugin: str, topic: str, job: JobId, error: Exception) -> None:
        log.error("plugin failed", plugin=plugin, topic=topic, job=fluid.f58(job), raised=error)
