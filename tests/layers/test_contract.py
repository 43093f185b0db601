"""Every conv class of this package passes the contract."""

import pytest
import torch
from neuralop.layers.spectral_convolution import SpectralConv
from support.contract import ConvContract, close, smooth

from dinozaur_no import DiffusionSpectralConv, GradientSpectralConv


class TestDiffusion(ConvContract):
    conv = DiffusionSpectralConv


class TestPlainDiffusion(ConvContract):
    conv = DiffusionSpectralConv.configure(gradient_features=False)

    def test_one_number_per_channel(self):
        layer = self.make(4, 4)
        assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
            "raw_time": (4,),
            "bias": (4,),
        }


class TestConfiguredDiffusion(ConvContract):
    conv = DiffusionSpectralConv.configure(
        extent=3.0, time_init=1e-3, axis_method="fft", bias=False
    )


class TestPaperDiffusion(ConvContract):
    conv = DiffusionSpectralConv.configure(feature_grid="output")


class TestDrift(ConvContract):
    conv = DiffusionSpectralConv.configure(drift=True, gradient_features=False)


class TestTransport(ConvContract):
    conv = DiffusionSpectralConv.configure(kernels=3, drift=True)


class TestShells(ConvContract):
    conv = DiffusionSpectralConv.configure(kernels=2, drift=True, shells=3)


class UpstreamContract(ConvContract):
    """What is different with upstream's spectral weights."""

    upstream = True

    def identity_mixing(self, layer):
        """Switch the gradient features off."""
        o = layer.out_channels
        with torch.no_grad():
            layer.mix_weight.copy_(torch.eye(o, 2 * o))
        return layer

    def upstream_layer(self, layer, **keywords):
        """Build the ``SpectralConv`` with the same spectral weights."""
        reference = SpectralConv(
            layer.in_channels,
            layer.out_channels,
            (4, 4),
            separable=layer.separable,
            factorization=layer.factorization,
            rank=layer.rank,
            implementation=layer.implementation,
            **keywords,
        )
        state = layer.state_dict()
        del state["mix_weight"], state["gradient_weight"]
        reference.load_state_dict(state, strict=True)
        return reference

    def test_without_features_it_is_upstream(self):
        layer = self.identity_mixing(self.make())
        x = torch.randn(2, 2, 8, 8)
        close(layer(x), self.upstream_layer(layer)(x))

    def test_features_add_what_they_should(self):
        """The features enter by the second half of the mixing weights only."""
        layer = self.make()
        x = smooth(2, 2, (8, 8))
        y = layer(x)
        with torch.no_grad():
            layer.mix_weight[:, : layer.out_channels] = 0.0
            features = layer(x)
            layer.gradient_weight.zero_()
            assert not layer(x).any()
        assert features.any()
        assert not torch.allclose(features, y)

    def test_complex_data(self):
        """The spectral weights of complex data are full ones, so nothing is split."""
        layer = self.identity_mixing(self.make(complex_data=True))
        x = torch.randn(2, 2, 8, 8, dtype=torch.complex64)
        y = layer(x)
        assert y.dtype == torch.complex64
        close(y, self.upstream_layer(layer, complex_data=True)(x))

    def test_float64(self):
        """What upstream makes of it, as ``double()`` leaves complex weights alone."""
        x = smooth(1, 2, (8, 8))
        layer = self.make()
        reference = self.upstream_layer(layer).double()
        try:
            dtype = reference(x.double()).dtype
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error)):
                layer.double()(x.double())
        else:
            expected = layer(x).to(dtype)
            close(layer.double()(x.double()), expected)


class TestGradientDense(UpstreamContract):
    conv = GradientSpectralConv

    @pytest.mark.parametrize(
        ("modes", "grid"), [((8,), (16,)), ((8, 8), (16, 16)), ((5, 6), (15, 13))]
    )
    def test_complex_data_with_few_modes(self, modes, grid):
        """Along the last axis upstream takes frequencies from 0 to n_modes - 1."""
        conv = GradientSpectralConv(2, 2, modes, complex_data=True, bias=False)
        layer = self.identity_mixing(conv)
        x = torch.randn(2, 2, *grid, dtype=torch.complex64)
        expected = SpectralConv.forward(layer, x)
        assert torch.allclose(layer(x), expected, atol=1e-5)


def with_weights(**options):
    """A constructor whose options win over what builders pass."""

    def conv(in_channels, out_channels, n_modes, **keywords):
        return GradientSpectralConv(
            in_channels, out_channels, n_modes, **{**keywords, **options}
        )

    return staticmethod(conv)


class TestGradientTucker(UpstreamContract):
    conv = with_weights(factorization="Tucker", rank=0.5)


class TestGradientCP(UpstreamContract):
    conv = with_weights(factorization="CP", rank=0.5, implementation="factorized")


class TestGradientTT(UpstreamContract):
    conv = with_weights(factorization="TT", rank=0.5, implementation="factorized")


class TestGradientSeparable(UpstreamContract):
    conv = with_weights(separable=True)
    equal_channels = True

    def test_needs_equal_channels(self):
        with pytest.raises(ValueError, match="in_channels"):
            GradientSpectralConv(2, 3, (4, 4), separable=True)
