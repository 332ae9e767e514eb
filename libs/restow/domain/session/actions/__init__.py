"""What a session does, one action after another."""

from restow.domain.session.actions.args import ARGS as ARGS
