"""Lustre: the file systems that a site has, and the MGTs that serve those of jobs."""

from collections.abc import Mapping

from warren.base.objects import Key
from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Error, Meta


class NamespaceSpec(Struct, frozen=True):
    """In which modes a namespace is to have volumes of a file system."""

    modes: tuple[str, ...] = ()


class LustreSpec(Struct, frozen=True):
    name: str
    mount_root: str
    namespaces: Mapping[str, NamespaceSpec] = {}


class AccessStatus(Struct, frozen=True):
    state: str = ""
    persistent_volume_ref: Mapping[str, str] | None = None
    persistent_volume_claim_ref: Mapping[str, str] | None = None

    @property
    def exists(self) -> bool:
        """Whether a volume or a claim has been made."""
        return bool(self.persistent_volume_ref or self.persistent_volume_claim_ref)


class NamespaceStatus(Struct, frozen=True):
    modes: Mapping[str, AccessStatus] = {}


class LustreStatus(Struct, frozen=True):
    namespaces: Mapping[str, NamespaceStatus] = {}


class LustreFileSystem(Struct, frozen=True):
    metadata: Meta
    spec: LustreSpec
    status: LustreStatus = LustreStatus()


class Requester(Struct, frozen=True):
    """The NnfStorage that asks for a name, or for commands: a later one of its name is another.

    Claims of names that were made by earlier versions have no `uid`.
    """

    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class LustreClaim(Struct, frozen=True):
    reference: Requester
    fsname: str = ""


class MgsCommands(Struct, frozen=True):
    """Command lines that are to be run on the MGS, without variables."""

    reference: Requester = Requester()
    commands: tuple[str, ...] = ()


class MgsAnswer(Struct, frozen=True):
    """Whether the MGS has run the commands of a requester, or why it could not."""

    reference: Requester = Requester()
    ready: bool = False
    error: Error | None = None


class LustreMgtSpec(Struct, frozen=True):
    addresses: tuple[str, ...] = ()
    fs_name_start: str = "aaaaaaaa"
    fs_name_black_list: tuple[str, ...] = ()
    claim_list: tuple[Requester, ...] = ()
    command_list: tuple[MgsCommands, ...] = ()


class LustreMgtStatus(Struct, frozen=True):
    fs_name_next: str = ""
    claim_list: tuple[LustreClaim, ...] = ()
    command_list: tuple[MgsAnswer, ...] = ()


class NnfLustreMGT(Struct, frozen=True):
    """An MGT, which gives each Lustre file system that it serves a name of its own."""

    metadata: Meta
    spec: LustreMgtSpec = LustreMgtSpec()
    status: LustreMgtStatus = LustreMgtStatus()
