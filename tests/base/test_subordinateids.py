"""Which ids are one user's."""

from pathlib import Path

from warren.base.subordinateids import SubordinateIds


def test_all_subordinate_ids_of_a_user_are_one(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text("# ours\nann:100000:10\nbob:200000:10\nann:300000:10\nann:x\n")
    ids = SubordinateIds(table)

    assert {ids.one_of(each) for each in (100_000, 100_009, 300_000, 300_009)} == {100_000}
    assert {ids.one_of(each) for each in range(200_000, 200_010)} == {200_000}
    assert [ids.one_of(each) for each in (0, 1000, 99_999, 100_010)] == [0, 1000, 99_999, 100_010]


def test_a_table_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    ids = SubordinateIds(table)
    assert ids.one_of(100_005) == 100_005

    table.write_text("ann:100000:10\n")
    assert ids.one_of(100_005) == 100_000
    table.unlink()
    assert ids.one_of(100_005) == 100_005
