"""The arguments: which failed pods go."""

from typing import Self

import msgspec

from restow.domain.descheduling.args import Uint
from restow.domain.descheduling.subjects import PodArgs

HOUR = 3600


class Args(PodArgs, frozen=True):
    """Every list that is not empty must match. `minPodLifetimeSeconds`: only pods that are older; an hour where nothing is
    said, and 0 asks for no age."""

    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: Uint | None = None
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False

    def defaulted(self) -> Self:
        return self if self.min_pod_lifetime_seconds is not None else msgspec.structs.replace(self, min_pod_lifetime_seconds=HOUR)
