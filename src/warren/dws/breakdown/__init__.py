"""From a directive to what it needs: DirectiveBreakdowns, and the Servers that fulfil them."""
