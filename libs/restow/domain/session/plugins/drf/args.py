"""The plugin takes no arguments."""

from collections.abc import Mapping

from restow.domain.session import args


class Args(args.Args, frozen=True):
    """None."""

    @classmethod
    def switches_wrong(cls, enabled: Mapping[str, bool]) -> str:
        """Hierarchical DRF by annotations of queues is what Volcano has put the plugin `capacity` in place of."""
        if enabled.get("enableHierarchy"):
            return "enableHierarchy: true; allowed: false (for queues below queues use the plugin capacity)"
        return ""
