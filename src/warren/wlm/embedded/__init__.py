"""The binding to the embedded instance: plugin, validator, shell plugin, and the port itself."""
