"""Holds are scheduled like jobs, and handed over to their owners (seed 000)."""

from restow.domain.session.plugins.reservation import plugin as plugin
from restow.domain.session.plugins.reservation.args import Args as Args
