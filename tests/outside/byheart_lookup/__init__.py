"""A look-up layer for byheart: one hidden unit for each fact (after Geva et al. 2021).

    logits(t) = W_U^T relu(Σ_s W_in[s, t_s] - (S - 1))

The unit of a fact adds up one 1 for each token of its key that is there, and fires when all are.
"""
