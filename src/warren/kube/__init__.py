"""How to talk to a Kubernetes API: the `Client` protocol, its adapters, informers, reconcile loops.

What the objects mean is not known here.
"""
