"""The time of day, for records."""

from datetime import UTC, datetime


def utc_now() -> str:
    """The time, to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
