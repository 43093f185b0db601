"""What neuraloperator asks of a ``conv_module``, as tests that every class passes.

A class is put under this contract by naming its constructor::

    class TestMyConv(ConvContract):
        conv = MyConv
"""

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from neuralop.layers.base_spectral_conv import BaseSpectralConv
from neuralop.layers.fno_block import FNOBlocks
from neuralop.layers.spectral_convolution import SpectralConv
from torch import Tensor, nn

GRIDS = {1: (9,), 2: (8, 7), 3: (5, 6, 7), 4: (4, 5, 4, 3)}

# What the builders pass besides in_channels, out_channels and n_modes.
LOCAL_NO = {
    "resolution_scaling_factor": [1.0, 1.0],
    "max_n_modes": (6, 6),
    "rank": 0.5,
    "fixed_rank_modes": False,
    "implementation": "factorized",
    "separable": False,
    "factorization": None,
    "decomposition_kwargs": {},
}
FNO_2_0_0 = {**LOCAL_NO, "fno_block_precision": "full", "complex_data": False}
KEYWORDS = {
    "LocalNO": LOCAL_NO,
    "FNOBlocks 2.0.0": FNO_2_0_0,
    "FNOBlocks development": {**FNO_2_0_0, "enforce_hermitian_symmetry": True},
    "nothing to say": {**FNO_2_0_0, "resolution_scaling_factor": None, "rank": 1.0}
    | {"max_n_modes": None},
}


class Recorder(BaseSpectralConv):
    """A conv module that only remembers how it was called."""

    calls: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, in_channels, out_channels, n_modes, **keywords):
        super().__init__()
        self.calls.append(keywords)


def passed_by_installed_fno_blocks() -> dict[str, Any]:
    """Ask the installed neuraloperator what its blocks pass."""
    Recorder.calls.clear()
    FNOBlocks(2, 2, (4, 4), conv_module=Recorder, resolution_scaling_factor=1.5)
    return Recorder.calls[-1]


