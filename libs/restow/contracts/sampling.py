"""Which traces are told. It follows from the id alone, so everybody who tells of a trace decides alike, and tells all of it or nothing."""

_LOW = (1 << 64) - 1


def sampled(trace: str, share: float) -> bool:
    """Whether a trace (32 hexadecimal digits) is one of this share, 0 to 1: by its lower 64 bits, as OpenTelemetry's `TraceIdRatioBased` does it."""
    return int(trace, 16) & _LOW < round(share * (_LOW + 1))
