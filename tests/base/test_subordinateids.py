"""What subordinate ids count as."""

from pathlib import Path

from warren.base.subordinateids import SubordinateIds


def test_all_subordinate_ids_of_a_user_count_as_four(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text("# ours\nann:100000:10\nbob:200000:10\nann:300000:10\nann:x\n")
    ids = SubordinateIds(table)

    anns = {
        ids.accounting_id(each) for each in (*range(100_000, 100_010), *range(300_000, 300_010))
    }
    assert anns == set(range(100_000, 100_004))
    assert {ids.accounting_id(each) for each in range(200_000, 200_010)} == set(
        range(200_000, 200_004)
    )
    assert [ids.accounting_id(each) for each in (0, 1000, 99_999, 100_010)] == [
        0,
        1000,
        99_999,
        100_010,
    ]


def test_ids_of_root_may_be_real_users(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text("root:1000000:1000000000\n0:100000:10\n")

    assert SubordinateIds(table).accounting_id(1_000_005) == 1_000_005
    assert SubordinateIds(table).accounting_id(100_005) == 100_005


def test_a_table_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    ids = SubordinateIds(table)
    assert ids.accounting_id(100_005) == 100_005

    table.write_text("ann:100000:10\n")
    assert ids.accounting_id(100_005) == 100_001
    table.unlink()
    assert ids.accounting_id(100_005) == 100_005


def test_an_id_of_several_ranges_counts_as_one_of_that_which_starts_first(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text("cat:100020:30\nbob:100005:10\nann:100000:30\ndan:100040:0\n")
    ids = SubordinateIds(table)

    of_ann = {ids.accounting_id(each) for each in range(100_000, 100_030)}
    assert of_ann == set(range(100_000, 100_004))
    of_cat = {ids.accounting_id(each) for each in range(100_030, 100_050)}
    assert of_cat == set(range(100_020, 100_024))
    assert ids.accounting_id(100_050) == 100_050


def test_an_id_is_found_in_a_long_table_without_a_look_at_every_line(tmp_path: Path) -> None:
    """It is looked for with every new connection, and on nobody's account."""
    table = tmp_path / "subuid"
    table.write_text("".join(f"u{each}:{100_000 + 10 * each}:10\n" for each in range(2000)))
    ids = SubordinateIds(table)
    assert ids.accounting_id(100_005) == 100_001

    id = CountingId(119_999)
    assert ids.accounting_id(id) == 119_993
    assert id.comparisons < 100


class CountingId(int):
    """An id that counts what it is compared with."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        self.comparisons += 1
        return super().__lt__(other)

    def __eq__(self, other: object) -> bool:
        self.comparisons += 1
        return super().__eq__(other)

    __hash__ = int.__hash__
