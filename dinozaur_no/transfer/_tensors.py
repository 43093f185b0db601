"""Tensors as bytes, in the format of safetensors: a header in JSON, then the numbers.

Reading it runs nothing. The package of that name reads these files, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16},
    **{"BF16": torch.bfloat16, "C64": torch.complex64, "C128": torch.complex128},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def bytes_of(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a file."""
    header, parts, start = {}, [], 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise TypeError(
                f"{name} has the dtype {tensor.dtype}, which cannot be stored; convert "
                "it, such as with .float()"
            )
        plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        part = plain.flatten().view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, start + len(part)],
        }
        parts.append(part)
        start += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def tensors_of(content: bytes, device: Any = None) -> dict[str, Tensor]:
    """Return the tensors of a file's content, on a device."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    if not isinstance(header, dict):
        raise ValueError("its header is not one of named tensors")
    data = memoryview(content)[end:]  # a slice of bytes would be a copy
    return {name: _tensor(header[name], data, device) for name in header}


def _tensor(entry: Any, data: memoryview, device: Any) -> Tensor:
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    start, end = entry["data_offsets"]
    part = bytearray(data[start:end])
    if math.prod(shape) * dtype.itemsize != len(part) or start < 0:
        raise ValueError(f"{len(part)} bytes are not a {dtype} of shape {shape}")
    flat = torch.frombuffer(part, dtype=dtype) if part else torch.empty(0, dtype=dtype)
    return flat.view(shape).to(device)
