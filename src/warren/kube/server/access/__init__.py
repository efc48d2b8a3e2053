"""Which user asks, and what that user may do."""
