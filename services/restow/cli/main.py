"""`restow`: one command for the whole suite. Commands are imported when they are called, so that help is immediate."""

from __future__ import annotations

import io
import os
import select
import sys
from importlib import import_module
from importlib.util import find_spec

import click

from restow.cli.failures import INTERRUPTED, UNREAD, Failure, failure_of
from restow.cli.output import harmless

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "up": ("restow.cli.stack:up", "Keep the embedded stack running: broker, Kubernetes API, five services."),
        "down": ("restow.cli.background:down", "Stop the stack that `restow up --detach` started."),
        "watch": ("restow.cli.watch.command:watch", "See what Restow would do in a cluster, with read-only rights, and keep score."),
        "demo": ("restow.cli.demo.command:demo", "Fragment a cluster, defragment it, prove that nothing was lost."),
    },
    "Look": {
        "get": ("restow.cli.state:get", "List nodes, pods, groups, queues, reservations, plans or migrations."),
        "state": ("restow.cli.state:state", "The same, and a summary, at any sequence or time."),
        "describe": ("restow.cli.describe:describe", "A Reservation, node, PodGroup, queue or plan in full."),
        "top": ("restow.cli.top:top", "The cluster in this terminal, live: a map of the nodes, who waits, what moves."),
        "console": ("restow.cli.show_console:console", "The cluster in a browser: a map of it at any instant of its log."),
        "replay": ("restow.cli.show_console:replay", "A recorded log in a browser, with a tour of what happened in it."),
        "why": ("restow.cli.why:why", "The story of a pod, group, reservation, migration, node or queue, and why."),
        "trace": ("restow.cli.trace.command:trace", "Where the time of a pod or a plan went; to a collector of OpenTelemetry, too."),
        "sql": ("restow.cli.sql:sql", "Ask the log in SQL: every event type is a table."),
    },
    "The log": {
        "log tail": ("", "Show the latest commits, and follow the log."),
        "log stats": ("", "Commits, decisions, events and bytes per family."),
        "log export": ("", "Write the log, or part of it, to one sealed file or to Parquet."),
        "log import": ("", "Restore an exported file or an archive into an empty log."),
        "log refold": ("", "Fold the log anew, and store the state as a snapshot."),
        "log replicas": ("", "Keep the log on one broker, three or five."),
        "log verify": ("", "Check that no record is missing, and that each follows from those before it."),
        "log repair": ("", "Go on with a log that has lost records."),
        "verify": ("restow.cli.verify:verify", "Make every decision again and compare, byte for byte."),
        "report": ("restow.cli.report:report", "What happened: what is free, who waited, who was moved, what plans won."),
        "whatif": ("restow.cli.whatif:whatif", "Decide a recorded log anew on virtual time, beside what really happened."),
    },
    "Act": {
        "reserve": ("restow.cli.reserve:reserve", "Hold capacity for the next pods of a workload, before they exist."),
        "defrag": ("restow.cli.defrag:defrag", "Plan a defragmentation (--dry-run), carry one out (--now), cancel it."),
        "migrate": ("restow.cli.migrate:migrate", "Move one pod: hold a slot, evict the pod, and see its successor land there."),
        "plans": ("restow.cli.approval:plans", "Plans that wait for a person, and one of them with its moves."),
        "approve": ("restow.cli.approval:approve", "Let a proposed plan be carried out, or some of its moves."),
        "reject": ("restow.cli.approval:reject", "Do not let it be carried out, with a reason."),
        "mode": ("restow.cli.approval:mode", "What becomes of plans: observe, propose or automatic."),
        "pause": ("restow.cli.pause:pause", "Stop all moves: nobody else is evicted, also after a restart."),
        "resume": ("restow.cli.pause:resume", "End the pause."),
        "descheduler run": ("", "Carry out a whole policy: the stack's (--now), or on any cluster (--once)."),
    },
    "Other": {
        "simulate": ("restow.cli.simulate:simulate", "Run everything on virtual time with faults, and judge it (in a checkout)."),
        "doctor": ("restow.cli.doctor.command:doctor", "Say what is not well with Restow in a cluster, and what to do."),
        "uninstall": ("restow.cli.uninstall.command:uninstall", "Remove Restow from a cluster, and everything that it has made there."),
        "completion": ("restow.cli.completion:completion", "Print a script that completes commands in bash, zsh or fish."),
        "version": ("restow.cli.version:version", "Versions of Restow, its fold and its deciders."),
    },
}
"""Section → command → (where it is, what it does). `log ...` are commands of the group `log`, and so on."""

