"""A cluster in which nothing runs by itself: objects, and one pass of one decider at a time.

Writes are done as an API server does them: admission is asked, what was decided
on a stale view is refused, deletion waits for finalizers.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tests.directives.rulebook import RULES
from tests.dws.builders import BINDING, NOW, STAMP, configuration, lustre, profile, rabbit, settled
from warren.base.bytesize import GIB
from warren.base.objects import Change, Create, Key, Kind, Object, Remove, Write, key_of, merged
from warren.dws import access, breakdown, conduct, driver, kinds, labels, servers, storage
from warren.dws.binding import Phase
from warren.dws.conduct import Fail, Finish, Release, Start
from warren.dws.objects import (
    ClientMount,
    Computes,
    DirectiveBreakdown,
    NnfAccess,
    NnfDataMovement,
    NnfNodeStorage,
    NnfStorage,
    Servers,
    Workflow,
    read,
)
from warren.dws.workflowstates import admitted, create_refusal, update_refusal

T = TypeVar("T")

NAME = Key("default", "fluxjob-7")
BELONGINGS = (kinds.BREAKDOWN, kinds.SERVERS, kinds.COMPUTES)


class Cluster:
    """One job, its Workflow, and everybody who works on it."""

    def __init__(self, *directives: str, nodes: Sequence[str] = ("n0", "n1", "n2")) -> None:
        self.objects: dict[tuple[Kind, Key], dict[str, Any]] = {}
        self.phase = Phase.HELD
        self.ran = self.failed = False
        self.env: dict[str, str] = {}
        self.states: list[str] = []
        self.broken: set[str] = set()
        """Namespaces of nodes on which nothing succeeds."""
        self._directives = directives
        self._nodes = tuple(nodes)
        self._version = 0

    # Objects

    def of(self, kind: Kind, type_: type[T]) -> list[T]:
        return [read(obj, type_) for (one, _), obj in self.objects.items() if one == kind]

    def named(self, kind: Kind, type_: type[T]) -> dict[str, T]:
        return {each.metadata.name: each for each in self.of(kind, type_)}  # type: ignore[attr-defined]

    @property
    def workflow(self) -> Workflow | None:
        raw = self.objects.get((kinds.WORKFLOW, NAME))
        return None if raw is None else read(raw, Workflow)

    def write(self, write: Write) -> None:
        """Do one write."""
        key = (write.kind, write.key)
        old = self.objects.get(key)
        match write:
            case Create(object=obj) if old is None:
                self._commit(key, self._created(write.kind, obj))
            case Change(patch=patch) if old is not None:
                assert write.resource_version in (None, old["metadata"]["resourceVersion"]), write
                if write.kind.status:
                    only = {"status": patch["status"]} if write.status else dict(patch)
                    patch = only if write.status else {**only, "status": old.get("status", {})}
                new = merged(old, patch)
                if write.kind == kinds.WORKFLOW:
                    assert update_refusal(old, new) is None, update_refusal(old, new)
                self._commit(key, new)
            case Remove() if old is not None:
                self._commit(key, merged(old, {"metadata": {"deletionTimestamp": STAMP}}))

    def _created(self, kind: Kind, obj: Object) -> Object:
        if kind == kinds.WORKFLOW:
            assert create_refusal(obj) is None
            obj = admitted(obj, RULES)
        uid = {"uid": f"uid-{obj['metadata']['name']}"}
        return merged(obj, {"metadata": uid})  # type: ignore[no-any-return]

    def _commit(self, key: tuple[Kind, Key], obj: Object) -> None:
        if obj["metadata"].get("deletionTimestamp") and not obj["metadata"].get("finalizers"):
            del self.objects[key]
            return
        self._version += 1
        self.objects[key] = merged(obj, {"metadata": {"resourceVersion": str(self._version)}})
        state = (obj.get("status") or {}).get("state")
        if key[0] == kinds.WORKFLOW and state and [state] != self.states[-1:]:
            self.states.append(state)

    # What each decider would do now

    def deciders(self) -> dict[str, Callable[[], Sequence[Any]]]:
        """Return everybody who may make a pass now."""
        found: dict[str, Callable[[], Sequence[Any]]] = {"conductor": self._conduct}
        if self.workflow is not None:
            found["workflow"] = self._drive
        one: Any
        for one in self.of(kinds.BREAKDOWN, DirectiveBreakdown):
            found[f"breakdown {one.metadata.name}"] = lambda b=one: breakdown.decide(b, [profile()])
        for one in self.of(kinds.NNF_STORAGE, NnfStorage):
            found[f"storage {one.metadata.name}"] = lambda s=one: self._store(s)
        for one in self.of(kinds.NNF_ACCESS, NnfAccess):
            found[f"access {one.metadata.name}"] = lambda a=one: self._give_access(a)
        for (kind, key), raw in self.objects.items():
            if kind in (kinds.NNF_NODE_STORAGE, kinds.CLIENT_MOUNT, kinds.NNF_DATA_MOVEMENT):
                found[f"agent {kind.name} {key}"] = lambda k=kind, r=raw: self._agent(k, r)
        return found

    def _conduct(self) -> Sequence[Any]:
        return conduct.decide(
            conduct.JobSnapshot(
                job=conduct.Job(
                    binding=BINDING,
                    id=7,
                    phase=self.phase,
                    label="fX",
                    directives=self._directives,
                    resources=[{"type": "node", "count": len(self._nodes), "with": []}],
                    nodes=() if self.phase is Phase.HELD else self._nodes,
                    ran=self.ran,
                    failed=self.failed,
                ),
                workflow=self.workflow,
                raw=self.objects.get((kinds.WORKFLOW, NAME)),
                breakdowns=self.named(kinds.BREAKDOWN, DirectiveBreakdown),
                servers=self.named(kinds.SERVERS, Servers),
                computes=next(iter(self.of(kinds.COMPUTES, Computes)), None),
                configuration=configuration(),
                floor=GIB,
            )
        )

    def _drive(self) -> Sequence[Any]:
        assert self.workflow is not None
        return driver.decide(
            driver.WorkflowSnapshot(
                workflow=self.workflow,
                breakdowns=self.named(kinds.BREAKDOWN, DirectiveBreakdown),
                servers=self.named(kinds.SERVERS, Servers),
                storages=self.named(kinds.NNF_STORAGE, NnfStorage),
                accesses=self.named(kinds.NNF_ACCESS, NnfAccess),
                movements=self.of(kinds.NNF_DATA_MOVEMENT, NnfDataMovement),
                computes=next(iter(self.of(kinds.COMPUTES, Computes)), None),
                file_systems=[lustre()],
                rabbits={"r0": rabbit("r0"), "r1": rabbit("r1")},
                dependents=[key for key in self.objects if key[0] in BELONGINGS],
                mount_prefix="/mnt/nnf",
                now=NOW,
            )
        )

    def _shares(self, name: str) -> list[NnfNodeStorage]:
        owner = (f"NnfStorage default/{name}",)
        return [
            read(obj, NnfNodeStorage)
            for (kind, _), obj in self.objects.items()
            if kind == kinds.NNF_NODE_STORAGE and labels.owner_of(obj) == owner
        ]

    def _store(self, seen: NnfStorage) -> Sequence[Any]:
        shares = self._shares(seen.metadata.name)
        writes = [*storage.decide(seen, shares)]
        given = self.named(kinds.SERVERS, Servers).get(seen.metadata.name)
        if given is not None and not seen.metadata.deleting:
            sets = {key.name: label for key, label in storage.node_storage_keys(seen).items()}
            change = servers.report(given, shares, sets)
            writes += [change] if change else []
        return writes

    def _give_access(self, seen: NnfAccess) -> Sequence[Any]:
        name = seen.spec.storage_reference.name
        own = (f"NnfAccess {seen.metadata.key}",)
        return access.decide(
            access.AccessSnapshot(
                access=seen,
                storage=self.named(kinds.NNF_STORAGE, NnfStorage).get(name),
                node_storages=self._shares(name),
                computes=next(iter(self.of(kinds.COMPUTES, Computes)), None),
                configuration=configuration(),
                mounts=[
                    read(obj, ClientMount)
                    for (kind, _), obj in self.objects.items()
                    if kind == kinds.CLIENT_MOUNT and labels.owner_of(obj) == own
                ],
            )
        )

    def _agent(self, kind: Kind, raw: Object) -> Sequence[Any]:
        """Do at once what an object asks of its node; or fail, on a node that is broken."""
        key, old = key_of(raw), raw.get("status") or {}
        if raw["metadata"].get("deletionTimestamp"):
            return [Change(kind=kind, key=key, patch={"metadata": {"finalizers": []}})]
        status: dict[str, Any]
        if key.namespace in self.broken:
            words = {"debugMessage": "broken", "userMessage": "broken"}
            status = {"error": {**words, "type": "Internal", "severity": "Fatal"}}
            if kind == kinds.NNF_DATA_MOVEMENT:
                status = {"state": "Finished", "status": "Failed", "message": "broken"}
        elif kind == kinds.CLIENT_MOUNT:
            status = settled(raw["spec"]["desiredState"], len(raw["spec"]["mounts"]))
        elif kind == kinds.NNF_DATA_MOVEMENT:
            status = {"state": "Finished", "status": "Success"}
        else:
            status = {"ready": True}
        same = merged(old, status) == old
        return [] if same else [Change(kind=kind, key=key, patch={"status": status}, status=True)]

    # Doing it

    def pass_of(self, name: str, upto: int | None = None) -> bool:
        """Make one pass, which may be cut off; return whether there was anything to do."""
        decide = self.deciders().get(name)
        actions = decide() if decide is not None else ()
        for action in actions[:upto]:
            match action:
                case Create() | Change() | Remove():
                    self.write(action)
                case Release():
                    self.phase = Phase.STARTING
                case Start(variables):
                    self.phase, self.ran, self.env = Phase.RUNNING, True, dict(variables)
                case Fail():
                    self.failed = True
                    self.phase = Phase.ENDING
                case Finish():
                    self.phase = Phase.OVER
        return bool(actions)

    def settle(self) -> None:
        """Let everybody make passes until nobody has anything to do."""
        for _ in range(100):
            if not any([self.pass_of(name) for name in self.deciders()]):
                return
        raise AssertionError(f"never settles: {[n for n, d in self.deciders().items() if d()]}")
