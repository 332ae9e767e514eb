"""What the command `restow` begins with."""

import signal


def main() -> None:
    """While the rest is imported, which takes a tenth of a second, Ctrl-C ends the process as it ends any program; in the midst of an import Python would print where it was."""
    by_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if by_python:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from restow.cli.main import main as begin

    if by_python:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    begin()
