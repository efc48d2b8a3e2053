"""How to talk to a Kubernetes API: the client port, its adapters, informers, reconcile loops.

What the objects mean is not known here.
"""
