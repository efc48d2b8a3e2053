"""The Kubernetes REST protocol over a store."""
