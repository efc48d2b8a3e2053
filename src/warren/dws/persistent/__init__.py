"""Persistent storage: instances that outlive the Workflows which make and use them."""
