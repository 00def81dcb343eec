"""Float64 all the way: libraries that compute in float32 whatever they are given are overruled.

transformers casts to float32 inside RMSNorm, rotary positions and softmax, so a model in float64
still carries float32 noise, and every rank above that noise would look full.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class TrueFloat64(TorchFunctionMode):
    """While active, casts to float32 become casts to float64.

    >>> x = torch.tensor([1.0], dtype=torch.float64)
    >>> with TrueFloat64():
    ...     x.float().dtype, torch.softmax(x, 0, dtype=torch.float32).dtype
    (torch.float64, torch.float64)
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)
