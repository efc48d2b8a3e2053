"""What tests of faults share with those of the Kubernetes side."""

from tests.kube.conftest import pki

__all__ = ["pki"]