def smooth(batch: int, channels: int, grid: tuple[int, ...]) -> Tensor:
    """Random fields that need no more than a few modes."""
    x = torch.randn(batch, channels, *grid)
    for dim in range(2, x.ndim):
        x = (x + x.roll(1, dim) + x.roll(-1, dim)) / 3**0.5
    return x


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Compare relative to the largest value; shapes and dtypes too."""
    scale = expected.abs().max().item() if expected.numel() else 1.0
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * scale)


class ConvContract:
    """The contract. A subclass supplies `conv`, and says where it is special."""

    #: Called as ``conv(in_channels, out_channels, n_modes, **keywords)``.
    conv: ClassVar[Callable[..., nn.Module]]
    #: A separable multiplier cannot change the number of channels.
    equal_channels: ClassVar[bool] = False
    #: Built on upstream's ``SpectralConv``, so it can do only what that can.
    upstream: ClassVar[bool] = False

    def make(
        self,
        in_channels: int = 2,
        out_channels: int = 3,
        n_modes: Any = (4, 4),
        **keywords: Any,
    ) -> nn.Module:
        """Build a layer, with a seed of its own: equal arguments, equal layers."""
        if self.equal_channels:
            out_channels = in_channels
        torch.manual_seed(1)
        return type(self).conv(in_channels, out_channels, n_modes, **keywords)

    def accepted(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """Drop what the installed ``SpectralConv`` does not know, if it is the base."""
        if not self.upstream:
            return keywords
        known = inspect.signature(SpectralConv.__init__).parameters
        return {name: value for name, value in keywords.items() if name in known}

    # How builders make it

    @pytest.mark.parametrize("builder", KEYWORDS)
    def test_accepts_what_builders_pass(self, builder):
        layer = self.make(**self.accepted(KEYWORDS[builder]))
        assert isinstance(layer, BaseSpectralConv)
        assert layer(smooth(2, 2, (8, 7))).shape == (2, layer.out_channels, 8, 7)

    def test_accepts_what_the_installed_blocks_pass(self):
        keywords = passed_by_installed_fno_blocks()
        assert keywords.keys() >= FNO_2_0_0.keys()
        layer = self.make(**keywords)
        assert layer(smooth(2, 2, (8, 8))).shape[2:] == (12, 12)

    def test_is_a_class_that_pickles(self):
        conv = type(self.make())
        assert issubclass(conv, BaseSpectralConv)
        assert pickle.loads(pickle.dumps(conv)) is conv

    # Shapes

    @pytest.mark.parametrize(
        ("d", "channels"),
        [(1, (2, 3)), (1, (3, 3)), (2, (3, 2)), (2, (4, 1)), (3, (2, 3)), (4, (2, 3))],
    )
    def test_shape(self, d, channels):
        layer = self.make(*channels, (4,) * d)
        assert (layer.in_channels, layer.order) == (channels[0], d)
        y = layer(smooth(2, channels[0], GRIDS[d]))
        assert y.shape == (2, layer.out_channels, *GRIDS[d])
        assert y.isfinite().all()

    def test_one_axis_may_be_given_as_a_number(self):
        x = smooth(2, 2, (9,))
        assert torch.equal(self.make(n_modes=4)(x), self.make(n_modes=(4,))(x))

    @pytest.mark.parametrize("d", GRIDS)
    def test_output_shape(self, d):
        layer = self.make(n_modes=(4,) * d)
        x = smooth(1, 2, GRIDS[d])
        for shape in ((11, 5, 9, 4)[:d], (3, 12, 4, 5)[:d]):
            y = layer(x, output_shape=shape)
            assert y.shape[2:] == shape
            assert torch.equal(layer(x, output_shape=list(shape)), y)

    @pytest.mark.parametrize(
        ("factor", "expected"),
        [
            (2, (16, 14)),
            (0.5, (4, 4)),
            (1.5, (12, 10)),
            ([1.3, 0.7], (10, 5)),
            ([1.0, 1.0], (8, 7)),
        ],
    )
    def test_resolution_scaling_factor(self, factor, expected):
        layer = self.make(resolution_scaling_factor=factor)
        x = smooth(2, 2, (8, 7))
        assert layer(x).shape[2:] == expected
        assert layer.transform(x).shape == (2, 2, *expected)
        assert layer(x, output_shape=(5, 6)).shape[2:] == (5, 6)
        assert layer.transform(x, output_shape=(5, 6)).shape[2:] == (5, 6)

    def test_finer_output_agrees_on_common_points(self):
        layer = self.make()
        x = smooth(2, 2, (8, 8))
        close(layer(x, output_shape=(16, 24))[:, :, ::2, ::3], layer(x))

    # Skip connections

    @pytest.mark.parametrize("d", GRIDS)
    def test_transform(self, d):
        layer = self.make(n_modes=(4,) * d)
        # A skip connection has its own number of channels.
        x = smooth(2, 5, GRIDS[d])
        assert layer.transform(x) is x
        close(layer.transform(x, output_shape=GRIDS[d]), x)
        finer = tuple(2 * n for n in GRIDS[d])
        assert layer.transform(x, output_shape=finer).shape == (2, 5, *finer)

    def test_transform_of_complex_data(self):
        layer = self.make(complex_data=True)
        x = torch.complex(smooth(2, 2, (8, 7)), smooth(2, 2, (8, 7)))
        y = layer.transform(x, output_shape=(12, 9))
        close(y.real, layer.transform(x.real, output_shape=(12, 9)))
        close(y.imag, layer.transform(x.imag, output_shape=(12, 9)))

    # Modes

    def test_n_modes_can_be_set(self):
        layer = self.make(n_modes=(4, 4), max_n_modes=(6, 6))
        i = torch.arange(8) * (2 * torch.pi / 8)
        low, high = i.cos(), (2 * i).cos()
        x = (low + high)[:, None].expand(1, 2, 8, 8)
        only_low = low[:, None].expand(1, 2, 8, 8)
        before = layer(x)
        assert not torch.allclose(before, layer(only_low), rtol=0, atol=1e-3)
        layer.n_modes = (2, 2)
        close(layer(x), layer(only_low))
        layer.n_modes = [4, 4]
        assert torch.equal(layer(x), before)

    @pytest.mark.parametrize("modes", [(6, 4), (5, 6), (2, 3)])
    def test_n_modes_can_be_read(self, modes):
        layer = self.make(n_modes=(4, 4), max_n_modes=(6, 6))
        layer.n_modes = modes
        *others, last = layer.n_modes
        assert others == [modes[0]]
        # Upstream shows what the real FFT stores of the last axis.
        assert last == (modes[1] // 2 + 1 if self.upstream else modes[1])

    def test_n_modes_can_be_raised_to_the_maximum(self):
        layer = self.make(n_modes=(2, 2), max_n_modes=(6, 6))
        x = torch.randn(1, 2, 9, 9)
        before = layer(x)
        assert layer.max_n_modes[0] == 6
        layer.n_modes = (6, 6)
        assert not torch.allclose(layer(x), before, rtol=0, atol=1e-3)

    def test_without_a_maximum_it_is_the_modes(self):
        layer = self.make(n_modes=(4, 6))
        assert list(layer.max_n_modes) == list(layer.n_modes)

    # State

    def test_state_dict_round_trip(self):
        layer, other = self.make(), self.make()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.copy_(torch.randn_like(parameter))
        x = smooth(2, 2, (8, 7))
        assert not torch.allclose(layer(x), other(x))
        other.load_state_dict(layer.state_dict(), strict=True)
        assert torch.equal(other(x), layer(x))

    def test_state_is_the_parameters(self):
        layer = self.make()
        size = len(pickle.dumps(layer))
        for n in (8, 9, 10):
            layer(smooth(1, 2, (n, n)), output_shape=(n, 7))
        names = {name for name, _ in layer.named_parameters()}
        assert set(layer.state_dict()) == names
        assert not list(layer.buffers())
        assert len(pickle.dumps(layer)) == size

    @pytest.mark.parametrize(
        "copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))]
    )
    def test_copies(self, copied):
        layer = self.make()
        x = smooth(2, 2, (8, 7))
        y = layer(x)
        other = copied(layer)
        assert type(other) is type(layer)
        assert torch.equal(other(x), y)
        other.n_modes = (2, 2)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.fill_(0.3)
        assert not torch.allclose(other(x), y)
        assert torch.equal(layer(x), y)

    def test_repr_shows_the_sizes(self):
        text = self.make(2, 5, (4, 6)).extra_repr()
        out = 2 if self.equal_channels else 5
        assert f"2, {out}" in text
        assert "n_modes=[4, " in text

    # Precision

    def test_float64(self):
        x = smooth(2, 2, (8, 7))
        layer = self.make()
        expected = layer(x)
        y = layer.double()(x.double())
        assert y.dtype == torch.float64
        close(y.float(), expected)

    @pytest.mark.parametrize("inner", [torch.float32, torch.bfloat16])
    def test_autocast(self, inner):
        """Inside autocast a layer meets float32 and bfloat16 inputs."""
        x = smooth(2, 2, (8, 8)).to(inner)
        layer, reference = self.make(), SpectralConv(2, 3, (4, 4))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = layer(x)
            upstream = reference(x).dtype
        assert y.dtype == upstream
        close(y, layer(x.float()))

    # Data

    def test_complex_data(self):
        """Real and imaginary part go through the same layer."""
        layer, real_layer = self.make(complex_data=True), self.make()
        real, imag = smooth(2, 2, (8, 7)), smooth(2, 2, (8, 7))
        y = layer(torch.complex(real, imag))
        assert y.dtype == torch.complex64
        close(y.real, real_layer(real))
        close(y.imag, real_layer(imag))

    def test_complex_data_changes_resolution(self):
        layer = self.make(complex_data=True, resolution_scaling_factor=1.5)
        x = torch.complex(smooth(2, 2, (8, 6)), smooth(2, 2, (8, 6)))
        assert layer(x).shape[2:] == (12, 9)
        assert layer(x, output_shape=(5, 4)).shape[2:] == (5, 4)

    def test_complex_layer_takes_real_input(self):
        layer = self.make(complex_data=True)
        x = smooth(2, 2, (8, 7))
        close(layer(x), layer(x.to(torch.complex64)))

    def test_empty_batch(self):
        layer = self.make()
        x = torch.empty(0, 2, 8, 7, requires_grad=True)
        y = layer(x)
        assert y.shape == (0, layer.out_channels, 8, 7)
        y.sum().backward()
        assert x.grad.shape == x.shape
        for name, parameter in layer.named_parameters():
            if parameter.grad is not None:
                assert not parameter.grad.any(), name

    def test_nan_stays_in_its_item(self):
        layer = self.make()
        x = smooth(3, 2, (8, 7))
        expected = layer(x)
        x[1, :, 4, 2] = torch.nan
        y = layer(x)
        assert y[1].isnan().all()
        assert torch.equal(y[0], expected[0])
        assert torch.equal(y[2], expected[2])

    @pytest.mark.parametrize("d", GRIDS)
    def test_gradients_reach_everything(self, d):
        layer = self.make(n_modes=(4,) * d)
        x = smooth(2, 2, GRIDS[d]).requires_grad_()
        layer(x).square().sum().backward()
        gradients = {name: p.grad for name, p in layer.named_parameters()}
        for name, gradient in (gradients | {"input": x.grad}).items():
            assert gradient is not None, name
            assert gradient.isfinite().all(), name
            assert gradient.any(), name

    @pytest.mark.parametrize(
        "layout",
        [
            lambda x: x.to(memory_format=torch.channels_last),
            lambda x: x.mT.contiguous().mT,
            lambda x: x.repeat_interleave(2, 0)[::2],
            lambda x: nn.functional.pad(x, (1, 2, 3, 4))[:, :, 3:-4, 1:-2],
            lambda x: x.flip(-1).contiguous().flip(-1),
        ],
        ids=["channels_last", "transposed", "strided", "cut out", "flipped"],
    )
    def test_memory_layout_does_not_matter(self, layout):
        layer = self.make()
        results = []
        x = smooth(2, 2, (8, 7))
        for arranged in (x, layout(x)):
            assert torch.equal(arranged, x)
            arranged = arranged.detach().requires_grad_()
            y = layer(arranged)
            results.append((y, *torch.autograd.grad(y.square().sum(), arranged)))
        for actual, expected in zip(*reversed(results), strict=True):
            close(actual, expected)

    def test_expanded_input(self):
        layer = self.make()
        one = smooth(1, 1, (8, 7))
        close(layer(one.expand(3, 2, 8, 7)), layer(one.repeat(3, 2, 1, 1)))

    def test_items_do_not_see_each_other(self):
        layer = self.make()
        x = smooth(4, 2, (8, 7))
        close(layer(x), torch.cat([layer(item[None]) for item in x]))

    def test_repeated_call(self):
        layer = self.make()
        x = smooth(2, 2, (8, 7))
        given = x.clone()
        y = layer(x)
        layer(smooth(1, 2, (6, 9)), output_shape=(5, 5))
        assert torch.equal(layer(x), y)
        assert torch.equal(x, given)
