"""Text from outside that can be kept and shown as it is: one class of characters, since a name refused here and taken there is two names."""

from __future__ import annotations

# Neither what Postgres cannot keep (NUL), nor what would write another line into a log, nor the marks that turn
# the direction of a line around and so show another name than the one that is compared.
PLAIN = r"[^\x00-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
