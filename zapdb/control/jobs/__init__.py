"""Jobs: which there are, how far they are, and what an operator changes about them."""
