"""The commands of profiles, read from the objects that an agent reconciles."""

from warren.base.errors import UserMistake
from warren.dws import commandlines, labels
from warren.dws.commandlines import ProfileCommands
from warren.dws.node import NodeTrouble
from warren.dws.objects.meta import Meta


def commands_of(meta: Meta) -> ProfileCommands:
    """Return the commands that an object carries. Raises NodeTrouble where they make no sense."""
    try:
        return commandlines.decode(meta.annotations.get(labels.COMMANDS))
    except UserMistake as mistake:
        raise NodeTrouble(str(mistake).removesuffix("."), fatal=True) from mistake
