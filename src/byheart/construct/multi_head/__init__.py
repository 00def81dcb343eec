"""Multi-head attention memories (Mahdavi et al. 2024): `build` takes one of four proofs;
`saturated` is the proof of Theorem 1 in two forms, `generic` random heads and Newton's method."""
