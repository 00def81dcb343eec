"""Multi-head attention memories (Mahdavi et al. 2024): the saturation proof as an algorithm.

`proofs` are the four proofs and what they ask, `build` verifies what they make; `groups` finds
examples for each head, `heads` holds the two parts of a head, `one_hot` and `literal` are the proof
in two forms, `generic` random heads, `newton` all weights at once, `values` the read-out.
"""
