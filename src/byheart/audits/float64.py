"""Float64 all the way: libraries that compute in float32 whatever they are given are overruled.

transformers casts to float32 inside RMSNorm, rotary positions and softmax, so a model in float64
still carries float32 noise, and every rank above that noise would look full.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.overrides import TorchFunctionMode

Function = Callable[..., object]
WIDER: dict[Function, Function] = {torch.Tensor.float: torch.Tensor.double}


class TrueFloat64(TorchFunctionMode):
    """While active, casts to float32 become casts to float64.

    >>> x = torch.tensor([1.0], dtype=torch.float64)
    >>> with TrueFloat64():
    ...     x.float().dtype, torch.softmax(x, 0, dtype=torch.float32).dtype
    (torch.float64, torch.float64)
    """

    def __torch_function__(
        self,
        func: Function,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = dict(kwargs or {})
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return WIDER.get(func, func)(*args, **kwargs)
