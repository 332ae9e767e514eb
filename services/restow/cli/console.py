"""Rich's console, for commands that paint while they run."""

import errno
import os
import sys
from typing import Any

from rich.console import Console as RichConsole

from restow.cli.output import Harmless, still


class Console(RichConsole):
    """What it paints goes past `Harmless`, which would take it for somebody else's; a text that it is to print does not steer the terminal here either.

    Where the reader has gone, the command ends as everywhere else (`main`), with everything that it has to put away; Rich would end the process with 1,
    which is the code of a broken promise."""

    def __init__(self, **settings: Any) -> None:
        if not settings.get("stderr") and isinstance(sys.stdout, Harmless):
            settings["file"] = sys.stdout.stream
        super().__init__(**settings)

    def print(self, *objects: Any, **settings: Any) -> None:
        super().print(*(still(one) if isinstance(one, str) else one for one in objects), **settings)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
