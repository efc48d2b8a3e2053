"""Storage on rabbits: NnfStorages, what they are made of, and the profiles that say how."""
