"""Authentication and authorization: which user asks, and what that user may do."""
