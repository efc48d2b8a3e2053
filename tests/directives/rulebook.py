"""The rules of NNF, as facts (dws-spec section 2.1)."""

from collections.abc import Sequence
from typing import Any

from warren.directives.parse import Directive
from warren.directives.rules import Rule, check_directives, from_object

WORD = "^[a-z][a-z0-9-]+$"
KINDS = "^(raw|xfs|gfs2|lustre)$"
CAPACITY = r"^\d+(KiB|KB|MiB|MB|GiB|GB|TiB|TB)$"
VARIABLE = "^(DW_JOB_|DW_PERSISTENT_|DW_GLOBAL_)[a-z][a-z0-9_]+$"
REQUIRES = {
    "key": "^requires$",
    "type": "list-of-string",
    "patterns": ["^copy-offload$", "^user-container-auth$"],
    "isRequired": False,
    "isValueRequired": True,
}


def string(key: str, pattern: str | None = None, *, required: bool = True) -> dict[str, Any]:
    rule: dict[str, Any] = {"key": f"^{key}$", "type": "string", "isRequired": required}
    return {**rule, "isValueRequired": True} | ({"pattern": pattern} if pattern else {})


def name(unique: str | None = None) -> dict[str, Any]:
    return string("name", WORD) | ({"uniqueWithin": unique} if unique else {})


PROFILE = string("profile", WORD, required=False)
COPY = [string("source"), string("destination"), PROFILE]

NNF = {
    "metadata": {"name": "nnf"},
    "spec": [
        {
            "command": "jobdw",
            "watchStates": "Proposal,Setup,PreRun,PostRun,Teardown",
            "ruleDefs": [
                string("type", KINDS),
                string("capacity", CAPACITY),
                name("jobdw_name"),
                PROFILE,
                REQUIRES,
            ],
        },
        {
            "command": "create_persistent",
            "watchStates": "Proposal,Setup,Teardown",
            "ruleDefs": [
                string("type", KINDS),
                string("capacity", CAPACITY, required=False),
                name("create_persistent_name"),
                PROFILE,
            ],
        },
        {
            "command": "destroy_persistent",
            "watchStates": "Proposal,Teardown",
            "ruleDefs": [name("destroy_persistent_name")],
        },
        {
            "command": "persistentdw",
            "watchStates": "Proposal,Setup,PreRun,PostRun,Teardown",
            "ruleDefs": [name(), REQUIRES],
        },
        {"command": "copy_in", "watchStates": "Proposal,DataIn,Teardown", "ruleDefs": COPY},
        {"command": "copy_out", "watchStates": "Proposal,DataOut,Teardown", "ruleDefs": COPY},
        {
            "command": "container",
            "watchStates": "Proposal,Setup,PreRun,PostRun,Teardown",
            "ruleDefs": [
                name(),
                string("profile", WORD),
                {**string("x", required=False), "key": VARIABLE},
            ],
        },
    ],
}

RULES: list[Rule] = from_object(NNF)


def check(directives: Sequence[Directive], rules: Sequence[Rule]) -> None:
    """Raise the first mistake of some directives."""
    for found in check_directives([each.text for each in directives], rules).findings:
        raise found.mistake
