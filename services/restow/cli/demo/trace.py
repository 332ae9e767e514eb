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


_WHOLE = re.compile(r"-?[0-9]{1,18}")
MOST = 2**33
"""Of cpu_milli and memory_mib: what the scheduler can still add up."""


class TraceError(ValueError):
    """A trace that cannot be read. Says file, line, column, value and what is allowed."""


def load(folder: Path, pods: str = PODS) -> Scenario:
    """Read a folder with the openb files; `pods` names the pod list. Raises TraceError."""
    if not folder.is_dir():
        raise TraceError(f"{folder}: not a folder; allowed: a folder with {NODES} and {PODS}")
    nodes = tuple(_node(row) for row in _rows(folder / NODES, NODE_COLUMNS))
    workloads = [_workload(row, number) for number, row in enumerate(_rows(folder / pods, POD_COLUMNS))]
    for name, found in ((NODES, nodes), (pods, workloads)):
        if not found:
            raise TraceError(f"{folder / name}:2: the file ends after its header; allowed: a line for each {'node' if name == NODES else 'pod'}")
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

    def name(self, column: str) -> str:
        value = self.text(column)
        if not _NAME.fullmatch(value):
            raise self.error(column, f"{_NAME.pattern}, which Kubernetes takes for a name")
        return value

    def number(self, column: str, least: int, most: int = 2**53, default: str | None = None) -> int:
        text = self.text(column, default)
        if not _WHOLE.fullmatch(text):
            raise self.error(column, f"a whole number, {least} to {most}")
        value = int(text)
        if not least <= value <= most:
            raise self.error(column, f"{least} to {most}")
        return value

    def error(self, column: str, allowed: str) -> TraceError:
        shown = repr(self._values.get(column))
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return TraceError(f"{self._path}:{self._line}: {column} is {shown}; allowed: {allowed}")


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    """Every line with a name of its own, which is in the first of the columns."""
    seen: dict[str, int] = {}
    line = 1
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [c for c in columns if c not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(f"{path}:1: columns {', '.join(missing)} are missing; allowed: a header with {', '.join(columns)}")
            for values in reader:
                line = reader.line_num
                if None in values or None in values.values():
                    raise TraceError(f"{path}:{line}: the line has more or fewer fields than the header; allowed: {len(reader.fieldnames or ())}")
                row = _Row(path, line, values)
                if (before := seen.setdefault(row.name(columns[0]), line)) != line:
                    raise row.error(columns[0], f"each name once; line {before} has it, too")
                yield row
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}; allowed: a csv file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}:{line}: not a csv file from here on: {error}; allowed: text in UTF-8") from None


def _node(row: _Row) -> DemoNode:
    return DemoNode(
        row.name("sn"),
        row.number("cpu_milli", 1, MOST),
        row.number("memory_mib", 1, MOST) * MIB,
        row.number("gpu", 0, 64),
        row.text("model", ""),
    )


def _workload(row: _Row, number: int) -> Workload:
    gpus = row.number("num_gpu", 0, 64)
    milli = row.number("gpu_milli", 1 if gpus else 0, 1000, None if gpus else "0")
    arrives = row.number("creation_time", 0, default=str(number))
    finishes = row.number("deletion_time", 0, default=str(2**53))
    if finishes < arrives:
        raise row.error("deletion_time", f"creation_time ({arrives}) or later")
    return Workload(
        row.name("name"),
        row.number("cpu_milli", 0, MOST),
        row.number("memory_mib", 0, MOST) * MIB,
        gpus,
        milli if gpus else 0,
        tuple(m for m in row.text("gpu_spec", "").split("|") if m),
        arrives,
        finishes,
    )
