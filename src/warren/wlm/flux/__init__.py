"""The binding to a broker of Flux: Fluxion's flash, and nodes that are drained. Its C plugins
are in `plugins/flux`."""
