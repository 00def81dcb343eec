"""What the theorems say about the architectures that are trained."""

from byheart.specs import AttentionOnlySpec, MLPTransformerSpec, SharedBottleneckSpec
from byheart.theory import bounds


def answers(spec):
    return {a.id: a for a in bounds(spec)}


def test_an_mlp_transformer_has_the_layer_inside_it_and_counts_all_its_parameters():
    spec = MLPTransformerSpec(N=50, S=2, d=10, d_h=10, H=3, w=40)
    rows, bare = answers(spec), answers(spec.heads)
    assert rows["dana2025.corollary1"].capacity == bare["dana2025.corollary1"].capacity == 40
    limits = [r["related.information"].capacity for r in (rows, bare)]
    assert (limits[0] or 0) > (limits[1] or 0) > 0


def test_a_bottleneck_is_the_papers_layer_only_without_compression():
    same = SharedBottleneckSpec(N=50, S=2, d=10, d_h=10, H=20)
    assert answers(same)["mahdavi2024.theorem1"].capacity == 20 * (2 - 1) + 1
    assert "positions" in answers(same)["dana2025.corollary1"].reason  # not in its skip
    narrow = answers(SharedBottleneckSpec(N=50, S=2, d=10, d_h=5, H=20))
    assert narrow["mahdavi2024.theorem1"].capacity is None
    assert narrow["related.information"].capacity is not None


def test_theorems_about_softmax_do_not_answer_for_hardmax():
    row = answers(AttentionOnlySpec(N=50, S=2, d=10, d_h=10, H=20, attention="hardmax"))
    assert row["dana2025.corollary1"].capacity is None
    assert "hardmax" in row["dana2025.corollary1"].reason
