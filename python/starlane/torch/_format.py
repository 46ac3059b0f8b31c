"""What a damaged or foreign file is answered with, and reads of small parts of one."""

from __future__ import annotations


class FormatError(ValueError):
    """The file is truncated, damaged, malicious, or of a kind that this package does not read. The text says which."""
