"""Which release this is, as the log says it of every commit: so that what it has decided can be decided again by the same one."""

import functools
import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from restow import contracts, domain


@functools.cache
def code() -> str:
    """What decides, as 12 hex digits: SHA-256 of the names and texts of the core's and the contracts' modules. A version may be built
    more than once, and an image be tagged again; this tells whether it is the same."""
    digest = hashlib.sha256()
    for package in (contracts, domain):
        folder = Path(str(package.__file__)).parent
        for file in sorted(folder.rglob("*.py"), key=lambda file: file.relative_to(folder).as_posix()):
            digest.update(f"{package.__name__}/{file.relative_to(folder).as_posix()}\0".encode())
            digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@functools.cache
def number() -> str:
    """The wheel's version; `0` where this runs from something else."""
    try:
        return version("restow")
    except PackageNotFoundError:
        return "0"


def name(image: str = "") -> str:
    """`0.1.0+3fa9c12b7d01`, and the image where it is known."""
    return f"{number()}+{code()}" + (f" {image}" if image else "")
