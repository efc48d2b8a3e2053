"""Directives: what it costs to read and check them, when a script has very many."""

import time
from collections.abc import Iterator

from benchmarks.measure import Result
from warren.daemons.clusterobjects import manifests
from warren.directives.diagnostics import did_you_mean
from warren.directives.rules import check_directives, rules_of
from warren.dws.node import RawVolumeAccess
from warren.dws.objects.lustrefilesystems import LustreFileSystem, LustreSpec
from warren.dws.objects.meta import Meta
from warren.dws.validation.facts import Facts
from warren.dws.validation.findings import findings

MANY = 10_000


def checking() -> Iterator[Result]:
    """Directives of which each third makes storage that the others copy to and from."""
    rules = rules_of(obj for obj in manifests("rules.yaml") if obj["kind"] == "DWDirectiveRule")
    shared = LustreFileSystem(Meta("lus"), LustreSpec("lus", "/lus"))
    facts = Facts(userid=1000, file_systems=[shared], raw_volume_access=RawVolumeAccess.NONE)
    good = [
        text
        for n in range(MANY // 3 + 1)
        for text in (
            f"#DW jobdw type=xfs capacity={n + 1}GiB name=scratch-{n} profile=fast",
            f"#DW copy_in source=/lus/in/{n} destination=$DW_JOB_scratch_{n}/in",
            f"#DW copy_out source=$DW_JOB_scratch_{n}/out destination=/lus/out/{n}",
        )
    ][:MANY]
    wrong = [text.replace("xfs", "zfs").replace("/lus", "/nope") for text in good]
    findings(check_directives(wrong[:1], rules).directives, facts)  # what is loaded once
    did_you_mean("warn", ["warm"])
    for name, texts in (("good", good), ("wrong", wrong)):
        for count in (MANY // 10, MANY):
            began = time.process_time()
            form = check_directives(texts[:count], rules)
            findings(form.directives, facts, form.findings)
            taken = time.process_time() - began
            del form  # not within the next measurement
            yield Result(
                name=f"check of {name} directives, {count} at once",
                value=taken / count * 1e6,
                unit="us",
                budget=100,
            )


ALL = {"check": checking}
