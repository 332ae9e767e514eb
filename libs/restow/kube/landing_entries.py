"""What the entries of moves say in a Landing: by their pods' controllers, and of one whose controller will be made anew by the successor's name."""

from collections.abc import Container, Iterable
from typing import NamedTuple

from restow.domain.migration import gating
from restow.domain.records import Migration
from restow.kube.gates import Owned

POD_NAME = "statefulset.kubernetes.io/pod-name"
"""A label that the StatefulSet's controller gives to each pod that it makes."""


class Entries(NamedTuple):
    open: dict[str, int | None]
    named: dict[str, Owned | None]

    def only(self, keys: Container[str]) -> "Entries":
        return Entries({key: one for key, one in self.open.items() if key in keys}, {key: one for key, one in self.named.items() if key in keys})

    def without(self, keys: Container[str]) -> "Entries":
        return Entries({key: one for key, one in self.open.items() if key not in keys}, {key: one for key, one in self.named.items() if key not in keys})


def entries(moves: Iterable[tuple[Migration, str]], until: int) -> Entries:
    """`moves`: with the controller's uid. `until`: ms, by the API's clock."""
    found = Entries({}, {})
    for migration, controller in moves:
        found.open[controller] = until
        if name := gating.name_of(migration):
            found.named[migration.id] = Owned(migration.move.namespace, [{POD_NAME: name}], until)
    return found
