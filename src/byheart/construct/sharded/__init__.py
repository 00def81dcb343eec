"""The sharded attention memory: softmax saturation (Mahdavi et al. 2024) gates groups of heads to
shards of facts, so the solve of Dana et al. (2025) becomes block diagonal. `plan` lays out the
shards, `build` solves them; `edit` changes facts (`changes` the table, `grow` the layout)."""
