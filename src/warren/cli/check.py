"""`warren check`: a script's directives, judged before anything is submitted."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import asdict, replace

from warren.base.errors import UserMistake
from warren.cli.common import cluster_access, json_option, print_json
from warren.cli.directivechecker import (
    DirectiveChecker,
    checker_of_cluster,
    checker_without_cluster,
)
from warren.cli.job import scripts
from warren.daemons.statedir import STATEDIR_VARIABLE, StateDir
from warren.directives import rules as directive_rules
from warren.directives import script as directive_script
from warren.directives.diagnostics import Finding, Mistake
from warren.directives.rules import Rule
from warren.directives.script import LocatedDirective, Script, Word


@click.command()
@click.option("--rules", "rules_file", metavar="FILE",
              help="DWDirectiveRules to check by (default: the cluster's, or Warren's own).",
              )  # fmt: skip
@click.option("--statedir", metavar="DIR", envvar=STATEDIR_VARIABLE,
              help=f"State directory of the cluster to ask (or {STATEDIR_VARIABLE}; default: "
                   "none).",
              )  # fmt: skip
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
              help="Ask this Kubernetes cluster instead.")  # fmt: skip
@click.option("--context", metavar="NAME", help="The kubeconfig's context to use.")
@json_option
@click.argument("file", metavar="FILE|-")
def check(
    rules_file: str | None,
    statedir: str | None,
    kubeconfig: Path | None,
    context: str | None,
    as_json: bool,
    file: str,
) -> None:
    """Check the #DW directives of a batch script, and print all mistakes.

    FILE may have directives alone; - is standard input. No cluster is needed: one that is
    named is asked for its rules, profiles and machines.
    """
    script = directive_script.read(_read_script(file))
    checker = _checker(statedir, kubeconfig, context)
    if rules_file is not None:
        checker = replace(checker, rules=_read_rules(rules_file))
    mistakes = sorted(_mistakes(script, checker), key=lambda each: (each.line, each.column))
    errors = [each for each in mistakes if each.severity == "error"]
    if as_json:
        print_json([each.as_json() for each in mistakes])
    else:
        name = "standard input" if file == "-" else file
        for each in mistakes:
            click.echo(f"{each.as_text(name, script.lines)}\n")
        count = len(directive_script.locate_directives(script.words))
        click.echo(_summary(name, count, len(errors)))
        if count and checker.facts.file_systems is None:
            click.echo(
                "Not checked, since no cluster was asked: global file systems, profiles, "
                "persistent storage, and what its rabbits make."
            )
    sys.exit(1 if errors else 0)


def _checker(
    statedir: str | None, kubeconfig: Path | None, context: str | None
) -> DirectiveChecker:
    from warren.kube import kubeconfig as kubeconfigs

    if kubeconfig is not None:
        return checker_of_cluster(kubeconfigs.load(kubeconfig, context))
    if context is not None:
        raise click.UsageError("--context is of a --kubeconfig.")
    if statedir is None:
        return checker_without_cluster()
    return checker_of_cluster(cluster_access(StateDir(Path(statedir))))


def _read_script(file: str) -> str:
    """Read a script. Raises UsageError where there is none to read."""
    if file == "-":
        data = sys.stdin.buffer.read(scripts.MAX_BYTES + 1)
        if len(data) > scripts.MAX_BYTES:
            raise click.UsageError("A script has up to 1 MiB.")
        return data.decode(errors="replace")
    try:
        return (
            scripts.read_script(Path(file))
            .encode(errors="surrogateescape")
            .decode(errors="replace")
        )
    except UserMistake as mistake:
        raise click.UsageError(str(mistake)) from mistake


def _read_rules(file: str) -> list[Rule]:
    import msgspec
    import yaml

    try:
        objects = list(yaml.safe_load_all(Path(file).read_bytes()))
        rule_objects = [obj for obj in objects if obj and obj["kind"] == "DWDirectiveRule"]
        rules = directive_rules.rules_of(rule_objects)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}.") from error
    except (yaml.YAMLError, msgspec.ValidationError, TypeError, KeyError) as error:
        raise click.UsageError(f"{file}: these are not DWDirectiveRules: {error}.") from error
    if not rules:
        raise click.UsageError(f"{file}: there is no DWDirectiveRule in it.")
    return rules


class _ScriptMistake(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is to be said of a script."""

    line: int
    column: int
    """From 0, as `end`, which is the one behind the last."""
    end: int
    severity: str
    directive: int | None
    message: str
    suggestion: str | None

    def as_text(self, name: str, lines: Sequence[str]) -> str:
        text = lines[self.line - 1].rstrip()
        mistake = Mistake(text, self.column, self.end, self.message, self.suggestion)
        return f"{name}, line {self.line}:\n{mistake.text_with_carets}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "column": self.column + 1, "end": self.end + 1}


