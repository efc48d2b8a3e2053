"""A kernel's tree of NVMe targets, that refuses what the kernel refuses."""

import dataclasses
import errno
import os
from dataclasses import dataclass, field

from msgspec.structs import replace

from warren.node.nvmetree import (
    Link,
    Make,
    Port,
    Remove,
    Step,
    Subsystem,
    TargetTree,
    Unlink,
    Write,
)

SUBSYSTEM = {"attr_allow_any_host": "1", "attr_model": "Linux", "attr_serial": "0"}
NAMESPACE = {"device_path": "(null)", "device_uuid": "", "device_nguid": "", "enable": "0"}
PORT = {"addr_trtype": "", "addr_adrfam": "", "addr_traddr": "", "addr_trsvcid": ""}


@dataclass
class FakeTargets:
    """`Targets` in memory. `done` is what was done."""

    tree: TargetTree = field(default_factory=TargetTree)
    hosts: set[str] = field(default_factory=set)
    has_keys: bool = True
    """Whether it is one of a kernel that lets hosts prove who they are."""
    devices: set[str] = field(default_factory=lambda: {"/dev/a", "/dev/b"})
    done: list[Step] = field(default_factory=list)

    def read(self) -> TargetTree:
        return self.tree

    def apply(self, step: Step) -> None:
        self.done.append(step)
        kind, name, *rest = step.path.split("/")
        match kind, rest:
            case "hosts", []:
                self._host(step, name)
            case "hosts", ["dhchap_key"]:
                assert isinstance(step, Write)
                assert step.root_only
                _demand(self.has_keys and name in self.hosts, errno.ENOENT)
                _demand(step.text.startswith("DHHC-1:"), errno.EINVAL)
                self.tree = dataclasses.replace(self.tree, keys={**self.tree.keys, name: step.text})
            case "subsystems", _:
                found = self.tree.subsystems.get(name)
                changed = self._subsystem(step, name, found, rest)
                self._put(subsystems={**self.tree.subsystems, name: changed})
            case "ports", _:
                port = self.tree.ports.get(name)
                self._put(ports={**self.tree.ports, name: self._port(step, port, rest)})

    def _put(self, **parts: dict[str, Subsystem | None] | dict[str, Port | None]) -> None:
        kept = {
            kind: {name: each for name, each in found.items() if each is not None}
            for kind, found in parts.items()
        }
        self.tree = dataclasses.replace(self.tree, **kept)  # type: ignore[arg-type]

    def _host(self, step: Step, name: str) -> None:
        if isinstance(step, Make):
            self.hosts.add(name)
            self.tree = dataclasses.replace(self.tree, keys={name: "", **self.tree.keys})
        else:
            assert isinstance(step, Remove)
            if any(name in each.hosts for each in self.tree.subsystems.values()):
                assert step.unless_used, "EBUSY"
            else:
                self.hosts.discard(name)
                left = {host: key for host, key in self.tree.keys.items() if host != name}
                self.tree = dataclasses.replace(self.tree, keys=left)

    def _subsystem(
        self, step: Step, name: str, found: Subsystem | None, rest: list[str]
    ) -> Subsystem | None:
        match step, rest:
            case Make(), []:
                return found or Subsystem(attributes=SUBSYSTEM)
            case Remove(), []:
                if found is None:
                    return None
                _demand(not (found.hosts or found.namespaces), errno.ENOTEMPTY)
                _demand(all(name not in port.subsystems for port in self.tree.ports.values()))
                return None
            case ((Make() | Remove() | Write()), ["namespaces", *_]):
                assert found is not None
                return replace(found, namespaces=self._namespaces(step, found, rest[1:]))
            case Link(to=to), ["allowed_hosts", host]:
                assert found is not None
                _demand(to == f"hosts/{host}" and host in self.hosts, errno.ENOENT)
                return replace(found, hosts=found.hosts | {host})
            case Unlink(), ["allowed_hosts", host]:
                assert found is not None
                return replace(found, hosts=found.hosts - {host})
            case Write(text=text), [attribute]:
                assert found is not None
                _demand(attribute in SUBSYSTEM, errno.ENOENT)
                return replace(found, attributes={**found.attributes, attribute: text})
        raise AssertionError(step)

    def _namespaces(
        self, step: Step, found: Subsystem, rest: list[str]
    ) -> dict[str, dict[str, str]]:
        known = {name: dict(each) for name, each in found.namespaces.items()}
        match step, rest:
            case Make(), [number]:
                known.setdefault(number, dict(NAMESPACE))
            case Remove(), [number]:
                known.pop(number, None)
            case Write(text=text), [number, attribute]:
                _demand(attribute in NAMESPACE, errno.ENOENT)
                if attribute == "enable":
                    _demand(text == "0" or known[number]["device_path"] in self.devices)
                else:
                    _demand(known[number]["enable"] == "0")
                known[number][attribute] = text
            case _:
                raise AssertionError(step)
        return known

    def _port(self, step: Step, found: Port | None, rest: list[str]) -> Port | None:
        match step, rest:
            case Make(), []:
                return found or Port(attributes=PORT)
            case Remove(unless_used=unless_used), []:
                if found is not None and found.subsystems:
                    _demand(unless_used)
                    return found
                return None
            case Link(to=to), ["subsystems", name]:
                assert found is not None
                _demand(to == f"subsystems/{name}" and name in self.tree.subsystems, errno.ENOENT)
                _demand(all(found.attributes.values()), errno.EINVAL)
                return replace(found, subsystems=found.subsystems | {name})
            case Unlink(), ["subsystems", name]:
                assert found is not None
                return replace(found, subsystems=found.subsystems - {name})
            case Write(text=text), [attribute]:
                assert found is not None
                _demand(attribute in PORT, errno.ENOENT)
                _demand(not found.subsystems, errno.EACCES)
                return replace(found, attributes={**found.attributes, attribute: text})
        raise AssertionError(step)


def _demand(true: bool, number: int = errno.EBUSY) -> None:
    if not true:
        raise OSError(number, os.strerror(number))
