"""The published contract in `proto/`, generated from the Structs: `python -m restow.contracts.publish proto [--check]`."""

from restow.contracts.publish.files import differences, render, write

__all__ = ["differences", "render", "write"]
