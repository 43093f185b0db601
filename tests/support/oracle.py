"""The DINOZAUR layer, written slowly and obviously: the oracle of the tests.

Straight from the paper's equations: a full complex FFT, explicit frequencies, the
Fourier series summed by complex exponentials. Nothing here is shared with
``dinozaur_no``; everything is differentiable by autograd. Meant for float64.
"""

from collections.abc import Sequence
from math import pi

import torch
from torch import Tensor


def heat(
    x: Tensor,
    times: Tensor,
    n_modes: Sequence[int],
    extent: float | Sequence[float] = 1.0,
    output_shape: Sequence[int] | None = None,
) -> tuple[Tensor, list[Tensor]]:
    r"""Solve the heat equation on the torus; also give the gradient of the solution.

    .. math::
        v(x) = \sum_k e^{-\tau_c \sum_j (2 \pi k_j / L_j)^2} \hat x_k
               e^{2 \pi i \langle k, x / L \rangle},
        \qquad |k_j| \le K_j = \min(m_j, n_j, n^{out}_j) // 2.

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
        Grid on which the solution is evaluated; that of ``x`` by default.

    Returns
    -------
    v : Tensor
        The solution, ``(b, c, *output_shape)``.
    gradient : list of Tensor
        Its derivative along each axis, each of the shape of ``v``.
    """
    d = len(n_modes)
    grid = x.shape[2:]
    output_shape = grid if output_shape is None else output_shape
    extent = [extent] * d if isinstance(extent, float | int) else extent

    def along(j: int, values: Tensor) -> Tensor:
        return values.reshape([-1] + [1] * (d - 1 - j))

    spectrum = torch.fft.fftn(x, dim=tuple(range(2, d + 2)), norm="forward")
    eigenvalues = torch.zeros((), dtype=x.dtype)
    derivatives, waves = [], []
    for j, (m, n, n_out) in enumerate(zip(n_modes, grid, output_shape, strict=True)):
        limit = min(m // 2, n // 2, n_out // 2)
        k = torch.arange(-limit, limit + 1)

        # On an even grid +n/2 and -n/2 are one bin: half of it each is the cosine.
        share = torch.where(2 * k.abs() == n, 0.5, 1.0).to(x.dtype)
        spectrum = spectrum.index_select(j + 2, k % n) * along(j, share)

        omega = 2 * pi * k.to(x.dtype) / extent[j]
        eigenvalues = eigenvalues + along(j, omega**2)
        nyquist = (2 * k.abs() == n) | (2 * k.abs() == n_out)
        derivatives.append(along(j, 1j * torch.where(nyquist, 0.0, omega)))

        # k i mod n is taken in integers, so the angles are exact to the last bit.
        turns = torch.outer(torch.arange(n_out), k) % n_out
        waves.append(torch.exp(2j * pi * turns.to(x.dtype) / n_out))

    def evaluate(coefficients: Tensor) -> Tensor:
        for j, wave in enumerate(waves):
            summed = torch.tensordot(coefficients, wave, dims=([j + 2], [1]))
            coefficients = summed.movedim(-1, j + 2)
        return coefficients.real

    tau = times.reshape(-1, x.shape[1], *[1] * d)
    diffused = torch.exp(-tau * eigenvalues) * spectrum
    return evaluate(diffused), [evaluate(ik * diffused) for ik in derivatives]


def dinozaur(
    x: Tensor,
    times: Tensor,
    n_modes: Sequence[int],
    extent: float | Sequence[float] = 1.0,
    output_shape: Sequence[int] | None = None,
    gradient_weight: Tensor | None = None,
    mix_weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Evaluate the whole layer: diffusion, gradient features, mixing, bias.

    The first five parameters are those of :func:`heat`; the weights have the shapes
    ``(c, c)``, ``(o, 2 c)`` (``(o, c)`` without gradient features) and ``(o,)``. What
    is ``None`` is left out.

    Returns
    -------
    Tensor
        Field of shape ``(b, o, *output_shape)``.
    """
    y, gradient = heat(x, times, n_modes, extent, output_shape)
    if gradient_weight is not None:
        inner = sum(
            dv * torch.einsum("cr,br...->bc...", gradient_weight, dv) for dv in gradient
        )
        y = torch.cat([y, torch.tanh(inner)], dim=1)
    if mix_weight is not None:
        y = torch.einsum("oc,bc...->bo...", mix_weight, y)
    if bias is not None:
        y = y + bias.reshape(-1, *[1] * len(n_modes))
    return y
