"""What the documents and the code refer to is there: files, headings, sections, RFCs."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "docs" / "spec"
DIRECTORIES = ("benchmarks", "deploy", "docs", "examples", "hooks", "src", "tests", "tools")
OUTSIDE = "shared" + "/spec"
"""Where specifications are that do not come with the repository."""

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_SECTION = re.compile(r"^#{2,6} (\d+(?:\.\d+)*)\.? ", re.M)
_STEM = re.compile(r"(?<![\w/-])((?:dws|coral2|flux-rfc|pbs-atom)-spec)(?![\w/`-]|\.md)")
_CITED = re.compile(_STEM.pattern + r" section (\d+(?:\.\d+)*)")
_OWN = re.compile(r"(?<!-spec )\bsection (\d+(?:\.\d+)*)")
_RFC = re.compile(r"\bRFCs? (\d+(?:(?:, and |, | and )\d+)*)")
_PLACE = re.compile(r"^\| (\d+) \| [^|]+ \| (\d+(?:\.\d+)*) \|$", re.M)


def documents() -> list[Path]:
    return sorted(ROOT.glob("*.md")) + [
        path for name in DIRECTORIES for path in sorted((ROOT / name).rglob("*.md"))
    ]


def sources(*directories: str) -> list[Path]:
    return [path for name in directories for path in sorted((ROOT / name).rglob("*.py"))]


def prose(path: Path) -> str:
    """Return a file's text in one line, as if its comments had no marks."""
    return re.sub(r"\s+", " ", re.sub(r"^\s*#(?:: | )", " ", path.read_text(), flags=re.M))


def slugs(path: Path) -> set[str]:
    """Return the anchors that GitHub gives to a document's headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", path.read_text())):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        again = 0
        while name in found:
            again += 1
            name = f"{slug}-{again}"
        found.add(name)
    return found


def sections(page: Path) -> list[str]:
    return _SECTION.findall(_FENCE.sub("", page.read_text()))


def links() -> Iterator[tuple[Path, str, Path, str]]:
    """Yield each link to a file: where it is, its words, the file, and the anchor."""
    for document in documents():
        text = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", document.read_text()))
        for target in _LINK.findall(text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            yield document, target, document.parent / name if name else document, anchor


def test_each_link_leads_to_a_file() -> None:
    found = list(links())
    assert found
    assert [(str(where), target) for where, target, path, _ in found if not path.exists()] == []


def test_each_anchor_is_that_of_a_heading() -> None:
    anchored = [link for link in links() if link[3] and link[2].suffix == ".md"]
    assert anchored
    assert [
        (str(where), target)
        for where, target, path, anchor in anchored
        if path.exists() and anchor not in slugs(path)
    ] == []


def test_anchors_are_made_as_github_makes_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c_d & e\n```\n# no heading\n```\n## Same\n## Same\n## [x](y.md) 1.2\n"
    )

    assert slugs(page) == {"a-b-c_d--e", "same", "same-1", "x-12"}


def test_each_section_of_a_specification_has_a_number_of_its_own() -> None:
    for page in sorted(SPEC.glob("*-spec.md")):
        numbers = sections(page)
        headings = _HEADING.findall(_FENCE.sub("", page.read_text()))
        assert len(numbers) == len(set(numbers)), page.name
        assert len(numbers) == len(headings) - 1, f"{page.name}: a heading has no number"


def test_each_citation_of_a_specification_names_a_section_that_is_there() -> None:
    there = {page.stem: set(sections(page)) for page in SPEC.glob("*-spec.md")}
    wrong = []
    cited = 0
    for path in [*sources("src", "tests", "benchmarks", "tools"), *documents()]:
        text = prose(path)
        for stem in _STEM.finditer(text):
            citation = _CITED.match(text, stem.start())
            cited += citation is not None
            if citation is None or citation[2] not in there[citation[1]]:
                wrong.append(f"{path}: {text[stem.start() : stem.end() + 20]}")
    assert cited
    assert wrong == [], 'cite as "dws-spec section 9"'


def test_the_specifications_refer_to_sections_of_theirs() -> None:
    wrong = [
        (page.name, number)
        for page in sorted(SPEC.glob("*-spec.md"))
        for number in _OWN.findall(prose(page))
        if number not in sections(page)
    ]
    assert wrong == []


def test_each_rfc_that_the_code_cites_has_a_place_in_the_specification() -> None:
    page = SPEC / "flux-rfc-spec.md"
    places = dict(_PLACE.findall(page.read_text()))
    cited = {
        number: path
        for path in sources("src")
        for numbers in _RFC.findall(prose(path))
        for number in re.findall(r"\d+", numbers)
    }
    assert cited
    assert {number: str(path) for number, path in cited.items() if number not in places} == {}
    assert [rfc for rfc, section in places.items() if section not in sections(page)] == []


def test_no_file_names_a_specification_outside_the_repository() -> None:
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for name in DIRECTORIES for path in (ROOT / name).rglob("*") if path.is_file()]
    named = []
    for path in files:
        if "__pycache__" not in path.parts and OUTSIDE.encode() in path.read_bytes():
            named.append(str(path))
    assert named == []
