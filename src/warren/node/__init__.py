"""A node made to work: volumes, mounts, copies. Who asked is not known here."""
