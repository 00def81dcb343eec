"""A second device for tests, on a machine that has none: tensors that say they are on `meta`, keep
their numbers on the CPU, and refuse every operation that mixes the two, as a real device would."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

DEVICE = torch.device("meta")
# What real devices take of both: copies, and numbers of rows on the CPU.
MOVES = {
    torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default, torch.ops.aten.index.Tensor,
}  # fmt: skip
FACTORIES = {
    torch.zeros, torch.ones, torch.empty, torch.full, torch.arange, torch.eye, torch.tensor,
    torch.rand, torch.randn, torch.randint, torch.randperm, torch.linspace,
}  # fmt: skip


class MixedDevices(RuntimeError):
    """An operation on tensors of two devices."""


class Elsewhere(torch.Tensor):
    """A tensor on the other device."""

    kept: torch.Tensor

    @staticmethod
    def __new__(cls, kept: torch.Tensor):
        made = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, kept.size(), strides=kept.stride(), storage_offset=kept.storage_offset(),
            dtype=kept.dtype, device=DEVICE,
        )  # fmt: skip
        made.kept = kept
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        flat: list[torch.Tensor] = []
        tree_map(lambda x: flat.append(x) if isinstance(x, torch.Tensor) else None, (args, kwargs))
        here = [x for x in flat if not isinstance(x, Elsewhere) and x.dim() > 0]
        if here and len(here) < len(flat) and func not in MOVES:
            raise MixedDevices(f"{func}: {[type(x).__name__ for x in flat]}")
        stays = "device" not in kwargs or torch.device(kwargs["device"]).type != "cpu"
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        a, k = tree_map(lambda x: x.kept if isinstance(x, Elsewhere) else x, (args, kwargs))
        out = func(*a, **k)
        known = {id(x.kept): x for x in flat if isinstance(x, Elsewhere)}

        def wrapped(x):
            if not isinstance(x, torch.Tensor):
                return x
            if id(x) in known:
                return known[id(x)]
            return Elsewhere(x) if stays else x

        if func is torch.ops.aten.copy_.default:
            return args[0]
        return tree_map(wrapped, out)


class OtherDevice(TorchFunctionMode):
    """While it lives, tensors can be made on, and moved to, the other device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.tolist and isinstance(args[0], Elsewhere):
            return args[0].kept.tolist()
        if func is torch.Tensor.__getitem__ and isinstance(args[0], Elsewhere):
            # torch would make the list a tensor on `meta`, which really has no numbers
            lists = args[1] if isinstance(args[1], tuple) else (args[1],)
            at = tuple(Elsewhere(torch.tensor(x)) if isinstance(x, list) else x for x in lists)
            args = (args[0], at)
        asked = kwargs.get("device")
        if func in FACTORIES and asked is not None and torch.device(asked).type == DEVICE.type:
            return Elsewhere(func(*args, **{**kwargs, "device": "cpu"}))
        if func is torch.Tensor.to and not isinstance(args[0], Elsewhere):
            where = [x for x in (*args[1:], asked) if isinstance(x, (str, torch.device))]
            if where and torch.device(where[0]).type == DEVICE.type:
                rest = [x for x in args[1:] if not isinstance(x, (str, torch.device))]
                kwargs.pop("device", None)
                rest = [x for x in rest if x is not None]
                moved = args[0].to(*rest, **kwargs) if rest or kwargs else args[0]
                return Elsewhere(moved.clone())
        return func(*args, **kwargs)
