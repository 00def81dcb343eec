"""What the papers promise: one file a paper, functions of specs only."""

from byheart.theory.dana2025 import corollary1_capacity, corollary1_heads

__all__ = ["corollary1_capacity", "corollary1_heads"]
