"""Execution: shells on nodes, and the site's commands around them."""
