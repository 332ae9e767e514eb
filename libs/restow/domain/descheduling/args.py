"""What arguments of several plugins have in common: upstream's types, read strictly and kept exact."""

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Self

import msgspec

from restow.contracts.values import Expression
from restow.contracts.values import LabelSelector as Selects
from restow.domain import duration

Uint = Annotated[int, msgspec.Meta(ge=0)]
_FAR = 10**9
"""No percentage is anywhere near; infinity and what is no number are not below it."""


class Args(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Base of all arguments; YAML's names are upstream's, in camel case. What is a pointer in Go is `| None = None`."""

    def defaulted(self) -> Self:
        """With what upstream fills in where nothing is said (its SetDefaults)."""
        return self

    def check(self) -> str:
        """Why these make no sense: path, value, and what is allowed. Empty where they do."""
        return ""


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
        for i, e in enumerate(self.match_expressions):
            path = f"matchExpressions[{i}]"
            if e.operator not in OPERATORS:
                return f"{path}.operator: {e.operator!r}; allowed: {', '.join(OPERATORS)}"
            if e.operator in ("In", "NotIn") and not e.values:
                return f"{path}.values: none; allowed: at least one with {e.operator}"
            if e.operator in ("Exists", "DoesNotExist") and e.values:
                return f"{path}.values: {', '.join(e.values)}; allowed: none with {e.operator}"
        return ""

    @property
    def selects(self) -> Selects:
        """As `selectors.selects` takes it."""
        return Selects(self.match_labels, tuple(Expression(e.key, e.operator, e.values) for e in self.match_expressions))


class PriorityThreshold(Args, frozen=True):
    """Pods of this priority and above stay. By value, or by the name of a PriorityClass."""

    value: int | None = None
    name: str = ""


def below(path: str, refusal: str) -> str:
    """A refusal of what is at `path`; paths are joined by a dot, or directly where an index follows."""
    if not refusal:
        return ""
    head = refusal.partition(":")[0]
    nested = head and " " not in head and ":" in refusal
    return f"{path}{'' if head.startswith('[') else '.'}{refusal}" if nested else f"{path}: {refusal}"


def first(refusals: Iterable[str]) -> str:
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
