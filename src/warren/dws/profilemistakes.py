"""What is wrong with a profile, of storage, of containers or of copies."""

import msgspec


class ProfileMistake(msgspec.Struct, frozen=True):
    """One thing that is wrong with a profile, and where."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"
