"""The embedded API server, for one machine: a store, and the Kubernetes REST protocol over it."""
