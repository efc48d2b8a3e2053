"""Groups of commands: long options may be cut short, and commands be loaded when they are used."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from warren.cli.longoptions import expand_long_options

CommandTable = Mapping[str, tuple[str, str, str]]
"""By the command's name: its module, its attribute there, and its help in a line."""


class ReaderGone(Exception):
    """The reader of standard output has closed it.

    Click ends by itself on BrokenPipeError, as on a failure.
    """


class Group(click.Group):
    """A group in which long options, its own and its commands', may be cut short."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, expand_long_options(self, ctx, args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not isinstance(command, Group):
            rest = expand_long_options(command, ctx, rest)
        return name, command, rest


class LazyGroup(Group):
    """A group whose commands are loaded one by one, when they are used."""

    def __init__(self, *arguments: Any, table: CommandTable, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, attribute, _ = self.table[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in self.table.items()])