_TARGETS = {name: target for section in SECTIONS.values() for name, (target, _) in section.items() if target}
_TARGETS["log"] = "restow.cli.log:log"
_TARGETS["descheduler"] = "restow.cli.descheduler.command:descheduler"
_PROCESSES = {"webhook": "restow.cli.webhook:webhook"}
"""What the chart runs (beside.gate: webhook), and nobody calls."""

EXAMPLES = """\
  restow up                                 a cluster on this machine, for kubectl
  restow why pod/shop/web-1                 why it is where it is, or why it waits
  restow state pods --at 2026-01-31T12:00Z  the pods as they were then
  restow state --at -5m                     a summary of the cluster five minutes ago
  restow console                            a map of the cluster in a browser, with a time slider
  restow log export incident.jsonl.zst      the whole log in one file, to send
  restow verify incident.jsonl.zst          ... and to check on any machine
  restow reserve --like deploy/web --ttl 1h capacity for its next pod, before a scale-up
  restow defrag --dry-run                   what a defragmentation would move and gain
  restow migrate pod/shop/web-1             move one pod; a slot is held before it is evicted
"""

SLOTS = """\
  restow reads the log from the first of these:
    --log FILE|DIR               an export (.jsonl, .jsonl.zst) or an archive folder
    --server URL --cluster NAME  a broker; also RESTOW_NATS_URL and RESTOW_CLUSTER; RESTOW_NATS_USER
                                 and RESTOW_NATS_PASSWORD, as in the services' containers
    .restow/stack.json           the stack that `restow up` runs in this folder or one above
"""

CODES = """\
  0 done   1 a promise is broken, or a difference was found   2 wrong usage, or unusable input
  3 cannot connect   70 a bug in Restow
  130 ended by Ctrl-C
  141 the reader of the output has gone (as in `restow get pods | head`)
"""


class Restow(click.Group):
    """A group that knows its commands by name and imports them when they are wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, target in _TARGETS.items() if _there(target)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        target = _TARGETS.get(name) or _PROCESSES.get(name)
        if target is None or not _there(target):
            return None
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            # click looks for similar names among commands that are there already.
            raise click.NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write = formatter.write
        write("Restow packs a Kubernetes cluster tighter without dropping a pod. Every step is in an event log,\n")
        write("so every decision can be replayed, explained and made again.\n\n")
        write("Usage: restow COMMAND [OPTIONS]      for more: restow COMMAND --help\n")
        for section, commands in SECTIONS.items():
            there = {name: text for name, (target, text) in commands.items() if not target or _there(target)}
            if there:
                write(f"\n{_bold(section)}\n")
                for name, text in there.items():
                    write(f"  {name:<16} {text}\n")
        for title, text in (("Examples", EXAMPLES), ("Where the log is", SLOTS), ("Exit codes", CODES)):
            write(f"\n{_bold(title)}\n{text}")
        write("\n  Every command that shows something takes -o json, but for the screens top and console.\n  Output is plain text if it is not a terminal.\n")

    def invoke(self, ctx: click.Context):
        with harmless():
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context):
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
            return found
        except click.exceptions.Exit:
            # What was found out counts, whoever reads it.
            _flush()
            raise
        except KeyboardInterrupt:
            click.echo(err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except (click.ClickException, click.Abort):
            raise
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _nobody_reads():
                _flush()
                raise click.exceptions.Exit(UNREAD) from error
            raise failure_of(error) from error


def _flush() -> None:
    """What nobody reads any more is thrown away, or Python would complain of it at the end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose other end is closed. A broker's connection breaks with the same exception."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(found & select.POLLERR for _, found in poll.poll(0))


def _there(target: str) -> bool:
    try:
        return find_spec(target.partition(":")[0]) is not None
    except ModuleNotFoundError:
        return False


def _bold(text: str) -> str:
    return click.style(text, bold=True) if sys.stdout.isatty() else text


@click.group(cls=Restow, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="restow", message="restow %(version)s")
def cli() -> None:
    """Restow."""


def main() -> None:
    """The entry point."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Whoever has started this has closed it (`>&-`), and wants nothing to be said there.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # In a locale that is not UTF-8 the signs of maps and tables are `?`; otherwise the command would end there.
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="replace")
    cli(prog_name="restow")


__all__ = ["Failure", "cli", "main"]

if __name__ == "__main__":
    main()
