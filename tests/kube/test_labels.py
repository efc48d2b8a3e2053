"""Objects are found by their labels without a look at all of them."""

from hypothesis import given
from hypothesis import strategies as st

from warren.base.objects import Key, Object
from warren.kube.server.labels import LabelIndex

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)
CHANGES = st.lists(st.tuples(st.integers(0, 4), st.none() | LABELS), max_size=30)


def labelled(labels: dict[str, str]) -> Object:
    return {"metadata": {"labels": labels}}


@given(CHANGES, LABELS.filter(bool))
def test_what_is_found_is_what_a_look_at_all_finds(
    changes: list[tuple[int, dict[str, str] | None]], wanted: dict[str, str]
) -> None:
    index = LabelIndex()
    known: dict[Key, Object] = {}
    for number, labels in changes:
        key = Key("default", str(number))
        after = None if labels is None else labelled(labels)
        index.update(key, known.pop(key, None), after)
        if after is not None:
            known[key] = after

    assert set(index.find(wanted)) == {
        key for key, obj in known.items() if wanted.items() <= obj["metadata"]["labels"].items()
    }


def test_objects_without_labels_are_filed_nowhere() -> None:
    index = LabelIndex()
    index.update(Key("", "a"), None, {"metadata": {}})
    index.update(Key("", "b"), None, {"metadata": {"labels": None}})
    index.update(Key("", "b"), {"metadata": {"labels": None}}, None)

    assert set(index.find({"a": "x"})) == set()


def test_nothing_is_kept_of_what_is_gone() -> None:
    index = LabelIndex()
    obj = labelled({"uid": "1"})
    index.update(Key("", "a"), None, obj)
    index.update(Key("", "a"), obj, None)

    assert index._keys_by_label == {}
