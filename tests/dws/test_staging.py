"""Copying in and out: what paths name, and where each copy goes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import COPY_IN, COPY_OUT, JOBDW, lustre, nnf_storage, workflow
from warren.base.objects import Key, key_of
from warren.directives.diagnostics import Mistake
from warren.directives.parse import Directive, parse
from warren.dws import labels
from warren.dws.copies import datamovement
from warren.dws.copies.staging import (
    Plan,
    StagingPath,
    file_system_of,
    indexes_by_storage,
    path_inside,
    plan,
)
from warren.dws.copies.staging import parse as parse_path
from warren.dws.node import RawVolumeAccess
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.validation.facts import Facts
from warren.dws.validation.findings import findings

# What a path names


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$DW_JOB_my_fs/a/b", StagingPath("my-fs", "job", "/a/b")),
        ("$DW_JOB_my_fs", StagingPath("my-fs", "job", "")),
        ("$DW_JOB_my-fs/", StagingPath("my-fs", "job", "/")),
        ("$DW_PERSISTENT_keep/x", StagingPath("keep", "persistent", "/x")),
        ("/lus/$DW_JOB_x", StagingPath(None, "", "/lus/$DW_JOB_x")),
        ("$DW_JOB_", StagingPath(None, "", "$DW_JOB_")),
        ("$DW_GLOBAL_lus/x", StagingPath(None, "", "$DW_GLOBAL_lus/x")),
        ("/", StagingPath(None, "", "/")),
    ],
)
def test_a_path_is_in_a_named_storage_or_global(text: str, path: StagingPath) -> None:
    assert parse_path(text) == path


def test_storage_is_found_by_name_the_jobs_own_and_that_which_outlives_it() -> None:
    texts = (COPY_IN, JOBDW, "#DW persistentdw name=my-fs", JOBDW.replace("my-fs", "other"))
    directives = [parse(each) for each in texts]
    assert indexes_by_storage(directives) == {
        ("job", "my-fs"): 1,
        ("persistent", "my-fs"): 2,
        ("job", "other"): 3,
    }


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/lus", "lus"),
        ("/lus/", "lus"),
        ("/lus/a", "lus"),
        ("/lustre/a", None),
        ("/home/a", "home"),
        ("/lus/../etc/shadow", None),
        ("/lus/a..b", "lus"),
        ("lus/a", None),
        ("", None),
    ],
)
def test_a_global_path_is_in_the_file_system_that_contains_it(path: str, name: str | None) -> None:
    found = file_system_of(path, [lustre(), lustre("home", "/home/")])
    assert (found.spec.name if found else None) == name


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", "/m/r0-1"),
        ("/", "/m/r0-1/"),
        ("/a", "/m/r0-1/a"),
        ("/a/", "/m/r0-1/a/"),
        ("//a//b", "/m/r0-1/a/b"),
        ("/a/../b", "/m/r0-1/b"),
        ("/../../etc/shadow", "/m/r0-1/etc/shadow"),
        ("/..", "/m/r0-1"),
        ("/../", "/m/r0-1/"),
        ("a", "/m/r0-1/a"),
    ],
)
def test_a_path_in_storage_is_under_its_mount(path: str, place: str) -> None:
    assert path_inside("/m/r0-1", path) == place
    assert path_inside("/m/r0-1/", path) == place


@given(st.text("a./", max_size=12))
def test_no_path_leads_out_of_its_mount(path: str) -> None:
    place = path_inside("/m", path)
    assert place == "/m" or place.startswith("/m/")
    assert ".." not in place.split("/")
    assert place.endswith("/") == path.endswith("/")


# Where a copy goes

FILE = {"source_is_file": True}
TO_FILE = {"destination_is_file": True}
TO_DIRECTORY = {"destination_is_directory": True}


@pytest.mark.parametrize(
    ("source", "destination", "facts", "expected"),
    [
        # A file, to a file, to a new name, into a directory
        ("/lus/a", "/d/b", FILE | TO_FILE, ("/d", ("b",), False)),
        ("/lus/a", "/d/b", FILE, ("/d", ("b",), False)),
        ("/lus/a", "/d/b", FILE | TO_DIRECTORY, ("/d/b", ("a",), False)),
        ("/lus/a", "/d/b/", FILE, ("/d/b", ("a",), False)),
        # A directory, itself or its contents
        ("/lus/dir", "/d/b", {}, ("/d/b", ("dir",), False)),
        ("/lus/dir", "/d/b/", TO_DIRECTORY, ("/d/b", ("dir",), False)),
        ("/lus/dir/", "/d/b", {}, ("/d/b", (), True)),
        ("/lus/dir/", "/d/b/", {}, ("/d/b", (), True)),
        # From an allocation: an index directory in between
        ("/m/r0-1/a", "/lus/b", FILE | {"index": "r0-1"}, ("/lus", ("r0-1", "b"), False)),
        ("/m/r0-1/a", "/lus/b/", FILE | {"index": "r0-1"}, ("/lus/b", ("r0-1", "a"), False)),
        ("/m/r0-1/dir", "/lus/b", {"index": "r0-1"}, ("/lus/b", ("r0-1", "dir"), False)),
        ("/m/r0-1/dir/", "/lus/b", {"index": "r0-1"}, ("/lus/b", ("r0-1",), True)),
        ("/m/r0-1/", "/lus/b", {"index": "r0-1"}, ("/lus/b", ("r0-1",), True)),
        # The allocation itself is its own index directory
        ("/m/r0-1", "/lus/b", {"index": "r0-1"}, ("/lus/b", ("r0-1",), False)),
    ],
)
def test_a_copy_goes_where_nnf_puts_it(
    source: str,
    destination: str,
    facts: dict[str, Any],
    expected: tuple[str, tuple[str, ...], bool],
) -> None:
    default = {
        "source_is_file": False,
        "destination_is_file": False,
        "destination_is_directory": False,
        "index": None,
    }
    assert plan(source, destination, **{**default, **facts}) == Plan(source, *expected)


# Movements


def movements(directive: str, *nodes: tuple[str, int]) -> list[tuple[str, str, str]]:
    """Return key, source and destination of the movements of a directive, which is the second."""
    made = datamovement.movements(
        workflow(JOBDW, directive),
        1,
        parse(directive),
        nnf_storage(*nodes),
        [lustre()],
        "/mnt/nnf/uid-wf-0",
    )
    return [
        (str(key_of(obj)), obj["spec"]["source"]["path"], obj["spec"]["destination"]["path"])
        for obj in made
    ]


def test_each_allocation_gets_its_own_copy_of_what_is_copied_in() -> None:
    assert movements(COPY_IN, ("r0", 2), ("r1", 1)) == [
        ("r0/wf-1-0", "/lus/in/", "/mnt/nnf/uid-wf-0/r0-0/data/"),
        ("r0/wf-1-1", "/lus/in/", "/mnt/nnf/uid-wf-0/r0-1/data/"),
        ("r1/wf-1-0", "/lus/in/", "/mnt/nnf/uid-wf-0/r1-0/data/"),
    ]


def test_each_allocation_is_copied_out_on_its_own() -> None:
    assert movements(COPY_OUT, ("r0", 1), ("r1", 1)) == [
        ("r0/wf-1-0", "/mnt/nnf/uid-wf-0/r0-0/out", "/lus/results"),
        ("r1/wf-1-0", "/mnt/nnf/uid-wf-0/r1-0/out", "/lus/results"),
    ]


def test_a_rabbit_that_is_listed_twice_numbers_its_movements_on() -> None:
    assert [key for key, _, _ in movements(COPY_IN, ("r0", 2), ("r0", 1))] == [
        "r0/wf-1-0",
        "r0/wf-1-1",
        "r0/wf-1-2",
    ]


def test_a_movement_says_whose_it_is_and_what_each_end_is() -> None:
    wf = workflow(JOBDW, COPY_OUT)
    (obj,) = datamovement.movements(
        wf, 1, parse(COPY_OUT), nnf_storage(("r0", 1)), [lustre()], "/m"
    )
    assert key_of(obj) == Key("r0", "wf-1-0")
    assert obj["metadata"]["labels"][labels.INITIATOR] == "copy_out"
    assert obj["metadata"]["labels"][labels.DIRECTIVE_INDEX] == "1"
    assert obj["metadata"]["finalizers"] == [labels.MOVEMENT_FINALIZER]
    assert (obj["spec"]["userId"], obj["spec"]["groupId"]) == (1001, 1002)
    assert [obj["spec"][end]["storageReference"] for end in ("source", "destination")] == [
        {"kind": "NnfStorage", "name": "wf-0", "namespace": "default"},
        {"kind": "LustreFileSystem", "name": "lus", "namespace": "default"},
    ]


# What directives mean together


def facts(*file_systems: LustreFileSystem) -> Facts:
    return Facts(userid=7, file_systems=file_systems, raw_volume_access=RawVolumeAccess.NONE)


def check(directives: list[Directive], known: Facts) -> None:
    """Raise the first mistake of some directives."""
    for found in findings(directives, known):
        raise found.mistake


@pytest.mark.parametrize(
    "directives",
    [[], [JOBDW], [JOBDW, COPY_IN, COPY_OUT], [COPY_IN, JOBDW], ["#DW copy_in source=/lus", JOBDW]],
)
def test_directives_that_fit_each_other_pass(directives: list[str]) -> None:
    check([parse(each) for each in directives], facts(lustre()))


MISTAKES = [
    (
        "#DW copy_in source=/lus/in destination=$DW_JOB_my_f/data",
        "                                       ^^^^^^^^^^^^",
        "This job has no jobdw named 'my-f'. Did you mean '$DW_JOB_my_fs'?",
    ),
    (
        "#DW copy_in source=/lus/in destination=$DW_JOB_qqqqqqqqqqqqqqq",
        "                                       ^^^^^^^^^^^^^^^^^^^^^^^",
        "This job has no jobdw named 'qqqqqqqqqqqqqqq'. Try $DW_JOB_my_fs/.",
    ),
    (
        "#DW copy_in source=/lus/in destination=$DW_PERSISTENT_keep/a",
        "                                       ^^^^^^^^^^^^^^^^^^^",
        "This job has no persistentdw named 'keep'. Add #DW persistentdw name=keep.",
    ),
    (
        "#DW copy_in source=/lus/in destination=/lus/out",
        "                                       ^^^^^^^^",
        "The destination of copy_in is storage of the job: write $DW_JOB_ and the name of a jobdw. "
        "Try $DW_JOB_my_fs/.",
    ),
    (
        "#DW copy_out source=/lus/in destination=/lus/out",
        "                    ^^^^^^^",
        "The source of copy_out is storage of the job: write $DW_JOB_ and the name of a jobdw. "
        "Try $DW_JOB_my_fs/.",
    ),
    (
        "#DW copy_in source=/home/x destination=$DW_JOB_my_fs/",
        "                   ^^^^^^^",
        "No global file system of this cluster contains '/home/x'. "
        "Its global file systems are /lus.",
    ),
    (
        "#DW copy_out source=$DW_JOB_my_fs/ destination=/lus/../etc",
        "                                               ^^^^^^^^^^^",
        "No global file system of this cluster contains '/lus/../etc'. "
        "Its global file systems are /lus.",
    ),
    (
        "#DW copy_in source=$DW_JOB_my_fs/a destination=$DW_JOB_my_fs/b",
        "                   ^^^^^^^^^^^^^^^",
        "The source of copy_in is a path in a global file system: within its own storage a job "
        "copies by itself.",
    ),
    (
        "#DW copy_out source=$DW_JOB_my_fs/a destination=$DW_JOB_my_fs",
        "                                                ^^^^^^^^^^^^^",
        "The destination of copy_out is a path in a global file system: within its own storage a "
        "job copies by itself.",
    ),
]


@pytest.mark.parametrize(("directive", "carets", "sentence"), MISTAKES)
def test_directives_that_do_not_fit_are_shown_with_carets_and_a_sentence(
    directive: str, carets: str, sentence: str
) -> None:
    with pytest.raises(Mistake) as made:
        check([parse(JOBDW), parse(directive)], facts(lustre()))
    assert made.value.text_with_carets == f"{directive}\n{carets}\n{sentence}"


def test_without_storage_or_file_systems_nothing_is_suggested_that_is_not_there() -> None:
    with pytest.raises(Mistake) as made:
        check([parse("#DW copy_in source=/lus/in destination=/b")], facts())
    assert str(made.value).endswith("'/lus/in'. It has no global one.")
    with pytest.raises(Mistake) as made:
        check([parse("#DW copy_out source=/a destination=/b")], facts())
    assert str(made.value).endswith("write $DW_JOB_ and the name of a jobdw.")
