"""Multi-head attention memories (Mahdavi et al. 2024): the saturation proof as an algorithm.

`build` is the door; `groups` and `hypotheses` check what the theorem asks, `heads` holds the two
parts of a head, `one_hot` and `literal` are the proof in two forms, `generic` random heads,
`newton` all weights at once, `values` the read-out.
"""

from byheart.construct.multi_head.build import PROOFS, build_multi_head
from byheart.construct.multi_head.groups import GroupCertificate, find_groups, group_certificate

__all__ = ["PROOFS", "GroupCertificate", "build_multi_head", "find_groups", "group_certificate"]
