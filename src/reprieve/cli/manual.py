"""Write help from the descriptions of the commands."""

from __future__ import annotations

from reprieve.cli.spec import EVERYWHERE, Argument, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH = 100
INTRO = "Undo for AI agents: checkpoint a folder, see what changed, take it back exactly"


def overview(groups: Sequence[tuple[str, Sequence[Command]]]) -> str:
    """What `reprieve --help` says."""
    lines = [INTRO, "", "Usage: reprieve [-C DIR] [--json] [-q] COMMAND …", ""]
    for title, commands in groups:
        lines.append(f"{title}:")
        lines += _columns((command.name, command.summary) for command in commands)
        lines.append("")
    lines.append("Everywhere:")
    lines += _columns(_option_row(option) for option in EVERYWHERE)
    lines += [
        "",
        "Begin with:",
        "  reprieve run -- COMMAND    run an agent, or anything, so that it can be taken back",
        "  reprieve status            see what changed since",
        "  reprieve rollback          take it back",
        "",
        "More about one command: reprieve COMMAND --help",
    ]
    return "\n".join(lines)


def about(command: Command) -> str:
    """What `reprieve COMMAND --help` says."""
    first, *more = _wrap_words(usage_words(command), WIDTH - 7)
    lines = [command.summary, "", f"Usage: {first}", *(f"       {line}" for line in more)]
    if command.details:
        lines += ["", *(line for part in command.details.split("\n") for line in _wrap(part, WIDTH))]
    given = [*command.arguments, *((command.trailing,) if command.trailing else ())]
    if given:
        lines += ["", "Arguments:", *_columns((argument.name, argument_text(argument)) for argument in given)]
    if command.options:
        lines += ["", "Options:", *_columns(_option_row(option) for option in command.options)]
    lines += ["", "Everywhere:", *_columns(_option_row(option) for option in EVERYWHERE if option.name != "--version")]
    if command.exit_codes:
        lines += ["", "Exit codes:", *_columns((str(code), text) for code, text in command.exit_codes)]
    lines += ["", "Examples:"]
    for line, meaning in command.examples:
        lines += [f"  {line}", f"      {meaning}"]
    return "\n".join(lines)


def usage(command: Command) -> str:
    """The command in one line: reprieve diff [--stat] [REF] [OTHER] [-- PATH…]"""
    return " ".join(usage_words(command))


def usage_words(command: Command) -> list[str]:
    """The same in pieces that stay together when the line is broken."""
    words = ["reprieve", command.name]
    words += [_option_usage(option) for option in command.options]
    for argument in command.arguments:
        words.append(_argument_usage(argument))
    if command.trailing is not None:
        text = command.trailing.name + ("…" if command.trailing.is_many else "")
        words.append(f"-- {text}" if command.trailing.is_required else f"[-- {text}]")
    return words


def option_text(option: Option) -> str:
    """Everything about an option in one sentence."""
    text = option.summary
    if option.choices:
        text += f" ({', '.join(option.choices)})"
    if option.default:
        text += f"; default: {option.default}"
    if option.is_many:
        text += "; may be repeated"
    return text


def _option_usage(option: Option) -> str:
    text = option.name
    if option.metavar:
        text += f" {'|'.join(option.choices) or option.metavar}"
    return f"[{text}]" + ("…" if option.is_many else "")


def _argument_usage(argument: Argument) -> str:
    text = argument.name + ("…" if argument.is_many else "")
    return text if argument.is_required else f"[{text}]"


def argument_text(argument: Argument) -> str:
    return argument.summary + (f" ({', '.join(argument.choices)})" if argument.choices else "")


def _option_row(option: Option) -> tuple[str, str]:
    name = f"{option.short}, {option.name}" if option.short else option.name
    return (f"{name} {option.metavar}" if option.metavar else name), option_text(option)


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    left = min(max((len(name) for name, _ in rows), default=0), 28)
    lines: list[str] = []
    for name, text in rows:
        first, *more = _wrap(text, WIDTH - left - 4)
        if len(name) > left:
            lines += [f"  {name}", f"  {'':{left}}  {first}"]
        else:
            lines.append(f"  {name:{left}}  {first}")
        lines += [f"  {'':{left}}  {line}" for line in more]
    return lines


def _wrap(text: str, width: int) -> list[str]:
    return _wrap_words(text.split(), width)


def _wrap_words(words: list[str], width: int) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines
