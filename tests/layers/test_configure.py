"""Options that travel in a class."""

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch
from neuralop.layers.base_spectral_conv import BaseSpectralConv
from neuralop.layers.spectral_convolution import SpectralConv
from support.contract import smooth
from support.models import Hot

from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    GradientSpectralConv,
)

CONVS = [DiffusionSpectralConv, BayesianDiffusionConv, GradientSpectralConv, Hot]
every_conv = pytest.mark.parametrize("conv", CONVS)


@every_conv
def test_equal_options_give_the_same_class(conv):
    assert conv.configure(extent=2.0) is conv.configure(extent=2.0)
    assert conv.configure(extent=2.0) is not conv.configure(extent=3.0)


@every_conv
def test_order_of_options_does_not_matter(conv):
    one = conv.configure(extent=2.0, bias=False)
    assert one is conv.configure(bias=False, extent=2.0)


@every_conv
def test_lists_are_tuples(conv):
    assert conv.configure(extent=[1.0, 2.0]) is conv.configure(extent=(1.0, 2.0))


@every_conv
@pytest.mark.parametrize(
    "extent",
    [
        torch.tensor([1.0, 2.0]),
        np.array([1.0, 2.0]),
        [np.float64(1.0), torch.tensor(2.0, requires_grad=True)],
    ],
)
def test_arrays_are_tuples_of_numbers(conv, extent):
    assert conv.configure(extent=extent) is conv.configure(extent=(1.0, 2.0))
    assert conv.configure(extent=extent)._options == {"extent": (1.0, 2.0)}


@pytest.mark.parametrize("wrong", [4.0, True])
def test_a_number_of_another_type_is_another_option(wrong):
    """Whatever was configured before, a layer gets the numbers that were given."""
    conv = DiffusionSpectralConv
    assert conv.configure(kernels=wrong)._options == {"kernels": wrong}
    right = conv.configure(kernels=int(wrong))
    assert right is not conv.configure(kernels=wrong)
    assert type(right._options["kernels"]) is int
    pair = conv.configure(extent=(int(wrong), 2))
    assert pair is not conv.configure(extent=(wrong, 2))
    assert right(2, 2, (4, 4)).kernels == int(wrong)


def test_same_options_of_different_classes():
    classes = {conv.configure(extent=2.0) for conv in CONVS}
    assert len(classes) == len(CONVS)


@every_conv
def test_is_a_subclass(conv):
    configured = conv.configure(extent=2.0)
    assert inspect.isclass(configured)
    assert issubclass(configured, conv)
    assert issubclass(configured, BaseSpectralConv)
    assert issubclass(configured, SpectralConv) == issubclass(conv, SpectralConv)
    assert isinstance(configured(2, 2, (4, 4)), conv)


@every_conv
def test_without_options_it_is_the_class_itself(conv):
    assert conv.configure() is conv
    configured = conv.configure(extent=2.0)
    assert configured.configure() is configured


@every_conv
def test_name(conv):
    configured = conv.configure(extent=[1, 2.0], bias=False)
    name = f"{conv.__name__}(bias=False, extent=(1, 2.0))"
    assert configured.__name__ == configured.__qualname__ == name
    assert configured.__module__ == conv.__module__
    assert repr(configured) == f"<class '{conv.__module__}.{name}'>"
    assert name in repr(configured(2, 2, (4, 4)))


@every_conv
def test_signature_and_documentation_are_kept(conv):
    configured = conv.configure(extent=2.0)
    assert inspect.signature(configured) == inspect.signature(conv)
    assert configured.__doc__ == conv.__doc__
    assert configured.__init__.__doc__ == conv.__init__.__doc__


@every_conv
def test_options_are_defaults(conv):
    configured = conv.configure(extent=2.0, bias=False)
    layer = configured(2, 2, (4, 4))
    assert layer.extent == (2.0, 2.0)
    assert layer.bias is None
    assert conv(2, 2, (4, 4)).extent == (1.0, 1.0)


@every_conv
def test_what_a_builder_passes_wins(conv):
    configured = conv.configure(resolution_scaling_factor=2.0, extent=2.0)
    x = smooth(1, 2, (8, 6))
    assert configured(2, 2, (4, 4))(x).shape[2:] == (16, 12)
    layer = configured(2, 2, (4, 4), resolution_scaling_factor=[1.0, 0.5])
    assert layer(x).shape[2:] == (8, 3)
    assert layer.extent == (2.0, 2.0)


