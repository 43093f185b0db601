"""Small helpers on top of torch that several folders need."""

from __future__ import annotations

import functools
import os
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
)
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import torch
from torch import Tensor, nn

F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode inside; afterwards every module has its former mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def save_tensors_atomically(
    tensors: dict[str, Any], path: str | os.PathLike[str]
) -> None:
    """``torch.save`` to a file that is complete, or as it was before."""
    write_atomically(path, lambda stream: torch.save(tensors, stream))


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[BinaryIO], object]
) -> None:
    """Write a file that is complete, or as it was before."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not by tempfile, whose files nobody else may read.
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
    try:
        with temporary.open("xb") as stream:
            write(stream)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def outside_transforms() -> AbstractContextManager[Any]:
    """Make tensors that belong to no transform of `torch.func`, nor to inference.

    What is computed inside a transform or in inference mode can be used there only, so
    it could not be cached.
    """
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(False))
    # There is no public way; releases without this one compute inside the transform.
    stack.enter_context(getattr(torch._C, "_DisableFuncTorch", nullcontext)())
    return stack


def without_transforms(name: str, x: Tensor) -> Tensor:
    """Return the numbers of a tensor that transforms of `torch.func` have wrapped."""
    functorch = torch._C._functorch
    while inside_transform() and functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            raise ValueError(
                f"{name} differs between the items of torch.func.vmap, but its numbers "
                "are needed here; loop over the items instead"
            )
        x = functorch.get_unwrapped(x)
    return x.detach()


def inside_forward_mode() -> bool:
    """Return whether forward-mode derivatives, such as `torch.func.jvp`, are at work.

    They pass through plain operations, but not through a function whose backward pass
    is written by hand.
    """
    # There is no public way; whoever asks `unpack_dual` misses nested transforms.
    return getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0


def differentiate_plainly(grad: Tensor) -> bool:
    """Return whether a backward pass must consist of plain operations.

    Somebody will differentiate it again, or does so already, or ``grad`` is a batch of
    gradients, by vmap or by ``is_grads_batched`` of `torch.autograd.grad`.
    """
    # There is no public way.
    ask = getattr(torch._C._functorch, "is_legacy_batchedtensor", None)
    batched = inside_transform() or (ask is not None and ask(grad))
    return torch.is_grad_enabled() or inside_forward_mode() or batched


def only_plain_operations() -> bool:
    """Return whether whoever records or derives the call knows plain operations only.

    These are compilers, tracers and forward-mode derivatives.
    """
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    return torch.compiler.is_compiling() or tracing or inside_forward_mode()


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Switch autocast off: products of table and field need all their digits."""
    # The compiler of torch 2.6 does not understand the question.
    if torch.compiler.is_compiling() or torch.amp.is_autocast_available(device_type):
        return torch.autocast(device_type, enabled=False)
    return nullcontext()


def without_autocast(method: F) -> F:
    """Let a method of something with a ``device`` compute in full precision."""

    @functools.wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with full_precision(self.device.type):
            return method(self, *args, **kwargs)

    return cast(F, wrapped)


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on a device that has no double precision."""
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return torch.float32
    return torch.float64


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for lower precision, and any other dtype as it is."""
    return torch.promote_types(dtype, torch.float32)


def restore_digits(module: nn.Module, before: Mapping[str, Tensor]) -> None:
    """Give buffers the digits back that a cast to low precision took.

    They stay on the device that they were moved to.
    """
    for name, buffer in list(module.named_buffers(recurse=False)):
        if buffer.is_floating_point() and buffer.itemsize < 4:
            setattr(module, name, before[name].to(buffer.device))


def warn_caller(message: str) -> None:
    """Warn in the name of the line that called the package, perhaps through torch."""
    inside = str(Path(__file__).parent), str(Path(torch.__file__).parent)
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def in_double(value: Any) -> Tensor:
    """Return numbers in double precision, on the CPU: some devices have none."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", torch.float64)
    return torch.as_tensor(value, dtype=torch.float64, device="cpu")


def standard_normal(
    shape: Sequence[int], like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Draw standard normal numbers with device and dtype of ``like``."""
    if generator is None:  # the compiler takes no such keyword with a symbolic shape
        return torch.randn(*shape, dtype=like.dtype, device=like.device)
    if not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator (={generator!r}) must be a torch.Generator, such as "
            "torch.Generator().manual_seed(0)"
        )
    if generator.device.type != like.device.type:
        raise ValueError(
            f"generator lives on {generator.device} but the model on {like.device}; "
            f"make it with torch.Generator({like.device.type!r})"
        )
    return torch.randn(
        *shape, dtype=like.dtype, device=like.device, generator=generator
    )


def inside_transform() -> bool:
    """Return whether a transform of `torch.func`, such as vmap, is at work."""
    if torch.compiler.is_compiling():  # which would answer for its own transforms
        return False
    # There is no public way.
    return torch._C._functorch.peek_interpreter_stack() is not None


class TensorCheckpoints(nn.Module):
    """Base class of wrappers of models, whose checkpoints hold tensors alone."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return parameters and buffers alone, for ``torch.load(weights_only=True)``.

        A model of neuraloperator also puts the arguments it was built with into its
        own ``state_dict``; they are not needed here.
        """
        state = super().state_dict(*args, **kwargs)
        state.pop("_metadata", None)
        return state

    def save_checkpoint(
        self, save_folder: str | os.PathLike[str], save_name: str
    ) -> None:
        """Write ``<save_name>_state_dict.pt``, as models of neuraloperator do."""
        path = Path(save_folder) / f"{save_name}_state_dict.pt"
        save_tensors_atomically(self.state_dict(), path)

    def load_checkpoint(
        self,
        save_folder: str | os.PathLike[str],
        save_name: str,
        map_location: Any = None,
    ) -> None:
        """Read what `save_checkpoint` wrote. Only tensors are read, no code is run."""
        path = Path(save_folder) / f"{save_name}_state_dict.pt"
        state = torch.load(path, map_location=map_location, weights_only=True)
        self.load_state_dict(state)
