"""Spans, and their way to a collector of OpenTelemetry."""
