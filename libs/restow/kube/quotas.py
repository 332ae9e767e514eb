"""Amounts that stand for many pods or for a whole queue, in Restow's columns."""

from collections.abc import Mapping

from restow.contracts.ids import MOST
from restow.domain import resources as r
from restow.kube import wire
from restow.kube.requests import FactError, canonical


def quota(quantities: Mapping[str, wire.Quantity] | None, path: str) -> dict[str, int]:
    """In canonical units and in `ordered` order. Zeros stay: a capability of 0 allows nothing, one that is absent
    anything. Of several names for GPUs the greatest amount counts, as on nodes. Raises FactError."""
    amounts = canonical(quantities, path)
    for name, amount in amounts.items():
        most = MOST // r.GPU_UNIT.get(name, 1)
        if amount > most:
            raise FactError(f'{path}["{name}"]: {amount} is too large; allowed: up to {most}')
    columns = r.total_columns(amounts)
    return {name: columns[name] for name in r.ordered(columns)}
