"""Mutants: what may be changed in the text of a module, one node of its syntax tree at a time.

Pure: it neither loads the modules nor runs their tests. Text, types, logs and assertions are left
as they are.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

OPPOSITE_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
OPPOSITE_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Types, texts and what runs before a module's own code does.
UNTOUCHED = {"annotation", "returns", "decorator_list", "bases", "keywords"}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of a module. `number` counts the changes of its tree, in order."""

    path: Path
    number: int
    line: int
    statement: range
    """The lines that run when the changed node may run."""
    source: str
    """The text of its line."""
    change: str
    function: str | None
    """The outermost function, by qualified name; None outside of functions."""
    first_line: int
    key: str
    """What it is remembered by: where and what, without line numbers."""

    @property
    def module(self) -> str:
        parts = self.path.relative_to(ROOT / "src").with_suffix("").parts
        return ".".join(parts).removesuffix(".__init__")

    @property
    def package(self) -> str:
        return self.module.split(".")[1]

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.change}"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A node of a tree that may be replaced, and by what."""

    parent: ast.AST
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST
    scope: tuple[ast.AST, ...]
    """Classes and functions around it, outermost first."""
    statement: ast.stmt

    def apply(self) -> None:
        new = ast.copy_location(self.new, self.old)
        if self.index is None:
            setattr(self.parent, self.field, new)
        else:
            getattr(self.parent, self.field)[self.index] = new
        ast.fix_missing_locations(self.parent)

    def describe(self) -> str:
        if isinstance(self.new, ast.Pass):
            return f"`{ast.unparse(self.old)}` is deleted"
        return f"`{ast.unparse(self.old)}` becomes `{ast.unparse(self.new)}`"

    def function(self) -> tuple[ast.AST, ...]:
        """Return the way to the outermost function around it; empty outside of functions."""
        for depth, node in enumerate(self.scope, 1):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return self.scope[:depth]
        return ()


def mutants_of(path: Path, text: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its text."""
    lines = text.splitlines()
    seen: Counter[str] = Counter()
    found = []
    for number, site in enumerate(sites(ast.parse(text))):
        way = site.function()
        home = way[-1] if way else site.statement
        names = ".".join(node.name for node in way or site.scope)  # type: ignore[attr-defined]
        where = f"{path.relative_to(ROOT)}:{names}:{digest(ast.unparse(home))}"
        seen[where] += 1
        found.append(
            Mutant(
                path=path,
                number=number,
                line=site.old.lineno,  # type: ignore[attr-defined]
                statement=executed(site.statement),
                source=lines[site.old.lineno - 1].strip(),  # type: ignore[attr-defined]
                change=site.describe(),
                function=names if way else None,
                first_line=first_line(home),
                key=f"{where}:{seen[where]}:{site.describe()}",
            )
        )
    return found


def mutated(text: str, number: int) -> ast.Module:
    """Return a module's tree with one change, by its number."""
    tree = ast.parse(text)
    for index, site in enumerate(sites(tree)):
        if index == number:
            site.apply()
            return tree
    raise ValueError(f"there is no change {number}")


def sites(tree: ast.Module) -> Iterator[Site]:
    """Yield all that may be changed, in the order of the text."""
    return _below(tree, (), None)


def _below(parent: ast.AST, scope: tuple[ast.AST, ...], statement: Any) -> Iterator[Site]:
    for field, value in ast.iter_fields(parent):
        if field in UNTOUCHED and not isinstance(parent, ast.Call):
            continue
        # Defaults of arguments are computed outside of their function.
        inner = scope
        if isinstance(parent, ast.ClassDef) or (field == "body" and _is_function(parent)):
            inner = (*scope, parent)
        listed = isinstance(value, list)
        for index, node in enumerate(value if listed else [value]):
            if not isinstance(node, ast.AST) or is_left_alone(node):
                continue
            here = node if isinstance(node, ast.stmt) else statement
            for new in replacements(node, parent, field):
                yield Site(
                    parent=parent,
                    field=field,
                    index=index if listed else None,
                    old=node,
                    new=new,
                    scope=inner,
                    statement=here,
                )
            yield from _below(node, inner, here)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def is_left_alone(node: ast.AST) -> bool:
    """Return whether a node is text, type, log or assertion: nothing that tests should notice."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            return True
        case ast.FunctionDef(name="__repr__" | "__str__"):
            return True
        case ast.ClassDef(bases=bases):
            return any(isinstance(each, ast.Name) and each.id == "Protocol" for each in bases)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.keyword(arg="strict"):
            return True  # of zip: an assertion
    return False


def replacements(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    """Yield what may stand for a node."""
    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                new = copy(node)
                new.ops = [*ops[:index], OPPOSITE_OPERATORS[type(op)](), *ops[index + 1 :]]  # type: ignore[list-item]
                yield new
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(op=OPPOSITE_OPERATORS[type(op)](), values=values)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant() if isinstance(parent, ast.While):
            return  # `while True` ends elsewhere
        case ast.Constant(value=bool() as value):
            yield ast.Constant(value=not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value=value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in OPPOSITE_FUNCTIONS:
            new_call = copy(node)
            new_call.func = ast.copy_location(
                ast.Name(OPPOSITE_FUNCTIONS[name], ast.Load()), node.func
            )
            yield new_call
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield ast.Return(value=ast.Constant(value=None))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.AugAssign() | ast.Delete():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.AnnAssign(target=ast.Attribute(), value=ast.expr()):
            yield ast.Pass()
    if _is_condition(parent, field) and not isinstance(node, ast.Constant):
        yield ast.Constant(value=True)
        yield ast.Constant(value=False)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_condition(parent: ast.AST, field: str) -> bool:
    match parent:
        case ast.If() | ast.IfExp() | ast.While():
            return field == "test"
        case ast.comprehension():
            return field == "ifs"
        case ast.match_case():
            return field == "guard"
    return False


def executed(statement: ast.stmt) -> range:
    """Return the lines of a statement without those of the block below it."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    end = statement.end_lineno or statement.lineno
    if body:
        below = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
        end = max(statement.lineno, below.lineno - 1)
    return range(statement.lineno, end + 1)


def first_line(node: ast.AST) -> int:
    decorators = getattr(node, "decorator_list", [])
    lines: list[int] = [each.lineno for each in (node, *decorators)]
    return min(lines)


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
