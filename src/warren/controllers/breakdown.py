"""DirectiveBreakdowns: what each directive needs (decided in `dws.breakdown`)."""

from functools import partial

from warren.base.objects import Key, Object, key_of
from warren.controllers.filesystemtypes import is_made_by_some_only
from warren.controllers.live import read_live
from warren.controllers.users import user_getter
from warren.dws import kinds
from warren.dws.breakdown import directivebreakdown
from warren.dws.breakdown.breakdownsnapshot import BreakdownSnapshot
from warren.dws.breakdown.indexes import named_instance_keys
from warren.dws.objects.assignments import Servers
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.kube.client import Client, Invalid
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class BreakdownController:
    """Reconciles every DirectiveBreakdown."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._breakdowns = informers.of(kinds.BREAKDOWN)
        self._profiles = informers.of(kinds.NNF_STORAGE_PROFILE)
        self._instances = informers.of(kinds.PERSISTENT_INSTANCE)
        self._servers = informers.of(kinds.SERVERS)
        self._rabbits = informers.of(kinds.STORAGE)
        self.reconciler: Reconciler[Key] = Reconciler(
            "breakdown", self.reconcile, user=user_getter(self._breakdowns)
        )
        self._breakdowns.listen(lambda obj: self.reconciler.add(key_of(obj)))
        self._maybe_gone: set[Key] = set()
        """Breakdowns whose copy of a profile is gone: they may be gone, too, and not seen to be."""
        for informer in (self._profiles, self._instances, self._servers):
            informer.listen(self._dependency_changed)
        self._profiles.listen(self._pinned_profile_changed)
        self._profiles.listen(self._profile_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile a DirectiveBreakdown."""
        raw = self._breakdowns.get(key)
        if key in self._maybe_gone:
            raw = await read_live(self._client, kinds.BREAKDOWN, key)
            self._maybe_gone.discard(key)
        if raw is not None:
            current = read(raw, DirectiveBreakdown)
            try:
                await perform(self._client, directivebreakdown.decide(self._snapshot(raw, current)))
            except Invalid as error:
                # The definitions may be HPE's, which know fewer file systems than ours.
                await perform(
                    self._client, directivebreakdown.report_unsupported(current, str(error))
                )
        return None

    def _snapshot(self, raw: Object, current: DirectiveBreakdown) -> BreakdownSnapshot:
        named = named_instance_keys(raw)
        named_key = Key.parse(named[0]) if named else current.metadata.key
        instance, servers = self._instances.get(named_key), self._servers.get(named_key)
        return BreakdownSnapshot(
            breakdown=current,
            profiles=self._profiles.by_index("profiles", kinds.PROFILES_NAMESPACE),
            pinned_profile=self._profiles.get(named_key),
            instance=read(instance, PersistentStorageInstance) if named and instance else None,
            servers=read(servers, Servers) if named and servers else None,
            only_some_rabbits_make=partial(is_made_by_some_only, self._rabbits),
        )

    def _dependency_changed(self, obj: Object) -> None:
        """Requeue the breakdowns that wait for an object of their name, or of their instance's."""
        key = key_of(obj)
        for each in self._breakdowns.by_index("breakdown instance", str(key)):
            self._wake(each)
        of_same_name = self._breakdowns.get(key)
        if of_same_name is not None:
            self._wake(of_same_name)

    def _pinned_profile_changed(self, obj: Object) -> None:
        """Have a breakdown whose copy of a profile is gone read live, if it is woken by that.

        The garbage collector takes the copies of breakdowns that it has seen go. To make another
        one for what is still seen here would be done again as fast as that is removed.
        """
        key = key_of(obj)
        if self._profiles.get(key) is None and self._breakdowns.get(key) is not None:
            self._maybe_gone.add(key)

    def _profile_changed(self, obj: Object) -> None:
        """Requeue the breakdowns that wait for a profile: by its name, or for the default."""
        key = key_of(obj)
        if key.namespace != kinds.PROFILES_NAMESPACE:
            return
        # Which is the default may have changed by it, whatever it says by now.
        for name in (key.name, ""):
            for each in self._breakdowns.by_index("breakdown profile", name):
                self._wake(each)

    def _wake(self, obj: Object) -> None:
        if not (obj.get("status") or {}).get("ready"):
            self.reconciler.add(key_of(obj))
