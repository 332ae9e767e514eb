"""What of a kind is to be shown: by name, by labels, by namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from restow.cli.failures import UNUSABLE, Failure

if TYPE_CHECKING:
    from restow.domain.state import ClusterState

LABELLED = ("nodes", "pods")
"""Kinds whose labels the log knows."""
_KEY = {"plans": "plan", "migrations": "id"}


class Chosen:
    """Rows of one kind (`views.VIEWS`). Raises Failure where what is asked for cannot be."""

    def __init__(self, what: str, names: tuple[str, ...], selector: str | None, namespace: str | None) -> None:
        self.what, self._names, self._namespace = what, names, namespace
        self._labelled = _test(what, selector)
        self._selector = selector

    @property
    def _kind(self) -> str:
        """One of them."""
        return self.what.removesuffix("s")

    @property
    def said(self) -> str:
        """As a part of a sentence that says that there are none."""
        return (f" in namespace {self._namespace}" if self._namespace else "") + (f" with labels {self._selector}" if self._selector else "")

    def of(self, state: ClusterState) -> Any:
        """All of them, in the kind's order. Raises Failure where somebody who is named is not there."""
        found = self.now(state)
        if self._names and self.what != "summary":
            for name in self._names:
                if not any(self._is(value, name) for value in found):
                    raise Failure(self._missing(name, state), UNUSABLE)
        return found

    def now(self, state: ClusterState) -> Any:
        """Those of them that there are."""
        from restow.cli.views import VIEWS

        found = VIEWS[self.what](state, self._namespace)
        if self._labelled is not None:
            found = [value for value in found if self._labelled(value["labels"])]
        if self._names:
            found = [value for value in found if any(self._is(value, name) for name in self._names)]
        return found

    def key(self, value: Mapping[str, Any]) -> str:
        """What tells it from others of its kind."""
        return str(value.get("uid") or value.get(_KEY.get(self.what, ""), "") or self._name(value))

    def path(self, value: Mapping[str, Any]) -> str:
        """As `restow why` takes it: `pod/shop/web-1`."""
        return f"{self._kind}/{self._name(value)}"

    def _name(self, value: Mapping[str, Any]) -> str:
        if self.what in _KEY:
            return str(value[_KEY[self.what]])
        return f"{value['namespace']}/{value['name']}".removeprefix("/") if "namespace" in value else str(value["name"])

    def _is(self, value: Mapping[str, Any], name: str) -> bool:
        return name in (value.get("name") if self.what not in _KEY else None, self._name(value), value.get("uid"), self.path(value))

    def _missing(self, name: str, state: ClusterState) -> str:
        kind = self._kind
        hint = f"; `restow why {kind}/{name}` tells what became of it, if there was one" if kind in ("pod", "node", "reservation", "migration") else ""
        return f"there is no {kind} {name}{self.said} at sequence {state.seq}{hint}"


def _test(what: str, selector: str | None) -> Callable[[Mapping[str, str]], bool] | None:
    from restow.kubesim.errors import ApiError
    from restow.kubesim.selectors import label_test

    if not selector:
        return None
    if what not in LABELLED:
        raise Failure(f"-l: the log knows no labels of {what}; allowed for: {', '.join(LABELLED)}", UNUSABLE)
    try:
        return label_test(selector)
    except ApiError:
        raise Failure(f"-l {selector!r} is no label selector; allowed: a=b, a!=b, a in (b,c), a notin (b), a, !a, with commas between them", UNUSABLE) from None
