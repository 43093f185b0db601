"""Peak memory of a process, and memory that a forward pass keeps for the backward."""

import contextlib
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def reset_peak(device: torch.device) -> None:
    """Reset the peak where the system can: on GPUs and on Linux."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        with contextlib.suppress(OSError):  # not allowed in some containers
            _CLEAR.write_text("5")


def peak_megabytes(device: torch.device) -> float:
    """Return the peak in 10^6 bytes, of the GPU or of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return float("nan")
    import resource

    # macOS counts in bytes, others in units of 1024 bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def megabytes_kept_for_backward(
    model: nn.Module, x: Tensor, with_parameters: bool = False
) -> float:
    """Return the memory that one forward pass holds for the backward, in 10^6 bytes.

    Each storage is counted once, however many tensors view it. Parameters exist anyway;
    they are counted on request only.
    """
    parameters = set()
    if not with_parameters:
        parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # keeps the storage, so that no address is used twice

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(x)
    del output  # alive until here, and with it everything it kept
    return sum(kept.values()) / 1e6
