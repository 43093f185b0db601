"""A pretend device that has no double precision, as Apple's GPUs have none."""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

# Torch lets nobody else make tensors here, and asks for no driver.
DEVICE = "meta"


class Elsewhere(torch.Tensor):
    """A tensor on the pretend device; its numbers are on the CPU."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
            requires_grad=inner.requires_grad,
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on {DEVICE} outside of no_double_precision")


class _Operations(TorchDispatchMode):
    """Run what is on the pretend device on the CPU; refuse float64 there."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        here = [t for t in given if isinstance(t, Elsewhere)]
        device = kwargs.get("device")
        there = bool(here) if device is None else torch.device(device).type == DEVICE
        if device is not None:
            kwargs["device"] = "cpu"
        name = func.overloadpacket.__name__
        if here and name != "copy_" and device is None:
            strangers = [t for t in given if not isinstance(t, Elsewhere) and t.ndim]
            if strangers:
                raise RuntimeError(f"{func} mixes {DEVICE} and cpu")
        plain_args, plain_kwargs = tree_map_only(
            Elsewhere, lambda t: t.inner, (args, kwargs)
        )
        out = func(*plain_args, **plain_kwargs)
        if name.endswith("_") and not name.endswith("__"):
            return args[0]

        def place(tensor):
            if tensor.dtype in (torch.float64, torch.complex128):
                raise TypeError(f"{func} makes {tensor.dtype} on {DEVICE}")
            return Elsewhere(tensor)

        return tree_map_only(torch.Tensor, place, out) if there else out


class _Literals(TorchFunctionMode):
    """Make tensors of numbers on the CPU, then move them."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.new_tensor:
            like, *args = args
            kwargs = {"dtype": like.dtype, "device": like.device, **kwargs}
            func = torch.tensor
        if func in (torch.tensor, torch.as_tensor):
            device = kwargs.pop("device", None) or "cpu"
            return func(*args, **kwargs).to(device)
        return func(*args, **kwargs)


@contextmanager
def no_double_precision():
    """Inside, `DEVICE` can be used, and refuses float64."""
    with _Literals(), _Operations():
        yield
