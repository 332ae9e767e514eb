"""A job that has waited too long goes first."""

from restow.domain.session.plugins.sla import plugin as plugin
from restow.domain.session.plugins.sla.args import Args as Args
