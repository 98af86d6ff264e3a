"""graphact agents: the commands of :mod:`graphact.agents.command` as commands of graphact."""

from graphact.agents.command import COMMANDS, DESCRIPTION
from graphact.commands.parser import Command

agents = Command(None, DESCRIPTION.format(prog="graphact agents"), (lambda parser: parser.add_commands(COMMANDS),))
