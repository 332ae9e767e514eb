"""Reservations: which are valid, who may use them, what their status is."""

from restow.domain.reservation.decider import ReservationDecider

decider = ReservationDecider()
