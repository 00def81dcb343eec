"""Multi-head attention memories (Mahdavi et al. 2024): the saturation proof as an algorithm.

`proofs` are the four proofs, `build` verifies what they make; `groups` and `hypotheses` check what
the theorem asks, `heads` holds the two parts of a head, `one_hot` and `literal` are the proof in
two forms, `generic` random heads, `newton` all weights at once, `values` the read-out.
"""
