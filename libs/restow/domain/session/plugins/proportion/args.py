"""The plugin takes no arguments."""

from restow.domain.session import args


class Args(args.Args, frozen=True):
    """None."""
