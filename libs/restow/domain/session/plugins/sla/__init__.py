"""A job that has waited too long goes first."""

from restow.domain.session.plugins.sla.args import Args as Args
