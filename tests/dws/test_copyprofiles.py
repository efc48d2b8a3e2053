"""Profiles of copies: what they may say, which one a directive takes, and what is run."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.dws.builders import DEEP, meta
from warren.base.errors import UserMistake
from warren.dws import labels
from warren.dws.copies import commands, copyprofiles
from warren.dws.copies.commands import CopyMethod
from warren.dws.copies.staging import Plan
from warren.dws.faults import Fault
from warren.dws.node import Copy
from warren.dws.objects.meta import Meta

COPY = Copy(source="/lus/in", destination="/m/out", index=None, userid=7, groupid=8)
NNF = (
    "ulimit -n 2048 && mpirun --allow-run-as-root --hostfile $HOSTFILE "
    "dcp --progress 1 --uid $UID --gid $GID $SRC $DEST"
)


def profile(name: str = "fast", namespace: str = "nnf-system", **data: Any) -> dict[str, Any]:
    return {"metadata": meta(name, namespace), "data": {"command": "rsync $SRC $DEST", **data}}


# Commands


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("rsync -a $SRC $DEST", CopyMethod(words=("rsync", "-a", "$SRC", "$DEST"))),
        ("cp '-r x' --to=$DEST $SRC", CopyMethod(words=("cp", "-r x", "--to=$DEST", "$SRC"))),
        ("warren-copy $SRC $DEST", CopyMethod()),
        ("warren-copy --verify $SRC $DEST", CopyMethod(verify=True)),
        ("warren-copy --rate=500MiB/s $SRC $DEST", CopyMethod(rate=500 * 2**20)),
        (
            NNF,
            CopyMethod(words=("prlimit", "--nofile=2048", *NNF.partition("&& ")[2].split())),
        ),
    ],
)
def test_a_command_is_words(text: str, means: CopyMethod) -> None:
    found = commands.parse(text)
    assert replace(found, words=tuple(found.words)) == means


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "The command is empty"),
        ("rsync 'a $SRC $DEST", "No closing quotation"),
        ("rsync $SRC /lus", "does not say what becomes of $DEST"),
        ("rsync $SRCS $DEST", "There is no variable '$SRCS'. Did you mean"),
        ("rsync $SRC $DEST $HOME", "There is no variable '$HOME'"),
        ("rsync $SRC $DEST && true", "'&&' is a shell's"),
        ("rsync $SRC $DEST | tee", "'|' is a shell's"),
        ("rsync $SRC $DEST >/tmp/log", "'>' is a shell's"),
        ("rsync $SRC $DEST 2>&1", "'>&' is a shell's"),
        ("rsync $SRC $DEST; true", "';' is a shell's"),
        ("(rsync $SRC $DEST)", "'(' is a shell's"),
        ("rsync $SRC `id` $DEST", "'`id`' is a shell's"),
        ("rsync $SRC $(id) $DEST", "is a shell's"),
        ("warren-copy --fast $SRC $DEST", "its options are --verify and --rate=SIZE"),
        ("warren-copy --rate=0 $SRC $DEST", "is no"),
        ("warren-copy --rate=quick $SRC $DEST", "quick"),
    ],
)
def test_what_cannot_be_run_is_said(text: str, why: str) -> None:
    with pytest.raises(UserMistake) as caught:
        commands.parse(text)
    assert why in str(caught.value)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_whatever_a_path_is_it_stays_in_its_word(name: str) -> None:
    copy = replace(COPY, command=["p", "--from=$SRC", "$DEST", "$UID:$GID", "$HOSTFILE"])
    plan = Plan(f"/lus/{name}", "/m", ("x",), contents_only=False)

    assert commands.argument_vector(copy, plan, False, "/h") == [
        "p", f"--from=/lus/{name}", "/m/x", "7:8", "/h",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("plan", "tree", "expected"),
    [
        (Plan("/lus/a", "/d", ("b",), contents_only=False), False, ("/lus/a", "/d/b")),
        (Plan("/lus/a", "/d", ("r-0", "b"), contents_only=False), False, ("/lus/a", "/d/r-0/b")),
        (Plan("/lus/a", "/d", ("a",), contents_only=False), True, ("/lus/a", "/d/")),
        (Plan("/m/r-0/a", "/d", ("r-0", "a"), contents_only=False), True, ("/m/r-0/a", "/d/r-0/")),
        (Plan("/lus/a/", "/d", (), contents_only=True), True, ("/lus/a/", "/d/")),
        (Plan("/m/r-0/", "/d", ("r-0",), contents_only=True), True, ("/m/r-0/", "/d/r-0/")),
        (Plan("/", "/d", (), contents_only=True), True, ("/", "/d/")),
    ],
)
def test_paths_say_what_a_plan_does(plan: Plan, tree: bool, expected: tuple[str, str]) -> None:
    assert commands.paths(plan, tree) == expected


# Output


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "[2026-01-02T03:04:05] Copied 1.2 GiB (45%) in 3.2 secs (400 MiB/s) 4 secs left ...",
            {"progress": 45},
        ),
        ("  1,238,099  99.7%  146.38kB/s  0:00:08 (xfr#5, to-chk=169/396)", {"progress": 99}),
        ("[2026-01-02T03:04:05]   Directories: 12", {"directories": 12}),
        ("Items: 15", {"items": 15}),
        ("Files: many", {}),
        ("Items: 2147483647", {"items": 2147483647}),
        ("Items: 2147483648", {}),
        ("Items: 99999999999999999999999", {}),
        (f"Links: {'9' * 5000}", {}),
        ("Data: 1.000 GiB (1073741824 bytes)", {"data": "1.000 GiB (1073741824 bytes)"}),
        ("Rate: 1.2 GiB/s (10 bytes in 3 seconds)", {"rate": "1.2 GiB/s (10 bytes in 3 seconds)"}),
        ("Seconds: 3.25", {"seconds": "3.25"}),
        ("something else", {}),
        ("more than all: 250%", {"progress": 100}),
    ],
)
def test_output_is_understood_as_far_as_it_says_something(
    line: str, shown: dict[str, object]
) -> None:
    assert commands.command_status(commands.parse_output(line)) == {"lastMessage": line, **shown}


def test_time_that_passes_is_no_progress() -> None:
    first, second, third = (
        commands.parse_output(f"Copied {data} ({percent}%) in {seconds} secs")["progress_mark"]
        for data, percent, seconds in (("1 GiB", 4, 1), ("1 GiB", 4, 60), ("2 GiB", 4, 61))
    )
    assert first == second != third


def test_the_hosts_are_the_rabbit_itself() -> None:
    assert commands.hostfile_text(8, 0) == "localhost slots=8\n"
    assert commands.hostfile_text(0, 0) == "localhost\n"
    assert commands.hostfile_text(2, 4) == "localhost slots=2 max_slots=4\n"


# Choice


def test_a_directive_takes_the_profile_that_it_names_or_the_default_or_none() -> None:
    fast, usual = profile("fast"), profile("usual", default=True)
    both = {"fast": fast, "usual": usual}

    assert copyprofiles.choose("fast", both) is fast
    assert copyprofiles.choose(None, both) is usual
    assert copyprofiles.choose(None, {"fast": fast}) is None
    with pytest.raises(Fault, match=r"Unable to find NnfDataMovementProfile: fsat"):
        copyprofiles.choose("fsat", both)
    with pytest.raises(Fault, match=r"NnfDataMovementProfile: fsat. There is none: name none"):
        copyprofiles.choose("fsat", {})
    with pytest.raises(Fault, match=r"2 NnfDataMovementProfiles are the default"):
        copyprofiles.choose(None, {"a": profile("a", default=True), "usual": usual})


# What an agent hears of it


def of_movement(**data: Any) -> dict[str, Any]:
    text = copyprofiles.annotation(profile(**data))
    return copyprofiles.copy_options(Meta(name="m", annotations={labels.COPY_PROFILE: text}))


def test_an_agent_hears_what_the_profile_says() -> None:
    assert copyprofiles.copy_options(Meta(name="m")) == {}
    assert of_movement(command="warren-copy --verify $SRC $DEST") == {"verify": True, "rate": 0}
    assert of_movement(slots=3, storeStdout=True, createDestDir=False, statCommand="x") == {
        "command": ("rsync", "$SRC", "$DEST"),
        "hosts": "localhost slots=3\n",
        "makes_directories": False,
        "tells_output": True,
    }


@pytest.mark.parametrize("text", ["{", "{}", '{"command": 1}', '{"command": "rm"}', DEEP])
def test_an_agent_runs_nothing_that_is_no_command(text: str) -> None:
    with pytest.raises(UserMistake):
        copyprofiles.copy_options(Meta(name="m", annotations={labels.COPY_PROFILE: text}))


def test_a_profile_that_cannot_be_used_is_told() -> None:
    with pytest.raises(Fault, match=r"NnfDataMovementProfile fast cannot be used: data\.command"):
        copyprofiles.annotation(profile(command="rsync | $SRC $DEST"))


# What none may say


def paths_of(new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return [mistake.path for mistake in copyprofiles.mistakes(new, old)]


def test_a_profile_that_says_nothing_wrong_is_admitted() -> None:
    assert paths_of(profile(command=NNF, statCommand="stat $PATH", default=True)) == []
    assert paths_of(profile(namespace="default", pinned=True)) == []


@pytest.mark.parametrize(
    ("new", "path"),
    [
        (profile(command="rsync"), "data.command"),
        (profile(command=7), "data"),
        ({"metadata": meta("p", "nnf-system"), "data": {}}, "data"),
        (profile(default=True, pinned=True), "data.default"),
        (profile(namespace="default"), "metadata.namespace"),
        (profile(slots=-1), "data.slots"),
        (profile(maxSlots=-1), "data.maxSlots"),
    ],
)
def test_what_is_wrong_with_a_profile_is_said_with_its_place(
    new: dict[str, Any], path: str
) -> None:
    assert path in paths_of(new)


def test_a_pinned_profile_stays_as_it_is() -> None:
    pinned = profile(namespace="default", pinned=True)

    assert paths_of(pinned, pinned) == []
    assert paths_of({**pinned, "data": {**pinned["data"], "slots": 2}}, pinned) == ["data"]
    assert paths_of(profile(), profile(pinned=True)) == ["data.pinned"]
    assert paths_of(profile(slots=2), profile()) == []
