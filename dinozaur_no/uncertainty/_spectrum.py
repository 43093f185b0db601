"""`Spectrum`: Gaussian fields with heat-kernel covariance, on grids and on points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from .._torch import (
    at_least_single,
    exact_dtype,
    standard_normal,
    without_autocast,
)
from ._cosine_basis import (
    Layout,
    analyse,
    averaged_squares,
    functions_at,
    layout_of,
    smoothest,
    synthesise,
    wavenumbers,
)


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""Variances of the cosine coefficients of noise, and of its independent part.

    A coefficient of eigenvalue :math:`\lambda > 0` has the variance
    :math:`S(\lambda) = \sum_j a_j e^{-2 \lambda t_j}`, and that of constants
    :math:`S(0) = a_0`; see `decays`. The number of functions is fixed, so that the
    noise is the same field on any grid. An amplitude d(x) makes the variance the same
    at all points.

    Parameters
    ----------
    weights : Tensor
        :math:`a_j` (channels, times).
    times : Tensor
        :math:`t_j` (times,), with the longest side of the box as the unit of length.
    white : Tensor
        Variance of the independent part (channels,).
    modes : Tensor
        Number of functions along each axis of a grid; for points one number, of all
        functions.
    box : Tensor
        Lower and upper corner of the box of points (2, d); (0, d) for grids.
    """

    weights: Tensor
    times: Tensor
    white: Tensor
    modes: Tensor
    box: Tensor

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.white.device

    @property
    def on_points(self) -> bool:
        """Whether fields need positions."""
        return len(self.box) > 0

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to(self, *args: Any, **kwargs: Any) -> Spectrum:
        """Move to another device or dtype, as ``Tensor.to`` does."""
        moved = {k: v.to(*args, **kwargs) for k, v in self.tensors().items()}
        return replace(self, **{**moved, "modes": self.modes.to(moved["box"].device)})

    def layout(self, shape: Sequence[int], where: Tensor | None) -> Layout:
        """Find the axes of fields, or raise an error if they do not fit."""
        if self.on_points and where is None:
            raise ValueError(
                f"the noise was fitted on positions, so fields of shape {tuple(shape)} "
                "need where, the positions of their points"
            )
        if not self.on_points and where is not None:
            raise ValueError(
                "the noise was fitted on a grid without positions, so where cannot be "
                "used; omit it, or fit again with positions"
            )
        found = layout_of(shape, where)
        d = self.box.shape[1]
        n = len(found.places) if where is None else where.shape[-1]
        if found.channels != len(self.white) or n != d:
            raise ValueError(
                f"fields of shape {tuple(shape)} have {found.channels} channels in {n} "
                f"dimensions, but the noise was fitted for {len(self.white)} channels "
                f"in {d} dimensions"
            )
        return found

    @without_autocast
    def sample(
        self,
        n: int,
        shape: Sequence[int],
        where: Tensor | None,
        like: Tensor,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Sample n times fields of this shape, (n, *shape), like a tensor."""
        layout = self.layout(shape, where)
        own = self.to(device=like.device, dtype=like.dtype)
        b, c = layout.batch, layout.channels
        if where is None:
            modes = own.modes.tolist()
            smooth = standard_normal((n * b, c, *modes), like, generator)
            found = synthesise(smooth * own._on_grid().sqrt(), layout.places)
        else:
            z = standard_normal((n, b, c, int(own.modes)), like, generator)
            found = torch.cat(
                [
                    (part * s.sqrt()) @ phi.mT
                    for part, (phi, s) in zip(
                        z.split(b // layout.clouds, 1), own._clouds(where, layout)
                    )
                ],
                1,
            )
        found = found.reshape(n, b, c, -1)
        white = standard_normal(found.shape, like, generator)
        found = torch.addcmul(found, white, own.white.sqrt()[:, None])
        found = found * own._amplitude(layout, where)
        return layout.restored(found.reshape(n, b, c, *layout.places))

    @without_autocast
    def variance(
        self, shape: Sequence[int], where: Tensor | None, like: Tensor
    ) -> Tensor:
        """Return the variance at each point, of this shape; it is that of the channel.

        It is the average over the box of the variance before amplitudes.
        """
        layout = self.layout(shape, where)
        own = self.to(device=like.device, dtype=like.dtype)
        full = own.level(layout.places).view(-1, *(1,) * len(layout.places))
        whole = full.expand(1, layout.batch, layout.channels, *layout.places)
        return layout.restored(whole)[0]

    @without_autocast
    def amplitude(
        self, shape: Sequence[int], where: Tensor | None, like: Tensor
    ) -> Tensor:
        """Compute d(x) of fields of this shape, which makes the variance uniform."""
        layout = self.layout(shape, where)
        own = self.to(device=like.device, dtype=like.dtype)
        found = own._amplitude(layout, where).expand(layout.batch, -1, -1)
        whole = found.reshape(1, layout.batch, layout.channels, *layout.places)
        return layout.restored(whole)[0]

    def _amplitude(self, layout: Layout, where: Tensor | None) -> Tensor:
        """Compute d(x), (clouds, channels, points)."""
        if where is None:
            found = averaged_squares(self._on_grid(), layout.places)[None]
        else:
            clouds = self._clouds(where, layout)
            found = torch.stack([s @ phi.square().mT for phi, s in clouds])
        local = found.flatten(2) + self.white[:, None]
        return (self.level(layout.places)[:, None] / local).sqrt()

    def level(self, grid: Sequence[int] = ()) -> Tensor:
        """Return the variance of each channel; that on grids depends on the grid."""
        if self.on_points:
            _, eigenvalues = smoothest(self.box[1] - self.box[0], int(self.modes))
            found = self.at(eigenvalues.to(self.box.device))
        else:
            found = self._resized(grid)
        return found.flatten(1).sum(1) + self.white

    @without_autocast
    def log_likelihood(self, residuals: Tensor, where: Tensor | None) -> Tensor:
        """Compute the log-likelihood of each field, (b,); differentiable in them."""
        layout = self.layout(residuals.shape, where)
        dtype = residuals.dtype
        if where is not None:  # where functions are nearly the same on all points
            residuals = residuals.to(exact_dtype(residuals.device))
        own = self.to(device=residuals.device, dtype=residuals.dtype)
        b, points = layout.batch, layout.n_points
        amplitude = own._amplitude(layout, where)
        first = layout.channels_first(residuals)
        first = (first.flatten(2) / amplitude).reshape(first.shape)
        if where is None:
            coefficients = analyse(first) * math.sqrt(points)
            variance = points * own._resized(layout.places)
            variance = variance + own.white.view(-1, *(1,) * len(layout.places))
            squares = coefficients.square() / variance
            log_det = variance.log().sum()
            quadratic = squares.flatten(1).sum(1)
        else:
            rows = first.flatten(2).split(b // layout.clouds)
            clouds = own._clouds(where, layout)
            found = [own._woodbury(r, *cloud) for r, cloud in zip(rows, clouds)]
            quadratic, log_det = (torch.cat(parts) for parts in zip(*found))
        constant = points * layout.channels * math.log(2 * math.pi)
        log_det = log_det + 2 * amplitude.log().sum((1, 2)).repeat_interleave(
            b // layout.clouds
        )
        return (-0.5 * (quadratic + log_det + constant)).to(dtype)

    def _woodbury(
        self, rows: Tensor, phi: Tensor, spectrum: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return squares of whitened fields (b, c, points), and log-determinants."""
        quadratic, log_det = rows.new_zeros(len(rows)), rows.new_zeros(())
        for channel, white in enumerate(self.white):
            factor = phi * (spectrum[channel] / white).sqrt()
            inner = factor.mT @ factor
            inner.diagonal().add_(1)
            chol = torch.linalg.cholesky(inner)
            r = rows[:, channel]
            z = torch.cholesky_solve((r @ factor).mT, chol).mT
            # A sum of squares, where a difference would lose digits.
            rest = (r - z @ factor.mT).square().sum(1) + z.square().sum(1)
            quadratic = quadratic + rest / white
            log_det = log_det + 2 * chol.diagonal().log().sum()
            log_det = log_det + len(phi) * white.log()
        return quadratic, log_det.expand(len(rows))

    def at(self, eigenvalues: Tensor) -> Tensor:
        """Compute S (channels, *shape) at eigenvalues of some shape."""
        decay = decays(eigenvalues.flatten().to(self.times), self.times)
        return (self.weights @ decay.mT).view(-1, *eigenvalues.shape)

    def _on_grid(self) -> Tensor:
        k2 = wavenumbers(self.modes.tolist(), self.modes.device)
        return self.at(math.pi**2 * k2)

    def _resized(self, grid: Sequence[int]) -> Tensor:
        """Return S of all functions of a grid, 0 of those that the noise lacks."""
        full = self._on_grid()
        for axis, n in enumerate(grid, start=1):
            full = full.narrow(axis, 0, min(n, full.shape[axis]))
        pad = [(0, n - m) for n, m in zip(grid, full.shape[1:])]
        return torch.nn.functional.pad(full, [p for pair in pad[::-1] for p in pair])

    def _clouds(self, where: Tensor, layout: Layout) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield functions (points, functions) and S (channels, functions)."""
        # Differences of positions that lie far from zero need their digits.
        lower, upper = self.box.to(exact_dtype(self.device))
        k, eigenvalues = smoothest(upper - lower, int(self.modes))
        k, spectrum = k.to(lower.device), self.at(eigenvalues.to(lower.device))
        clouds = where.to(lower).reshape(layout.clouds, layout.n_points, -1)
        for cloud in clouds:
            relative, sides = (cloud - lower).to(self.box), (upper - lower).to(self.box)
            yield functions_at(relative, torch.zeros_like(sides), sides, k), spectrum


def decays(eigenvalues: Tensor, times: Tensor) -> Tensor:
    """Compute exp(-2 lambda t), (eigenvalues, times), but for constants.

    Constants have a variance of their own, the weight of the first time, which is so
    long that all other functions have none of it. Errors without a mean, as on a box
    whose mean is conserved, would otherwise have one that is as likely as long waves.
    """
    constant = torch.zeros_like(times)
    constant[0] = 1
    decay = torch.exp(-2 * eigenvalues[:, None] * times)
    return torch.where(eigenvalues[:, None] == 0, constant, decay)


@dataclass(frozen=True, eq=False)
class FieldNoise:
    """Correlated noise of one prediction: what is needed to sample it.

    Parameters
    ----------
    spectrum : Spectrum
        Variances of the coefficients.
    shape : tuple of int
        Shape of the whole prediction.
    where : Tensor, optional
        Positions of its points.
    scale : Tensor, optional
        Factor of the noise at each point of the part, by default 1.
    part : Tensor, optional
        Numbers of the points of the whole that belong to the part, by default all.
    """

    spectrum: Spectrum
    shape: tuple[int, ...]
    where: Tensor | None = None
    scale: Tensor | None = None
    part: Tensor | None = None

    def sample(self, n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """Sample the noise of the part n times, like a tensor."""
        exact = like.new_empty(0, dtype=at_least_single(like.dtype))
        found = self.spectrum.sample(n, self.shape, self.where, exact, generator)
        if self.part is not None:
            found = found.flatten(1)[:, self.part]
        found = found if self.scale is None else found * self.scale.to(found)
        return found.to(like.dtype)

    def scaled(self, factor: Tensor | float) -> FieldNoise:
        """Multiply the noise by a factor, a number or one for each point."""
        factor = torch.as_tensor(factor)
        scale = factor if self.scale is None else self.scale * factor.to(self.scale)
        return replace(self, scale=scale)

    def select(self, numbers: Tensor, index: Any) -> FieldNoise:
        """Select a part; ``numbers`` counts the points of the current one."""
        part = (numbers if self.part is None else self.part)[index]
        scale = self.scale
        if scale is not None:
            scale = scale.to(numbers.device).expand(numbers.shape)[index]
        return replace(self, scale=scale, part=part)._of_fewer_items()

    def _of_fewer_items(self) -> FieldNoise:
        """Leave out the items of the batch that the part has nothing of."""
        part = self.part
        # A prediction (points, channels) is one item.
        if part is None or not part.numel() or len(self.shape) < 3:
            return self
        size = math.prod(self.shape[1:])
        items, rank = torch.unique(part // size, return_inverse=True)
        where = self.where
        if where is not None and layout_of(self.shape, where).clouds > 1:
            where = where[items.to(where.device)]
        part = rank * size + part % size
        return replace(
            self, shape=(len(items), *self.shape[1:]), where=where, part=part
        )

    def to(self, device: torch.device) -> FieldNoise:
        """Move to another device; samples have the dtype that they are asked for."""
        return FieldNoise.taken({k: v.to(device) for k, v in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return everything as tensors, by names that begin with ``noise.``."""
        others = dict(where=self.where, scale=self.scale, part=self.part)
        found = {name: t for name, t in others.items() if t is not None}
        found |= {**self.spectrum.tensors(), "shape": torch.tensor(self.shape)}
        return {f"noise.{name}": tensor for name, tensor in found.items()}

    @classmethod
    def taken(cls, tensors: dict[str, Tensor]) -> FieldNoise:
        """Take what `tensors` returned out of a dict, and construct from it."""
        names = [name for name in tensors if name.startswith("noise.")]
        own = {name.removeprefix("noise."): tensors.pop(name) for name in names}
        spectrum = Spectrum(**{f.name: own.pop(f.name) for f in fields(Spectrum)})
        shape = tuple(int(n) for n in own.pop("shape"))
        return cls(spectrum, shape, **own)
