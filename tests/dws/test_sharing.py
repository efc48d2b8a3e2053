"""Who may use persistent storage (ADR 057)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.dws import labels
from warren.dws.persistent import sharing
from warren.dws.persistent.sharing import PRIVATE, Sharing, may_use

IDS = st.integers(min_value=0, max_value=2**32 - 2)
FEW = st.integers(min_value=0, max_value=5)


def sharings(ids: st.SearchStrategy[int]) -> st.SearchStrategy[Sharing]:
    return st.builds(
        Sharing, everyone=st.booleans(), users=st.frozensets(ids), groups=st.frozensets(ids)
    )


@given(FEW, sharings(FEW), FEW, st.frozensets(FEW))
def test_storage_is_for_its_owner_and_for_those_with_whom_it_is_shared(
    owner: int, shared: Sharing, user: int, groups: frozenset[int]
) -> None:
    named = user in shared.users or any(each in shared.groups for each in groups)
    assert may_use(owner, shared, user, groups) is (user == owner or shared.everyone or named)
    assert may_use(owner, PRIVATE, user, groups) is (user == owner)


@given(FEW, sharings(FEW), sharings(FEW), FEW, st.frozensets(FEW))
def test_sharing_with_more_takes_it_from_none_and_the_opposite_from_all_of_them(
    owner: int, shared: Sharing, more: Sharing, user: int, groups: frozenset[int]
) -> None:
    before, others = may_use(owner, shared, user, groups), may_use(owner, more, user, groups)
    assert may_use(owner, shared | more, user, groups) is (before or others)
    assert (shared | more) - more == shared - more
    assert not may_use(-1, more - more, user, groups)


@given(sharings(IDS))
def test_what_is_written_is_read_again(shared: Sharing) -> None:
    assert sharing.parse(str(shared)) == shared
    written = {
        key: value for key, value in sharing.annotations(shared).items() if value is not None
    }
    assert sharing.from_annotations(written) == shared
    assert bool(written) is bool(shared)


@given(st.text(alphabet="uidg:,0123456789 -+evryon²", max_size=40))
def test_no_text_is_read_as_more_than_it_says(text: str) -> None:
    words = text.split(",")
    found = sharing.parse(text)
    assert found.everyone is ("everyone" in words)
    assert all(any(word.lstrip("uid:0") == str(each).lstrip("0") for word in words)
               for each in found.users)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["", "uid:", "uid:-1", "uid:4294967295", "1001", "gid:1 2", "Uid:5", "uid:99999999999"],
)
def test_what_cannot_be_read_lets_no_user_in(text: str) -> None:
    assert sharing.parse(text) == PRIVATE


@pytest.mark.parametrize(("value", "everyone"), [("TRUE", True), ("false", False), ("1", False)])
def test_nnfs_annotation_is_valid_beside_ours(value: str, everyone: bool) -> None:
    """dws-spec section 0.1."""
    found = sharing.from_annotations({labels.IGNORE_UID: value, labels.SHARED_WITH: "gid:7"})
    assert found == Sharing(everyone=everyone, groups=frozenset({7}))
