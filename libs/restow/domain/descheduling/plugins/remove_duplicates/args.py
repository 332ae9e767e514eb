"""The arguments."""

from restow.domain.descheduling.args import Args as Base
from restow.domain.descheduling.args import Namespaces, below


class Args(Base, frozen=True):
    """Pods that have an owner of an excluded kind are left alone."""

    namespaces: Namespaces | None = None
    exclude_owner_kinds: tuple[str, ...] = ()

    def check(self) -> str:
        return below("namespaces", self.namespaces.check() if self.namespaces else "")
