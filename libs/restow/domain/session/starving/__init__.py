"""Jobs that have waited for too long (seed 002): who they are (`waits`, `members`), which nodes are reserved for them
(`reserved`, the rule that every action heeds), how one gets its nodes (`attempt`), and who comes before them (`ahead`)."""

from restow.domain.session.starving.reserved_nodes import RESERVED as RESERVED
from restow.domain.session.starving.reserved_nodes import Reserved as Reserved
from restow.domain.session.starving.reserved_nodes import sentence as sentence
