"""Whose subordinates ids are."""

from pathlib import Path

from warren.base.subordinateids import SubordinateIds


def test_an_id_is_its_owners_whichever_range_it_is_in(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text("# ours\nann:100000:10\nbob:200000:10\nann:300000:10\nann:x\n")
    ids = SubordinateIds(table)

    assert {ids.owner_of(each) for each in (100_000, 100_009, 300_000, 300_009)} == {"ann"}
    assert {ids.owner_of(each) for each in range(200_000, 200_010)} == {"bob"}
    assert [ids.owner_of(each) for each in (0, 1000, 99_999, 100_010)] == [None] * 4


def test_ids_of_root_may_be_real_users(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text("root:1000000:1000000000\n0:100000:10\n")

    assert SubordinateIds(table).owner_of(1_000_005) is None
    assert SubordinateIds(table).owner_of(100_005) is None


def test_a_table_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    ids = SubordinateIds(table)
    assert ids.owner_of(100_005) is None

    table.write_text("ann:100000:10\n")
    assert ids.owner_of(100_005) == "ann"
    table.unlink()
    assert ids.owner_of(100_005) is None
