"""Experiments of interpretability on memories in which the truth is known: which heads hold a fact,
and every other fact there is."""