def _mistakes(script: Script, checker: DirectiveChecker) -> Iterator[_ScriptMistake]:
    for remark in script.remarks:
        position = (remark.line, remark.mistake.start, remark.mistake.end)
        yield _script_mistake(position, "warning", None, remark.mistake)
    words, unset_variables = _expand(script.words)
    directives = directive_script.locate_directives(words)
    for index, directive in enumerate(directives):
        for word in directive.words:
            for mistake in unset_variables.get((word.line, word.column), ()):
                start = word.column + mistake.start
                position = (word.line, start, start + mistake.end - mistake.start)
                yield _script_mistake(position, "error", index, mistake)
    try:
        scripts.check_directive_limits([each.text for each in directives])
    except UserMistake as too_many:
        last = directives[-1]
        mistake = Mistake(last.text, 0, len("#DW"), str(too_many))
        yield _script_mistake(
            last.line_and_columns(0, len("#DW")), "error", len(directives) - 1, mistake
        )
        return
    for finding in checker.findings([each.text for each in directives]):
        position = directives[finding.directive_index].line_and_columns(
            finding.mistake.start, finding.mistake.end
        )
        if not _is_due_to_unset_variable(finding, directives, unset_variables):
            yield _script_mistake(position, "error", finding.directive_index, finding.mistake)


def _script_mistake(
    position: tuple[int, int, int], severity: str, index: int | None, mistake: Mistake
) -> _ScriptMistake:
    line, column, end = position
    return _ScriptMistake(
        line=line,
        column=column,
        end=end,
        severity=severity,
        directive=index,
        message=mistake.sentence,
        suggestion=mistake.suggestion,
    )


_UnsetVariables = dict[tuple[int, int], list[Mistake]]
"""What variables cannot be filled in, by the line and the column of their word."""


def _expand(words: Sequence[Word]) -> tuple[list[Word], _UnsetVariables]:
    """Fill the author's variables in, as `submit` does; one may come to several words."""
    expanded_words: list[Word] = []
    unset_variables: _UnsetVariables = {}
    for word in words:
        text, mistakes = scripts.expand(word.text)
        if mistakes:
            unset_variables[word.line, word.column] = mistakes
        expanded_words += [replace(word, text=each) for each in text.split()]
    return expanded_words, unset_variables


def _is_due_to_unset_variable(
    finding: Finding, directives: Sequence[LocatedDirective], unset_variables: _UnsetVariables
) -> bool:
    """Return whether a mistake is only that a variable was not filled in."""
    line, column, _ = directives[finding.directive_index].line_and_columns(
        finding.mistake.start, finding.mistake.end
    )
    return any(
        (word.line, word.column) in unset_variables
        for word in directives[finding.directive_index].words
        if word.line == line and word.column <= column < word.column + word.length
    )


def _summary(name: str, directive_count: int, mistake_count: int) -> str:
    if not directive_count:
        return f"{name}: it has no #DW directives."
    count_text = f"{directive_count} directive{'s' * (directive_count != 1)}"
    if not mistake_count:
        return f"{name}: {count_text}, no mistakes."
    return f"{name}: {count_text}, {mistake_count} mistake{'s' * (mistake_count != 1)}."
