"""What differs between two states: for property tests (vectorised against single folds, snapshots against refolds)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from restow.domain.node_table import NO_DEVICE, NodeTable, Vector
from restow.domain.state import ClusterState
from restow.domain.state_attributes import Role, attributes


def diff(a: ClusterState, b: ClusterState, limit: int = 100) -> list[str]:
    """One line a difference, at most `limit`; empty when the states are equal. Order in maps, rows and columns of the table,
    and what is passing (`restow.domain.state_attributes`) do not count."""
    found: list[str] = []
    for name in sorted(attribute.name for attribute in attributes(ClusterState) if attribute.role is not Role.PASSING):
        _compare(name, _said(a, name), _said(b, name), found)
    if len(found) > limit:
        found = [*found[:limit], f"… and {len(found) - limit} more"]
    return found


def _compare(path: str, a: Any, b: Any, found: list[str]) -> None:
    if isinstance(a, Counter):
        a, b = dict(+a), dict(+b)
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(a.keys() - b.keys(), key=str):
            found.append(f"{path}[{_short(key)}]: {_short(a[key])} in the first only")
        for key in sorted(b.keys() - a.keys(), key=str):
            found.append(f"{path}[{_short(key)}]: {_short(b[key])} in the second only")
        for key in sorted(a.keys() & b.keys(), key=str):
            _compare(f"{path}[{_short(key)}]", a[key], b[key], found)
        return
    if a == b:
        return
    fields = getattr(a, "__struct_fields__", ())
    if fields and type(a) is type(b):
        for field in fields:
            _compare(f"{path}.{field}", getattr(a, field), getattr(b, field), found)
        return
    found.append(f"{path}: {_short(a)} != {_short(b)}")


def _said(state: ClusterState, name: str) -> Any:
    """The attribute; the table and what refers to its columns by name."""
    return _rows(state.table) if name == "table" else _vectors(state) if name == "vectors" else getattr(state, name)


def _rows(table: NodeTable) -> dict[str, dict[str, dict[str, int]]]:
    """The table by names: node → array → column → value, without zeros."""
    columns = list(table.columns)
    arrays = {name: getattr(table, name) for name in ("allocatable", "used", "reserved", "releasing", "free")}
    rows: dict[str, dict[str, dict[str, int]]] = {}
    for node, row in table.rows.items():
        rows[node] = {
            name: {columns[i]: int(array[row, i]) for i in np.flatnonzero(array[row]).tolist()}
            for name, array in arrays.items()
        }
        shares = table.device_free[row].tolist()
        rows[node]["device_free"] = {str(i): share for i, share in enumerate(shares) if share != NO_DEVICE}
        rows[node]["alive"] = {"alive": int(table.alive[row])}
    return rows


def _vectors(state: ClusterState) -> dict[str, Any]:
    columns = list(state.table.columns)
    return {shape: _vector(v, columns) for shape, v in state.vectors.items()}


def _vector(v: Vector, columns: list[str]) -> tuple:
    amounts = sorted((columns[c], a) for c, a in zip(v.columns.tolist(), v.amounts.tolist(), strict=True))
    return (*amounts, v.devices)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
