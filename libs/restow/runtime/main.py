"""The processes of the five services: one main for all. The name of the program says which, as `restow-descheduler` does; without
one, the first argument: `python -m restow.runtime.main descheduler --log-level debug`. Each is a package of `services/restow`, whose
module `service` makes the `Service` that is run here."""

import gc
import sys
from importlib import import_module
from pathlib import Path

from restow.contracts.ids import SERVICES


def main() -> None:
    program, *arguments = sys.argv
    name = Path(program).stem.removeprefix("restow-").replace("-", "_")
    if name not in SERVICES:
        name, *arguments = arguments or [""]
    if name not in SERVICES:
        sys.exit(f"restow: there is no service {name!r}; allowed: {', '.join(SERVICES)}")
    # None of the many objects that imports make is garbage: to look for some again and again takes a tenth of a start's CPU time.
    gc.disable()
    from restow.runtime.process import run

    service = import_module(f"restow.{name}.service").service()
    gc.enable()
    run(service, arguments)


if __name__ == "__main__":
    main()
