"""Multi-head attention memories (Mahdavi et al. 2024): `build` takes one of four proofs; `groups`
finds examples for each head, `saturated` is the proof of Theorem 1 in two forms, `generic` random
heads and the read-out, `newton` all weights at once.
"""
