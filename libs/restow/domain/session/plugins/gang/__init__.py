"""A job is placed with all its minimum, or not at all."""

from restow.domain.session.plugins.gang import plugin as plugin
from restow.domain.session.plugins.gang.args import Args as Args
