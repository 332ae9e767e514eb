"""What arguments of several plugins have in common: upstream's types, read strictly and kept exact."""

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Self

import msgspec

from restow.contracts.values import Expression
from restow.contracts.values import LabelSelector as Selects
from restow.domain import duration
from restow.domain.protection import SYSTEM_CRITICAL

Uint = Annotated[int, msgspec.Meta(ge=0)]
_FAR = 10**9
"""No percentage is anywhere near; infinity and what is no number are not below it."""


class Args(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Base of all arguments; YAML's names are upstream's, in camel case. What is a pointer in Go is `| None = None`."""

    def defaulted(self) -> Self:
        """With what upstream fills in where nothing is said (its SetDefaults)."""
        return self

    def check(self) -> str:
        """Why these make no sense: path, value, and what is allowed. Empty where they do. Here what is nested is asked."""
        said = ((field.encode_name, getattr(self, field.name)) for field in msgspec.structs.fields(self))
        return first_refusal(nested(name, value.check()) for name, value in said if isinstance(value, Args))


class Duration(int):
    """metav1.Duration: milliseconds; a string such as `1h30m` in YAML."""


class Percent(Fraction):
    """A percentage, exactly as it was written: 20, 33.3."""


class Namespaces(Args, frozen=True):
    """Either `include` or `exclude`. An empty one allows every namespace."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def has(self, namespace: str) -> bool:
        return (not self.include or namespace in self.include) and namespace not in self.exclude

    def check(self) -> str:
        if self.include and self.exclude:
            return "has include and exclude; allowed: one of them"
        return ""


OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
LONGEST_DOMAIN = 253


def key_wrong(key: str) -> str:
    """Why no label can have this key: Kubernetes' rule of qualified names."""
    domain, slash, name = key.rpartition("/")
    good = _NAME.fullmatch(name) and (not slash or (len(domain) <= LONGEST_DOMAIN and _DOMAIN.fullmatch(domain)))
    return "" if good else f"{key!r}; allowed: the key of a label, such as app or example.com/app"


def value_wrong(value: str) -> str:
    good = not value or _NAME.fullmatch(value)
    return "" if good else f"{value!r}; allowed: the value of a label: up to 63 of A-Z, a-z, 0-9, '-', '_' and '.', not at its ends"


class Requirement(Args, frozen=True):
    """One of a selector's matchExpressions."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Args, frozen=True):
    """metav1.LabelSelector, as users write it."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def check(self) -> str:
        for key, value in self.match_labels.items():
            if why := key_wrong(key):
                return f"matchLabels: {why}"
            if why := value_wrong(value):
                return f"matchLabels.{key}: {why}"
        for i, e in enumerate(self.match_expressions):
            path = f"matchExpressions[{i}]"
            if why := key_wrong(e.key):
                return f"{path}.key: {why}"
            if e.operator not in OPERATORS:
                return f"{path}.operator: {e.operator!r}; allowed: {', '.join(OPERATORS)}"
            if e.operator in ("In", "NotIn") and not e.values:
                return f"{path}.values: none; allowed: at least one with {e.operator}"
            if e.operator in ("Exists", "DoesNotExist") and e.values:
                return f"{path}.values: {', '.join(e.values)}; allowed: none with {e.operator}"
            for j, value in enumerate(e.values):
                if why := value_wrong(value):
                    return f"{path}.values[{j}]: {why}"
        return ""

    @property
    def selects(self) -> Selects:
        """As `selectors.selects` takes it."""
        return Selects(self.match_labels, tuple(Expression(e.key, e.operator, e.values) for e in self.match_expressions))


class PriorityThreshold(Args, frozen=True):
    """Pods of this priority and above stay. By value, or by the name of a PriorityClass."""

    value: int | None = None
    name: str = ""

    def check(self) -> str:
        if self.value is not None and self.name:
            return "has value and name; allowed: one of them"
        if self.value is not None and self.value > SYSTEM_CRITICAL:
            return f"value: {self.value}; allowed: up to {SYSTEM_CRITICAL}"
        return ""


def nested(path: str, refusal: str) -> str:
    """A refusal of what is at `path`; paths are joined by a dot, or directly where an index follows."""
    if not refusal:
        return ""
    head = refusal.partition(":")[0]
    nested = head and " " not in head and ":" in refusal
    return f"{path}{'' if head.startswith('[') else '.'}{refusal}" if nested else f"{path}: {refusal}"


def first_refusal(refusals: Iterable[str]) -> str:
    return next((one for one in refusals if one), "")


def decoded(kind: type, value: Any) -> Any:
    """msgspec's hook for the types of this module."""
    if kind is Duration:
        if not isinstance(value, str):
            raise ValueError("allowed: a duration such as 50m or 1h30m")
        return Duration(duration.milliseconds(value))
    if kind is Percent:
        if isinstance(value, bool) or not isinstance(value, int | float) or not -_FAR < value < _FAR:
            raise ValueError("allowed: a number, such as 20 or 33.3")
        # What was written, not the nearest binary fraction.
        return Percent(Decimal(repr(value)))
    raise NotImplementedError(kind)


def encoded(value: Any) -> Any:
    """The inverse."""
    if isinstance(value, Duration):
        return duration.format_milliseconds(value)
    if isinstance(value, Percent):
        return value.numerator if value.denominator == 1 else float(value)
    raise NotImplementedError(type(value))
