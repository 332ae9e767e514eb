"""Rich's console, for commands that paint while they run."""

import errno
import os

from rich.console import Console as RichConsole


class Console(RichConsole):
    """Where the reader has gone, the command ends as everywhere else (`main`), with everything that it has to put away; Rich
    would end the process with 1, which is the code of a broken promise."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
