"""Scores of a method with several noises, on fields and on their quantities."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.training.recipes import seed_for
from dinozaur_no import (
    CorrelatedNoise,
    Deterministic,
    LastLayerLaplace,
    Quantity,
    VariationalOperator,
    field_mean,
    metrics,
)

DRAWS = 400  # fields with noise for each quantity
POINTS = "points"  # the values of the field itself, beside the quantities

#: A trained model, from its noise to an operator.
Build = Callable[[Any], Any]
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """Test fields: arguments of the model, target, and functions of the target.

    Arguments are scaled as in training; the target is in units of the data.
    """

    inputs: Mapping[str, Tensor]
    target: Tensor
    functions: Mapping[str, Function]


@dataclass(frozen=True)
class Noise:
    """A noise and how it is fitted."""

    correlated: bool = True
    tempered: bool = False  # samples, if the method has any
    amplitude: bool = False


NOISES = {
    "white": Noise(correlated=False),
    "correlated": Noise(),
    "tempered": Noise(tempered=True),
    "amplitude": Noise(tempered=True, amplitude=True),
}


def noises_of(method: str, amplitudes: Sequence[str]) -> list[str]:
    """Return the noises of a method, given the methods that have an amplitude.

    A method without samples has no temperature.
    """
    return [
        name
        for name, noise in NOISES.items()
        if (name != "tempered" or method != "deterministic")
        and (not noise.amplitude or method in amplitudes)
    ]


def remembering(build: Build, memory: dict[Any, Any]) -> Build:
    """Let all operators of a method share samples of the same input.

    They differ in their noise only. Inputs are known by their place in memory, so the
    memory keeps them.
    """

    def make(noise: Any) -> Any:
        operator = build(noise)
        if not operator._noise_sets_spread:
            compute = operator._chunks

            def chunks(args: Any, kwargs: Any, options: Any) -> Iterator[Any]:
                inputs = (*args, *kwargs.values())
                key = tuple((t.data_ptr(), t.shape) for t in inputs)
                if key not in memory:
                    memory[key] = inputs, list(compute(args, kwargs, options))
                yield from memory[key][1]

            operator._chunks = chunks
        return operator

    return make


def fitted(
    build: Build,
    name: str,
    held_out: Sequence[Any],
    seed: int,
    samples: int,
    **correlated: Any,
) -> Any:
    """Build an operator and fit its noise, as a user would.

    ``correlated`` are options of correlated noise; ``amplitude`` among them is a
    function that makes one.
    """
    noise = NOISES[name]
    make_amplitude = correlated.pop("amplitude", None)
    if noise.amplitude:
        torch.manual_seed(seed_for(seed, "amplitude"))
        correlated["amplitude"] = make_amplitude()
    operator = build(CorrelatedNoise(**correlated) if noise.correlated else None)
    more = _sampling(operator, seed, "noise", samples)
    tempered = noise.tempered and not isinstance(operator, Deterministic)
    operator.fit_noise(held_out, residuals_of="mean", temperature=tempered, **more)
    return operator


def scores(
    operator: Any, batches: Sequence[Batch], normalizer: Any, seed: int, samples: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield scores of the points and of each quantity, by name."""
    options = _sampling(operator, seed, "prediction", samples)
    if isinstance(operator, LastLayerLaplace):
        options["method"] = "samples"
    generator = torch.Generator().manual_seed(seed_for(seed, "draws"))
    fields: list[dict[str, Tensor]] = []
    drawn: dict[str, list[tuple[Tensor, Tensor]]] = {}
    shares = []
    for batch in batches:
        found = operator.predict(**batch.inputs, **options).denormalize(normalizer)
        fields.append(metrics.evaluate(found, batch.target, True, fields=True))
        shares.append(found.epistemic_variance.mean() / found.variance.mean())
        functions = batch.functions
        values = found.quantity(_together(functions), DRAWS, generator).samples
        truth = _together(functions)(batch.target[None])
        sizes = [f(batch.target[None]).flatten(1).shape[1] for f in functions.values()]
        parts = zip(values.split(sizes, 1), truth.split(sizes, 1), strict=True)
        for name, (own, true) in zip(functions, parts, strict=True):
            drawn.setdefault(name, []).append((own, true[0]))
    joined = {k: torch.cat([f[k] for f in fields]).mean().item() for k in fields[0]}
    scale = float("nan")
    if isinstance(operator, VariationalOperator):
        each = [layer.posterior_scale_tril for layer in operator.layers]
        scale = torch.cat(each).square().sum(1).sqrt().mean().item()
    joined |= {
        "share": torch.stack(shares).mean().item(),
        "posterior_scale": scale,
        "temperature": operator.temperature.item(),
    }
    yield POINTS, joined
    for name, pairs in drawn.items():
        quantity = Quantity(torch.cat([own for own, _ in pairs], 1))
        target = torch.cat([true for _, true in pairs])
        gaussian = torch.distributions.Normal(quantity.mean, quantity.std)
        nll = -gaussian.log_prob(target).mean().item()
        yield name, {**metrics.evaluate_quantity(quantity, target), "nll": nll}


def intervals_of_means(
    operator: Any, batch: Batch, normalizer: Any, seed: int
) -> Iterator[tuple[float, float, float]]:
    """Yield ends of the 90 % interval of the mean of each field, and the truth."""
    found = operator.predict(**batch.inputs).denormalize(normalizer)
    generator = torch.Generator().manual_seed(seed_for(seed, "draws"))
    low, high = found.quantity(field_mean, DRAWS, generator).interval(0.9)
    truth = field_mean(batch.target[None])[0]
    yield from zip(*(v.flatten().tolist() for v in (low, high, truth)), strict=True)


def _together(functions: Mapping[str, Function]) -> Function:
    """Return one function of fields with all values, (samples, values)."""

    def values(fields: Tensor) -> Tensor:
        return torch.cat([f(fields).flatten(1) for f in functions.values()], 1)

    return values


def _sampling(operator: Any, seed: int, purpose: str, samples: int) -> dict[str, Any]:
    """Return options of sampling, for methods that have them."""
    if "n_samples" not in operator._options:
        return {}
    generator = torch.Generator().manual_seed(seed_for(seed, purpose))
    return {"n_samples": samples, "generator": generator}
