"""Defragmentation (Restow's own; seed 000): it plans on its own, and how its plan is carried out is the port's business (`framework.Port`).

Its arguments are read by seed 000's rules, with both ways to write `resourceType`.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from restow.domain.allowed_words import allowed_words
from restow.domain.config import DefragmentationArgs, renamed
from restow.domain.defragmentation.args import ArgsError, check
from restow.domain.descheduling.framework import Handle
from restow.domain.policy_args import Args as Base

NAME = "Defragmentation"
POINTS = ("balance",)


class Args(Base, frozen=True):
    """`said` is what its planners take."""

    said: DefragmentationArgs = DefragmentationArgs()
    renamed: dict[str, str] = msgspec.field(default_factory=dict)
    """Words that have another name today, as the policy has them: old → new."""

    @property
    def warning(self) -> str:
        """What its author should know; empty for nothing."""
        return "; ".join(f"{old} is called {new} now" for old, new in self.renamed.items())


def run(handle: Handle, args: Args) -> None:
    handle.defragment(args.said)


def read(said: Mapping[str, Any], path: str) -> Args:
    """Raises ValueError with path, value and what is allowed."""
    args = dict(said)
    written = "ResourceType" if "ResourceType" in args else "resourceType"
    if "ResourceType" in args:
        if "resourceType" in args:
            raise ValueError(f"{path}: has ResourceType and resourceType; allowed: one of them")
        args["resourceType"] = args.pop("ResourceType")
    try:
        former = renamed(args)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    try:
        made = msgspec.convert(args, DefragmentationArgs)
        check(made)
    except msgspec.ValidationError as error:
        raise ValueError(_unfit(error, args, path).replace("resourceType", written)) from None
    except ArgsError as error:
        raise ValueError(f"{path}.{error}".replace("resourceType", written)) from None
    return Args(said=made, renamed=former)


def _unfit(error: msgspec.ValidationError, said: Any, path: str) -> str:
    what, _, where = str(error).partition(" - at `$")
    where = where.rstrip("`")
    for name, index in re.findall(r"\.?([^.\[\]`]+)|\[(\d+)\]", where):
        if isinstance(said, Mapping) and name in said:
            said = said[name]
        elif index and isinstance(said, list):
            said = said[int(index)]
    words = DefragmentationArgs.__struct_encode_fields__ if "unknown field" in what and not where else allowed_words(DefragmentationArgs, where) if "enum value" in what else ()
    allowed = f"; allowed: {', '.join(words)}" if words else ""
    return f"{path}{where}: {what}; found {repr(said)[:80]}{allowed}"
