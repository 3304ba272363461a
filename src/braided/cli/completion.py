"""Scripts that complete commands, options and files in a shell, generated from the parser."""

from __future__ import annotations

import argparse
from typing import Literal

Shell = Literal["bash", "zsh", "fish"]

_BASH = """\
_braided() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} words
  if [ "$COMP_CWORD" -le 1 ]; then words="{commands}"; else
    case "$command" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ "${{#COMPREPLY[@]}}" -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _braided braided"""


def write_script(parser: argparse.ArgumentParser, shell: Shell) -> str:
    """Return the script of a shell; zsh runs the script of bash."""
    commands = _commands(parser)
    if shell == "fish":
        return "\n".join(_fish(commands))
    cases = "\n".join(f"      {name}) {_bash_case(command)} ;;" for name, command in commands.items())
    script = _BASH.format(commands=" ".join([*commands, "--help", "--version"]), cases=cases)
    return script if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{script}"


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands of a parser; a command may have commands itself."""
    subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(subparsers[0].choices) if subparsers else {}


def _bash_case(command: argparse.ArgumentParser) -> str:
    words = f'words="{" ".join(_words(command))}"'
    inner = _commands(command)
    if not inner:
        return words
    cases = " ".join(f'{name}) words="{" ".join(_words(below))}" ;;' for name, below in inner.items())
    return f'case "${{COMP_WORDS[2]}}" in {cases} *) {words} ;; esac'


def _words(command: argparse.ArgumentParser) -> list[str]:
    """Return the long options of a command, and the choices of its arguments."""
    options = [option for action in command._actions for option in action.option_strings if option.startswith("--")]
    chosen = [
        str(choice) for action in command._actions if not action.option_strings for choice in action.choices or ()
    ]
    return [*options, *chosen]


def _fish(commands: dict[str, argparse.ArgumentParser]) -> list[str]:
    lines = [f"complete -c braided -n __fish_use_subcommand -f -a '{' '.join(commands)}'"]
    for name, command in commands.items():
        seen = f"__fish_seen_subcommand_from {name}"
        lines += [_fish_line(seen, word) for word in _words(command)]
        for below, inner in _commands(command).items():
            both = f"{seen}; and __fish_seen_subcommand_from {below}"
            lines += [_fish_line(both, word) for word in _words(inner)]
    return lines


def _fish_line(seen: str, word: str) -> str:
    what = f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {word}"
    return f"complete -c braided -n '{seen}' {what}"
