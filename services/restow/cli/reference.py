"""docs/cli.md: every command's help, as `restow COMMAND --help` prints it (`make cli`)."""

from __future__ import annotations

import click

from restow.cli.main import SECTIONS, cli

WIDTH = 100
_HEAD = """# Commands

Every command of `restow`, in the words of `restow COMMAND --help`. `make cli` writes this page.
"""


def page() -> str:
    context = click.Context(cli, info_name="restow", max_content_width=WIDTH, terminal_width=WIDTH, help_option_names=["-h", "--help"])
    parts = [_HEAD]
    for section, commands in SECTIONS.items():
        parts.append(f"\n## {section}\n")
        for name, (_, text) in commands.items():
            command, own = _found(name.split(), context)
            help = "\n".join(line.rstrip() for line in click.unstyle(command.get_help(own)).strip("\n").splitlines())
            parts.append(f"\n### restow {name}\n\n{text}\n\n```\n{help}\n```\n")
    return "".join(parts)


def _found(names: list[str], context: click.Context) -> tuple[click.Command, click.Context]:
    command: click.Command = cli
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None, f"{name} is declared in SECTIONS"
        command, context = found, click.Context(found, info_name=name, parent=context)
    return command, context

