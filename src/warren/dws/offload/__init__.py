"""Copies that a running job asks for (ADR 092)."""