@every_conv
def test_same_layer_as_with_keywords(conv):
    options = {"extent": (2.0, 3.0), "bias": False}
    layers = []
    for make in (conv.configure(**options), conv):
        torch.manual_seed(3)
        keywords = options if make is conv else {}
        layers.append(make(2, 3, (4, 4), **keywords).eval())
    x = smooth(1, 2, (8, 7))
    assert torch.equal(layers[0](x), layers[1](x))


@every_conv
def test_configuring_again_merges(conv):
    first = conv.configure(extent=2.0, bias=False)
    again = first.configure(extent=3.0)
    assert again is conv.configure(extent=3.0, bias=False)
    assert issubclass(again, conv)
    layer = again(2, 2, (4, 4))
    assert layer.extent == (3.0, 3.0)
    assert layer.bias is None
    assert first(2, 2, (4, 4)).extent == (2.0, 2.0)


@every_conv
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(conv, protocol):
    configured = conv.configure(extent=(1.0, 2.0))
    for cls in (conv, configured):
        assert pickle.loads(pickle.dumps(cls, protocol)) is cls
    layer = configured(2, 2, (4, 4)).eval()
    restored = pickle.loads(pickle.dumps(layer, protocol))
    assert type(restored) is configured
    x = smooth(1, 2, (8, 7))
    assert torch.equal(restored(x), layer(x))


@every_conv
def test_copies(conv):
    configured = conv.configure(extent=(1.0, 2.0))
    assert copy.deepcopy(configured) is configured
    assert copy.copy(configured) is configured
    assert copy.deepcopy({"conv_module": configured})["conv_module"] is configured
    layer = configured(2, 2, (4, 4))
    assert type(copy.deepcopy(layer)) is configured


def test_torch_save(tmp_path):
    layer = DiffusionSpectralConv.configure(extent=2.0)(2, 2, (4, 4))
    torch.save(layer, tmp_path / "layer.pt")
    restored = torch.load(tmp_path / "layer.pt", weights_only=False)
    assert type(restored) is type(layer)
    torch.save(layer.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    layer.load_state_dict(state, strict=True)


RESTORE = """
import pickle, sys, torch
with open(sys.argv[1], "rb") as file:
    classes, layers, x, expected = pickle.load(file)
for cls, layer, y in zip(classes, layers, expected, strict=True):
    assert type(layer) is cls
    assert cls is cls.__mro__[1].configure(extent=(1.0, 2.0))
    torch.testing.assert_close(layer(x), y)
    print(cls.__name__)
"""


def test_pickle_in_a_new_process(tmp_path, run_python):
    convs = [DiffusionSpectralConv, GradientSpectralConv, Hot]
    classes = [conv.configure(extent=[1.0, 2.0]) for conv in convs]
    layers = [cls(2, 2, (4, 4)) for cls in classes]
    x = smooth(1, 2, (8, 7))
    expected = [layer(x).detach() for layer in layers]
    file = tmp_path / "classes.pickle"
    file.write_bytes(pickle.dumps((classes, layers, x, expected)))
    printed = run_python(RESTORE, file)
    assert printed.splitlines() == [cls.__name__ for cls in classes]


def test_options_of_a_subclass():
    configured = Hot.configure(warmth=2.0, extent=3.0)
    layer = configured(2, 2, (4, 4))
    assert (layer.warmth, layer.extent) == (2.0, (3.0, 3.0))
    torch.manual_seed(0)
    hot = configured(2, 2, (4, 4))
    torch.manual_seed(0)
    cold = DiffusionSpectralConv(2, 2, (4, 4), extent=3.0)
    x = smooth(1, 2, (8, 7))
    assert torch.equal(hot(x), 2.0 * cold(x))
    with pytest.raises(TypeError, match="'warmth'"):
        DiffusionSpectralConv.configure(warmth=2.0)


def test_subclass_of_a_configured_class():
    class Mine(DiffusionSpectralConv.configure(extent=2.0)):
        pass

    assert Mine(2, 2, (4, 4)).extent == (2.0, 2.0)
    configured = Mine.configure(bias=False)
    assert issubclass(configured, Mine)
    layer = configured(2, 2, (4, 4))
    assert (layer.extent, layer.bias) == ((2.0, 2.0), None)
