"""The openb csv files (cluster-trace-gpu-v2023): nodes and pods of a real GPU cluster."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from restow.cli.demo.scenario import MIB, DemoNode, Scenario, Workload

NODES = "openb_node_list_gpu_node.csv"
PODS = "openb_pod_list_default.csv"
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?")
"""A pod's name is the workload's and six characters more."""


class TraceError(ValueError):
    """A trace that cannot be read. Says file, line, column, value and what is allowed."""


def load(folder: Path, pods: str = PODS) -> Scenario:
    """Read a folder with the openb files; `pods` names the pod list. Raises TraceError."""
    if not folder.is_dir():
        raise TraceError(f"{folder}: not a folder; allowed: a folder with {NODES} and {PODS}")
    nodes = tuple(_node(row) for row in _rows(folder / NODES, NODE_COLUMNS))
    workloads = [_workload(row, number) for number, row in enumerate(_rows(folder / pods, POD_COLUMNS))]
    if not nodes or not workloads:
        raise TraceError(f"{folder}: no nodes or no pods in the trace")
    _distinct(folder / NODES, [n.name for n in nodes])
    _distinct(folder / pods, [w.name for w in workloads])
    workloads.sort(key=lambda w: w.arrives)
    return Scenario(f"{folder.name}/{pods.removesuffix('.csv')}", nodes, tuple(workloads))


class _Row:
    """One line, with its place for error messages."""

    def __init__(self, path: Path, line: int, values: dict[str, str]) -> None:
        self._path, self._line, self._values = path, line, values

    def text(self, column: str, default: str | None = None) -> str:
        value = self._values.get(column)
        if value is None or value == "":
            if default is None:
                raise self.error(column, "a value")
            return default
        return value

    def number(self, column: str, least: int, most: int = 2**53, default: str | None = None) -> int:
        text = self.text(column, default)
        try:
            value = int(text)
        except ValueError:
            raise self.error(column, "a whole number") from None
        if not least <= value <= most:
            raise self.error(column, f"{least} to {most}")
        return value

    def error(self, column: str, allowed: str) -> TraceError:
        return TraceError(f"{self._path}:{self._line}: {column} is {self._values.get(column)!r}; allowed: {allowed}")


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [c for c in columns if c not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(f"{path}:1: columns {', '.join(missing)} are missing; allowed: {', '.join(columns)}, …")
            for values in reader:
                if None in values or None in values.values():
                    raise TraceError(f"{path}:{reader.line_num}: the line has more or fewer fields than the header")
                yield _Row(path, reader.line_num, values)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: not a csv file: {error}") from None


def _node(row: _Row) -> DemoNode:
    return DemoNode(
        row.text("sn"),
        row.number("cpu_milli", 1),
        row.number("memory_mib", 1) * MIB,
        row.number("gpu", 0, 64),
        row.text("model", ""),
    )


def _workload(row: _Row, number: int) -> Workload:
    gpus = row.number("num_gpu", 0, 64)
    milli = row.number("gpu_milli", 1 if gpus else 0, 1000, None if gpus else "0")
    arrives = row.number("creation_time", 0, default=str(number))
    return Workload(
        row.text("name"),
        row.number("cpu_milli", 0),
        row.number("memory_mib", 0) * MIB,
        gpus,
        milli if gpus else 0,
        tuple(m for m in row.text("gpu_spec", "").split("|") if m),
        arrives,
        row.number("deletion_time", 0, default=str(2**53)),
    )


def _distinct(path: Path, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not _NAME.fullmatch(name):
            raise TraceError(f"{path}: {name!r} cannot name an object in Kubernetes; allowed: {_NAME.pattern}, at most 57 characters")
        if name in seen:
            raise TraceError(f"{path}: {name!r} occurs twice; allowed: each name once")
        seen.add(name)
