"""The plugin's arguments: what is kept free, where and when (seed 001, RULES 001-5)."""

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from restow.domain.duration import DurationError, format_milliseconds, milliseconds
from restow.domain.node_table import MOST
from restow.domain.quantity import QuantityError, canonical, format_resource
from restow.domain.resources import total_columns
from restow.domain.session import args
from restow.domain.session.plugins.reserve.windows import MAX_LEAD, shape_wrong
from restow.domain.windows import WindowError, zone


class ReserveLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One reservation that comes again. `resources` are a total, kept free on the nodes of `nodeSelector` in the windows of
    `cron`, and from `startReserveAgo` before each. Where `podNumToReserve` reserve tasks were scheduled since then, the
    rest is free for all; 0 for no such limit. `timeZone` is an IANA name."""

    nodeSelector: dict[str, str]
    resources: dict[str, str]
    cron: str
    startReserveAgo: str = "0s"
    podNumToReserve: int = 0
    timeZone: str = "UTC"

    @property
    def lead(self) -> int:
        """Milliseconds before the window."""
        return milliseconds(self.startReserveAgo)

    @property
    def amounts(self) -> dict[str, int]:
        """In the unit in which each resource is counted."""
        return {name: canonical(name, text) for name, text in self.resources.items()}

    @property
    def columns(self) -> dict[str, int]:
        """The amounts by the table's columns: GPUs in thousandths, whatever they are called."""
        return {name: amount for name, amount in total_columns(self.amounts).items() if amount}

    def check(self) -> str:
        if not self.nodeSelector:
            return "nodeSelector: {}; allowed: one label at least, which the nodes have"
        for name, amount in self.amounts.items():
            if not 0 <= amount <= MOST:
                return f"resources[{name!r}]: {self.resources[name]}; allowed: 0 to {MOST}"
        if not self.columns:
            return f"resources: {self.resources}; allowed: one resource at least, above 0"
        if not 0 <= self.lead <= MAX_LEAD:
            return f"startReserveAgo: {self.startReserveAgo}; allowed: 0s to {format_milliseconds(MAX_LEAD)}"
        if self.podNumToReserve < 0:
            return f"podNumToReserve: {self.podNumToReserve}; allowed: 0 or more"
        try:
            zone(self.timeZone)
        except WindowError as error:
            return str(error)
        return shape_wrong(self.cron, self.timeZone)


class Args(args.Arguments, frozen=True):
    """`reservelabels`: any number of them; their windows and their nodes may overlap, each is kept for itself."""

    reservelabels: tuple[ReserveLabel, ...] = ()

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        own = dict(said)
        labels = own.get("reservelabels")
        if labels is None:
            labels = own["reservelabels"] = []
        if not isinstance(labels, list | tuple):
            raise args.ArgsError(f"reservelabels: {labels!r}; allowed: a list")
        own["reservelabels"] = [_label(one, f"reservelabels[{i}]") for i, one in enumerate(labels)]
        return super().read(own)

    def check(self) -> str:
        for i, label in enumerate(self.reservelabels):
            if why := label.check():
                return f"reservelabels[{i}].{why}"
            if label in self.reservelabels[:i]:
                return f"reservelabels[{i}]: equal to an earlier one; allowed: each once"
        return ""


def _label(said: Any, path: str) -> dict[str, Any]:
    """With amounts and durations written in one way. What has the wrong type is left for msgspec to name."""
    if not isinstance(said, Mapping):
        raise args.ArgsError(f"{path}: {said!r}; allowed: a mapping")
    label = dict(said)
    if isinstance(label.get("resources"), Mapping):
        label["resources"] = {
            name: _amount(f"{path}.resources[{name!r}]", str(name), value) for name, value in label["resources"].items()
        }
    if isinstance(label.get("startReserveAgo"), str):
        try:
            label["startReserveAgo"] = format_milliseconds(milliseconds(label["startReserveAgo"]))
        except DurationError as error:
            raise args.ArgsError(f"{path}.startReserveAgo: {error}") from None
    return label


def _amount(path: str, name: str, value: Any) -> str:
    try:
        return format_resource(name, canonical(name, value))
    except QuantityError as error:
        raise args.ArgsError(f"{path}: {error}") from None
