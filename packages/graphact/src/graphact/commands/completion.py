"""graphact completion: what can be typed next, for a shell."""

import argparse
import sys
from collections.abc import Iterator

from graphact.commands.parser import CommandParser, command, option

BASH = """\
_graphact() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} place="" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$place ${{COMP_WORDS[i]}}" in
            {commands}) place="$place ${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$place $before" in
{values}
    esac
    case "$place" in
{words}
    esac
    if [[ ${{#COMPREPLY[@]}} -eq 0 && $word != -* ]]; then COMPREPLY=($(compgen -f -- "$word")); fi
}}
complete -o filenames -F _graphact graphact
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def walk(parser: argparse.ArgumentParser, place: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command with its place, such as " agents split", and its parser with all options."""
    if isinstance(parser, CommandParser):
        parser.load()
    yield place, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from walk(inner, f"{place} {name}")


def script_for(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script of a shell, made from the options that the parser of the whole command line knows."""
    places = dict(walk(parser))
    words, values, fish = [], [], []
    for place, parser in places.items():
        shown = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
        options = [name for action in shown for name in action.option_strings]
        positional = [str(choice) for action in shown if not action.option_strings for choice in action.choices or ()]
        words.append(
            f'        "{place}") COMPREPLY=($(compgen -W "{" ".join([*positional, *options])}" -- "$word")) ;;'
        )
        seen = " ".join(f"; and __fish_seen_subcommand_from {name}" for name in place.split())
        where = f"-n 'true{seen}'" if place else "-n __fish_use_subcommand"
        fish += [f"complete -c graphact {where} -a '{name}'" for name in positional]
        for action in shown:
            choices = " ".join(map(str, action.choices or ()))
            long = [name for name in action.option_strings if name.startswith("--")]
            fish += [
                f"complete -c graphact {where} -l {name[2:]}" + (f" -x -a '{choices}'" if choices else "")
                for name in long
            ]
            if choices:
                values += [
                    f'        "{place} {name}") COMPREPLY=($(compgen -W "{choices}" -- "$word")); return ;;'
                    for name in long
                ]
    if shell == "fish":
        return "\n".join(fish) + "\n"
    commands = "|".join(f'"{place}"' for place in places if place)
    bash = BASH.format(commands=commands, values="\n".join(values), words="\n".join(words))
    return bash if shell == "bash" else ZSH + bash


@command(option("shell", "bash, zsh or fish", choices=("bash", "zsh", "fish")))
def completion(options: argparse.Namespace) -> int:
    """
    Print a script that completes commands, options and their values.

      source <(graphact completion bash)                     now; in ~/.bashrc, always (zsh alike)
      graphact completion fish > ~/.config/fish/completions/graphact.fish
    """
    sys.stdout.write(script_for(options.shell, options.parser))
    return 0
