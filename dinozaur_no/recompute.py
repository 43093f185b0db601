"""`recompute_blocks`: less memory in training, by computing blocks twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from neuralop.layers.channel_mlp import ChannelMLP
from neuralop.layers.fno_block import FNOBlocks
from neuralop.layers.normalization_layers import BatchNorm
from torch import nn
from torch.utils.checkpoint import checkpoint

from ._torch import inside_transform

Context = AbstractContextManager[None]
States = list[tuple[nn.Module, dict[str, Any]]]
Model = TypeVar("Model", bound=nn.Module)

# Attributes of layers that belong to one call: the mode, conditions, posterior samples,
# and the embedding of an adaptive normalisation.
_CALL_STATE = ("training", "_condition", "_noise", "_one_sample", "embedding")


class _Recomputed:
    """A module that keeps its input for the backward pass, and computes the rest."""

    modules: Callable[[], Iterator[nn.Module]]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module as it is, with a checkpoint around it in training."""
        forward = super().forward  # type: ignore[misc]
        compiling = torch.compiler.is_compiling()
        if compiling or inside_transform() or not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        states = [(module, _call_state(module)) for module in self.modules()]

        def contexts() -> tuple[Context, Context]:
            return nullcontext(), _Restored(states)

        return checkpoint(
            forward, *args, use_reentrant=False, context_fn=contexts, **kwargs
        )


class RecomputedFNOBlocks(_Recomputed, FNOBlocks):
    """neuraloperator's blocks, each of them recomputed in the backward pass."""


class RecomputedChannelMLP(_Recomputed, ChannelMLP):
    """neuraloperator's lifting or projection, recomputed in the backward pass."""


_KINDS = {FNOBlocks: RecomputedFNOBlocks, ChannelMLP: RecomputedChannelMLP}


def recompute_blocks(model: Model, enabled: bool = True) -> Model:
    """Recompute the blocks of a model in the backward pass instead of keeping them.

    A training step then keeps the input of each block, of lifting and of projection,
    and nothing inside of them. Outputs, gradients and random numbers are those of the
    plain model, bit by bit. Parameters keep their names, so checkpoints fit both ways.
    Prediction, compiled models and transforms of `torch.func` compute as before.

    Parameters
    ----------
    model : nn.Module
        A model with ``FNOBlocks``, such as `FNO`, `GINO` and `FNOGNO`; changed in
        place.
    enabled : bool, default True
        False takes the recomputation out again.

    Returns
    -------
    nn.Module
        The same model.

    Examples
    --------
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import DiffusionSpectralConv, recompute_blocks
    >>> model = FNO((4, 4), 1, 1, 4, conv_module=DiffusionSpectralConv)
    >>> type(recompute_blocks(model).fno_blocks).__name__
    'RecomputedFNOBlocks'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch Module, got {type(model).__name__}")
    blocks = [m for m in model.modules() if isinstance(m, FNOBlocks)]
    if not blocks:
        raise ValueError(
            f"model ({type(model).__name__}) contains no FNOBlocks; recompute_blocks "
            "is for models such as FNO, GINO and FNOGNO"
        )
    inner = {m for block in blocks for m in block.modules()}
    outer = [m for m in model.modules() if isinstance(m, ChannelMLP) and m not in inner]
    known = {*_KINDS, *_KINDS.values()}
    for module in (*blocks, *outer):
        if type(module) not in known:
            raise ValueError(
                f"model contains a {type(module).__name__}, which is not "
                "neuraloperator's own; wrap it with torch.utils.checkpoint yourself"
            )
    if enabled and any(isinstance(m, BatchNorm) for m in inner):
        raise ValueError(
            "model has norm='batch_norm', which would count every batch twice; use "
            "'instance_norm' or 'group_norm'"
        )
    for module in (*blocks, *outer):
        for plain, recomputed in _KINDS.items():
            if isinstance(module, plain):
                module.__class__ = recomputed if enabled else plain
    return model


def _call_state(module: nn.Module) -> dict[str, Any]:
    """Return what a call of a module depends on besides its input."""
    state = {name: vars(module)[name] for name in _CALL_STATE if name in vars(module)}
    # Also the parameters: `torch.func.functional_call` lends others for a call.
    return {**state, "_parameters": dict(module._parameters)}


class _Restored:
    """Give modules their former states inside; every backward pass enters it again."""

    def __init__(self, states: States) -> None:
        self.states, self.before = states, states[:0]

    def __enter__(self) -> None:
        self.before = [(module, _call_state(module)) for module, _ in self.states]
        _update(self.states)

    def __exit__(self, *error: object) -> None:
        _update(self.before)


def _update(states: States) -> None:
    for module, state in states:
        vars(module).update(state)
