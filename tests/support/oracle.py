"""The DINOZAUR layer, written slowly and obviously: the oracle of the tests.

Straight from the paper's equations: a full complex FFT, explicit frequencies, the
Fourier series summed by complex exponentials. Nothing here is shared with
``dinozaur_no``; everything is differentiable by autograd. Meant for float64.
"""

from collections.abc import Sequence
from math import inf, pi

import torch
from torch import Tensor


def heat(
    x: Tensor,
    times: Tensor,
    n_modes: Sequence[int],
    extent: float | Sequence[float] = 1.0,
    output_shape: Sequence[int] | None = None,
    displacement: Tensor | None = None,
    points: Sequence[int] | None = None,
    band: tuple[float, float] | None = None,
) -> tuple[Tensor, list[Tensor]]:
    r"""Solve the heat equation on the torus; also give the gradient of the solution.

    .. math::
        v(x) = \sum_k e^{-\tau_c \sum_j (2 \pi k_j / L_j)^2} \hat x_k
               e^{2 \pi i \langle k, (x - b_c) / L \rangle},
        \qquad |k_j| \le K_j = \min(m_j, n_j, n^{out}_j) // 2.

    The wave at Nyquist is the mean of both its signs, also when it moves.

    Parameters
    ----------
    x : Tensor
        Field of shape ``(b, c, *grid)``, samples at ``L i / n``.
    times : Tensor
        Diffusion times, ``(c,)`` or ``(b, c)``.
    n_modes : sequence of int
        Number of modes per axis.
    extent : float or sequence of float
        Length of the periodic box, per axis.
    output_shape : sequence of int, optional
        Grid that says, with that of ``x``, which modes exist; that of ``x`` by default.
    displacement : Tensor, optional
        How far each channel moves, ``(c, d)`` or ``(b, c, d)``.
    points : sequence of int, optional
        Grid on which the solution is evaluated; ``output_shape`` by default.
    band : pair of float, optional
        Lengths of the angular frequencies that are kept, from the first up to, without,
        the second; all by default.

    Returns
    -------
    v : Tensor
        The solution, ``(b, c, *points)``.
    gradient : list of Tensor
        Its derivative along each axis, each of the shape of ``v``.
    """
    d = len(n_modes)
    grid = x.shape[2:]
    output_shape = grid if output_shape is None else output_shape
    points = output_shape if points is None else points
    extent = [extent] * d if isinstance(extent, float | int) else extent

    def along(j: int, values: Tensor) -> Tensor:
        return values.reshape([-1] + [1] * (d - 1 - j))

    moved = torch.ones((), dtype=x.dtype)
    spectrum = torch.fft.fftn(x, dim=tuple(range(2, d + 2)), norm="forward")
    eigenvalues = torch.zeros((), dtype=x.dtype)
    derivatives, waves = [], []
    for j, (m, n, n_out) in enumerate(zip(n_modes, grid, output_shape, strict=True)):
        limit = min(m // 2, n // 2, n_out // 2)
        k = torch.arange(-limit, limit + 1)

        # On an even grid +n/2 and -n/2 are one bin: half of it each is the cosine.
        share = torch.where(2 * k.abs() == n, 0.5, 1.0).to(x.dtype)
        spectrum = spectrum.index_select(j + 2, k % n) * along(j, share)

        # What the output grid cannot tell from a cosine is one.
        ends = along(j, 2 * k.abs() == n_out)
        cosine = (spectrum + spectrum.flip(j + 2)) / 2
        spectrum = torch.where(ends, cosine, spectrum)

        omega = 2 * pi * k.to(x.dtype) / extent[j]
        eigenvalues = eigenvalues + along(j, omega**2)
        nyquist = (2 * k.abs() == n) | (2 * k.abs() == n_out)
        derivatives.append(along(j, 1j * torch.where(nyquist, 0.0, omega)))
        if displacement is not None:
            angle = omega * displacement.reshape(-1, x.shape[1], d)[..., j, None]
            phase = torch.where(nyquist, angle.cos() + 0j, torch.exp(-1j * angle))
            moved = moved * phase.reshape(
                *phase.shape[:2], *[1] * j, -1, *[1] * (d - 1 - j)
            )

        # k i mod n is taken in integers, so the angles are exact to the last bit.
        turns = torch.outer(torch.arange(points[j]), k) % points[j]
        waves.append(torch.exp(2j * pi * turns.to(x.dtype) / points[j]))

    def evaluate(coefficients: Tensor) -> Tensor:
        for j, wave in enumerate(waves):
            summed = torch.tensordot(coefficients, wave, dims=([j + 2], [1]))
            coefficients = summed.movedim(-1, j + 2)
        return coefficients.real

    tau = times.reshape(-1, x.shape[1], *[1] * d)
    diffused = torch.exp(-tau * eigenvalues) * moved * spectrum
    if band is not None:
        length = eigenvalues.sqrt() * (1 + 1e-12)
        diffused = diffused * ((band[0] <= length) & (length < band[1]))
    return evaluate(diffused), [evaluate(ik * diffused) for ik in derivatives]


def interpolate(y: Tensor, output_shape: Sequence[int]) -> Tensor:
    """Evaluate the Fourier series of a field on odd numbers of points elsewhere."""
    d = len(output_shape)
    spectrum = torch.fft.fftn(y, dim=tuple(range(2, d + 2)), norm="forward")
    for j, n_out in enumerate(output_shape):
        k = torch.fft.fftfreq(y.shape[j + 2], 1 / y.shape[j + 2], dtype=y.dtype)
        x = torch.arange(n_out, dtype=y.dtype) / n_out
        wave = torch.exp(2j * pi * torch.outer(x, k))
        spectrum = torch.tensordot(spectrum, wave, dims=([j + 2], [1]))
        spectrum = spectrum.movedim(-1, j + 2)
    return spectrum.real


def dinozaur(
    x: Tensor,
    times: Tensor,
    n_modes: Sequence[int],
    extent: float | Sequence[float] = 1.0,
    output_shape: Sequence[int] | None = None,
    gradient_weight: Tensor | None = None,
    mix_weight: Tensor | None = None,
    bias: Tensor | None = None,
    displacement: Tensor | None = None,
    kernels: int = 1,
    feature_grid: str = "output",
    shell_weight: Tensor | None = None,
) -> Tensor:
    """Evaluate the whole layer: diffusion, gradient features, mixing, bias.

    The first five parameters are those of :func:`heat`; the weights have the shapes
    ``(c, c)``, ``(o, columns)`` and ``(o,)``. What is ``None`` is left out. Of several
    kernels times and displacements have the kernel before the channel. What shells add
    to the mixing of the kernels is ``(shells, o, kernels c)``; they are as wide as a
    part of the largest frequency of an axis, and the last one has no upper end.

    Returns
    -------
    Tensor
        Field of shape ``(b, o, *output_shape)``.
    """
    output_shape = x.shape[2:] if output_shape is None else output_shape
    points = tuple(output_shape)
    if feature_grid == "modes" and gradient_weight is not None:
        sizes = zip(n_modes, x.shape[2:], output_shape, strict=True)
        points = tuple(2 * -(-3 * min(n // 2 for n in axis) // 2) + 1 for axis in sizes)
    times = times.reshape(-1, kernels, x.shape[1])

    def kernel(r: int, band: tuple[float, float] | None = None):
        b = displacement
        if b is not None:
            b = b.reshape(-1, kernels, *b.shape[-2:])[:, r]
        return heat(x, times[:, r], n_modes, extent, output_shape, b, points, band)

    fields = [kernel(r)[0] for r in range(kernels)]
    gradient = kernel(0)[1]
    if gradient_weight is not None:
        inner = sum(
            dv * torch.einsum("cr,br...->bc...", gradient_weight, dv) for dv in gradient
        )
        fields.append(torch.tanh(inner))
    y = torch.cat(fields, dim=1)
    if mix_weight is not None:
        y = torch.einsum("oc,bc...->bo...", mix_weight, y)
    if shell_weight is not None:
        lengths = [extent] * len(n_modes) if isinstance(extent, float) else extent
        top = max(2 * pi * (m // 2) / L for m, L in zip(n_modes, lengths, strict=True))
        edges = [top * s / len(shell_weight) for s in range(len(shell_weight))]
        for low, high, own in zip(edges, [*edges[1:], inf], shell_weight, strict=True):
            part = torch.cat([kernel(r, (low, high))[0] for r in range(kernels)], 1)
            y = y + torch.einsum("oc,bc...->bo...", own, part)
    if bias is not None:
        y = y + bias.reshape(-1, *[1] * len(n_modes))
    return y if points == tuple(output_shape) else interpolate(y, output_shape)
