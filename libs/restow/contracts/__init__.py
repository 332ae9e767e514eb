"""The published contract: what is in the log, as msgspec Structs. `proto/` is generated from here."""
