"""Hand-written gradients for the hot shapes, equal to the literal oracle; one module a form."""
