"""graphact agents: the commands of :mod:`graphact_agents.command` as commands of graphact."""

from graphact.commands.parser import Command
from graphact_agents.command import COMMANDS, DESCRIPTION

agents = Command(None, DESCRIPTION.format(prog="graphact agents"), (lambda parser: parser.add_commands(COMMANDS),))
