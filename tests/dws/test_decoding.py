"""Objects are decoded as far as decisions read them."""

import pytest

from tests.dws.builders import meta
from warren.dws.objects.decoding import Malformed, read
from warren.dws.objects.nnfstorages import NnfStorage


def test_an_object_that_is_not_of_its_kind_is_refused_with_the_path() -> None:
    obj = {"kind": "NnfStorage", "metadata": meta("wf-0"), "spec": {"fileSystemType": 7}}
    with pytest.raises(Malformed, match=r"NnfStorage wf-0: .*spec\.fileSystemType"):
        read(obj, NnfStorage)
