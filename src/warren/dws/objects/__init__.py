"""The DWS and NNF objects as values, decoded as far as decisions read them."""
