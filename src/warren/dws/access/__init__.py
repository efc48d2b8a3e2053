"""Nodes that reach and mount storage: NnfAccesses and their ClientMounts."""
