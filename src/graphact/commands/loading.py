"""Commands from a table: the module of a command is imported when that command is asked for, and no other."""

import argparse
import importlib
from collections.abc import Mapping
from typing import Any

Table = Mapping[str, tuple[str, str]]
"""For each command the module that implements it, and its line in the help of the parent."""


def add_commands(parser: argparse.ArgumentParser, table: Table) -> None:
    """Add the commands of a table to a parser, without their options."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=CommandParser)
    for name, (module, line) in table.items():
        commands.add_parser(name, help=line).module = module


class CommandParser(argparse.ArgumentParser):
    """The parser of one command, whose module adds the options by its function ``add_to(commands)``."""

    module: str | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Import the module first; argparse calls this on the parser of the command that was asked for."""
        if self.module is not None:
            module, self.module = self.module, None
            importlib.import_module(module).add_to(Place(self))
        return super().parse_known_args(args, namespace)


class Place:
    """Stands for the commands of the parent: ``add_parser`` gives the one parser that is there already."""

    def __init__(self, parser: CommandParser) -> None:
        self._parser = parser

    def add_parser(self, name: str, *, help: str, **options: Any) -> CommandParser:  # noqa: A002, argparse's name
        """The parser, with these options (description, formatter_class) set; name and help stand in the table."""
        del name, help
        for option, value in options.items():
            setattr(self._parser, option, value)
        return self._parser
