"""Bad input gets an error that names the argument and its value."""

import pickle
import re
from math import inf, nan

import numpy as np
import pytest
import torch
from support.contract import smooth

from dinozaur_no import DiffusionSpectralConv, GradientSpectralConv

CONVS = [DiffusionSpectralConv, GradientSpectralConv]
every_conv = pytest.mark.parametrize("conv", CONVS)


def says(*parts):
    """All parts, in this order, word for word."""
    return ".*".join(re.escape(str(part)) for part in parts)


# Construction


@every_conv
@pytest.mark.parametrize("name", ["in_channels", "out_channels"])
@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (-3, ValueError), (2.0, TypeError)]
)
def test_channels(conv, name, value, error):
    channels = {"in_channels": 2, "out_channels": 2, name: value}
    with pytest.raises(error, match=says(f"{name} (={value})")):
        conv(**channels, n_modes=(4, 4))


@every_conv
@pytest.mark.parametrize(
    ("modes", "shown", "error"),
    [
        ((0, 4), 0, ValueError),
        ((4, -1), -1, ValueError),
        (0, 0, ValueError),
        ((), "()", ValueError),
        ((4.5, 4), 4.5, TypeError),
        (None, None, TypeError),
        ("ab", "'a'", TypeError),
    ],
)
def test_n_modes(conv, modes, shown, error):
    with pytest.raises(error, match=says(f"n_modes (={shown})")):
        conv(2, 2, modes)


@every_conv
@pytest.mark.parametrize(
    ("modes", "shown", "error"),
    [
        ((4,), "(4,)", ValueError),
        ((4, 4, 4), "(4, 4, 4)", ValueError),
        (4, 4, ValueError),
        ((0, 4), 0, ValueError),
        ((4.0, 4), 4.0, TypeError),
    ],
)
def test_setting_n_modes(conv, modes, shown, error):
    layer = conv(2, 2, (4, 4))
    before = list(layer.n_modes)
    with pytest.raises(error, match=says(f"n_modes (={shown})")):
        layer.n_modes = modes
    assert list(layer.n_modes) == before


@every_conv
@pytest.mark.parametrize("array", [np.array, torch.tensor])
def test_n_modes_as_an_array(conv, array):
    kind = type(array([8, 8])).__name__
    expected = says("n_modes (=[8, 8])", f"not a {kind}; use n_modes=[8, 8]")
    with pytest.raises(TypeError, match=expected):
        conv(2, 2, array([8, 8]))
    layer = conv(2, 2, (8, 8))
    layer.n_modes = array([4, 6])
    assert layer.n_modes[0] == 4
    assert conv(2, 2, array([4])).order == conv(2, 2, array(4)).order == 1


@every_conv
def test_exceeding_max_n_modes(conv):
    layer = conv(2, 2, (4, 4), max_n_modes=(4, 6))
    layer.n_modes = (4, 6)
    with pytest.raises(ValueError, match=says("n_modes (=[6, 6])", "max_n_modes (=[4")):
        layer.n_modes = (6, 6)
    with pytest.raises(ValueError, match=says("n_modes (=[8, 4])", "max_n_modes (=[4")):
        conv(2, 2, (8, 4), max_n_modes=(4, 6))


def test_the_maximum_rises_with_the_modes_if_there_is_no_limit():
    layer = DiffusionSpectralConv(2, 2, (8, 4))
    for modes, most in (((6, 6), [8, 6]), ((16, 2), [16, 6]), ((2, 2), [16, 6])):
        layer.n_modes = modes
        assert layer.max_n_modes == most
    layer = DiffusionSpectralConv(2, 2, (4, 4), max_n_modes=(8, 8))
    layer.n_modes = (6, 6)
    assert layer.max_n_modes == [8, 8]


@pytest.mark.parametrize("value", [(4,), (6, 6, 6), 8])
def test_max_n_modes_of_wrong_length(value):
    with pytest.raises(ValueError, match=says(f"max_n_modes (={value})", "2 entries")):
        DiffusionSpectralConv(2, 2, (4, 4), max_n_modes=value)


@every_conv
@pytest.mark.parametrize("value", [0, -1.0, inf, nan, None, (1.0, 0)])
def test_extent_that_is_not_a_length(conv, value):
    with pytest.raises(ValueError, match=says(f"extent (={value}) must be positive")):
        conv(2, 2, (4, 4), extent=value)


@every_conv
@pytest.mark.parametrize("value", ["1e-3", (1, "b")])
def test_extent_that_is_a_string(conv, value):
    expected = says(f"extent (={value!r}) must be", "positive", "string", "1.0e-3")
    with pytest.raises(ValueError, match=expected):
        conv(2, 2, (4, 4), extent=value)


@every_conv
@pytest.mark.parametrize("value", [(1.0,), (1.0, 2.0, 3.0), ()])
def test_extent_of_wrong_length(conv, value):
    with pytest.raises(ValueError, match=says(f"extent (={value})", "2")):
        conv(2, 2, (4, 4), extent=value)


@every_conv
@pytest.mark.parametrize(
    ("value", "expected"),
    [(2, (2.0, 2.0)), ([1, 3], (1.0, 3.0)), (torch.tensor([2.0, 0.5]), (2.0, 0.5))],
)
def test_setting_extent(conv, value, expected):
    layer, x = conv(2, 2, (4, 4)), smooth(1, 2, (8, 7))
    before = layer(x)
    layer.extent = value
    assert layer.extent == expected
    assert not torch.allclose(layer(x), before)
    copied = pickle.loads(pickle.dumps(layer))
    assert copied.extent == expected
    assert torch.equal(copied(x), layer(x))


@every_conv
@pytest.mark.parametrize("value", [0, -1.0, inf, nan, None, (1.0, 0), (1.0,)])
def test_setting_a_bad_extent(conv, value):
    layer = conv(2, 2, (4, 4), extent=3.0)
    with pytest.raises(ValueError, match=says(f"extent (={value}) must be")):
        layer.extent = value
    assert layer.extent == (3.0, 3.0)


@every_conv
def test_extent_of_an_older_pickle(conv):
    """Up to 0.2.0 the attribute was a plain one."""
    layer, x = conv(2, 2, (4, 4), extent=(1.0, 2.0)), smooth(1, 2, (8, 7))
    state = layer.__getstate__()
    state["extent"] = state.pop("_extent")
    older = conv.__new__(conv)
    older.__setstate__(state)
    assert older.extent == (1.0, 2.0)
    assert torch.equal(older(x), layer(x))
    assert "extent" not in vars(older)


@pytest.mark.parametrize("value", [0, -1.0, nan, (1.0,), (1.0, 2.0, 3.0)])
def test_resolution_scaling_factor(value):
    expected = says(f"resolution_scaling_factor (={value})")
    with pytest.raises(ValueError, match=expected):
        DiffusionSpectralConv(2, 2, (4, 4), resolution_scaling_factor=value)


@every_conv
@pytest.mark.parametrize("name", ["feature_grid", "max_n_modes"])
def test_what_cannot_be_set_later(conv, name):
    if (conv, name) != (GradientSpectralConv, "max_n_modes"):  # upstream sets it
        with pytest.raises(AttributeError, match=name):
            setattr(conv(2, 2, (4, 4)), name, "output")


@every_conv
def test_shown_modes_are_those_that_were_given(conv):
    with pytest.raises(ValueError, match=says("n_modes (=[8, 6])")):
        conv(2, 2, (8, 6))(smooth(2, 8, (8,)))


@every_conv
def test_scaling_to_nothing(conv):
    layer = conv(2, 2, (4, 4), resolution_scaling_factor=0.01)
    message = says("resolution_scaling_factor (=(0.01, 0.01))", "(0, 0)", "(=(8, 7))")
    with pytest.raises(ValueError, match=message):
        layer(smooth(1, 2, (8, 7)))


@every_conv
@pytest.mark.parametrize("name", ["axis_method", "feature_grid"])
def test_unknown_choice(conv, name):
    with pytest.raises(ValueError, match=says(f"{name} (='best') must be", "'")):
        conv(2, 2, (4, 4), **{name: "best"})


@pytest.mark.parametrize("name", ["drift", "gradient_features"])
@pytest.mark.parametrize("value", ["no", None, 2])
def test_neither_true_nor_false(name, value):
    expected = says(f"{name} (={value!r}) must be one of False, True")
    with pytest.raises(ValueError, match=expected):
        DiffusionSpectralConv(2, 2, (4, 4), **{name: value})


@every_conv
def test_unknown_keyword(conv):
    with pytest.raises(TypeError, match="n_mode"):
        conv(2, 2, (4, 4), n_mode=3)


# Times


@pytest.mark.parametrize("value", [0, -1e-3, inf, nan, None, (0, 1e-1), (1e-4, inf)])
def test_time_init_that_is_not_a_time(value):
    expected = says(f"time_init (={value}) must be positive and finite")
    with pytest.raises(ValueError, match=expected):
        DiffusionSpectralConv(2, 2, (4, 4), time_init=value)


@pytest.mark.parametrize("value", [(1e-3,), (1e-3, 1e-2, 1e-1), ()])
def test_time_init_of_wrong_length(value):
    with pytest.raises(ValueError, match=says(f"time_init (={value})", "2")):
        DiffusionSpectralConv(4, 4, (4, 4), time_init=value)


@pytest.mark.parametrize(
    "value", [0.0, -1.0, nan, inf, [1e-3, 0.0], [nan, 1e-3], [1e-3, inf]]
)
def test_setting_times_that_are_not_times(value):
    layer = DiffusionSpectralConv(2, 2, (4, 4))
    before = layer.diffusion_time
    expected = says(f"diffusion_time (={value}) must be positive and finite")
    with pytest.raises(ValueError, match=expected):
        layer.diffusion_time = value
    assert torch.equal(layer.diffusion_time, before)


@pytest.mark.parametrize("shape", [(3,), (2, 2), (1, 2), (0,)])
def test_setting_times_of_wrong_shape(shape):
    layer = DiffusionSpectralConv(2, 2, (4, 4))
    with pytest.raises(ValueError, match=says(f"diffusion_time has shape {shape}")):
        layer.diffusion_time = torch.ones(shape)


@pytest.mark.parametrize("value", [1e300, 1e-320])
def test_setting_times_beyond_float32(value):
    """Whatever is accepted stays positive and finite in the layer's own dtype."""
    layer = DiffusionSpectralConv(2, 2, (4, 4))
    try:
        layer.diffusion_time = value
    except ValueError as error:
        assert str(value) in str(error)  # noqa: PT017
    assert (layer.diffusion_time > 0).all()
    assert layer(smooth(1, 2, (8, 7))).isfinite().all()


@pytest.mark.parametrize(
    "shape", [(), (3,), (1,), (1, 2), (3, 2), (2, 3), (4, 1), (4, 2, 1)]
)
def test_times_of_wrong_shape_in_a_call(shape):
    layer = DiffusionSpectralConv(2, 2, (4, 4))
    expected = says(f"diffusion_time has shape {shape}", "(2,)", "(4, 2)")
    with pytest.raises(ValueError, match=expected):
        layer(smooth(4, 2, (8, 7)), diffusion_time=torch.ones(shape))


# Input


@every_conv
@pytest.mark.parametrize(
    "shape", [(2, 8, 7), (2, 2, 8), (2, 2, 8, 7, 6), (2, 3, 8, 7), (2, 0, 8, 7), ()]
)
def test_input_of_wrong_shape(conv, shape):
    layer = conv(2, 2, (4, 4))
    expected = says(f"shape {shape}", "(batch, 2, n1, n2)", "in_channels (=2)")
    with pytest.raises(ValueError, match=expected):
        layer(torch.zeros(shape))


@every_conv
@pytest.mark.parametrize("shape", [(2, 2, 0, 7), (2, 2, 8, 0), (0, 2, 0, 0)])
def test_input_without_points(conv, shape):
    layer = conv(2, 2, (4, 4))
    with pytest.raises(ValueError, match=says(f"{shape}", "axis of length 0")):
        layer(torch.zeros(shape))


@every_conv
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_input_that_is_not_real(conv, dtype):
    layer = conv(2, 2, (4, 4))
    with pytest.raises(TypeError, match=says(f"{dtype}", "float")):
        layer(torch.ones(2, 2, 8, 7).to(dtype))


@every_conv
def test_complex_input_without_complex_data(conv):
    layer = conv(2, 2, (4, 4))
    with pytest.raises(TypeError, match=says("torch.complex64", "complex_data=True")):
        layer(torch.ones(2, 2, 8, 7, dtype=torch.complex64))


@every_conv
@pytest.mark.parametrize("value", [None, [[1.0]], np.ones((2, 2, 8, 7)), 3.0])
def test_input_that_is_not_a_tensor(conv, value):
    layer = conv(2, 2, (4, 4))
    with pytest.raises(TypeError, match=says("Tensor", type(value).__name__)):
        layer(value)


@every_conv
@pytest.mark.parametrize("method", ["forward", "transform"])
@pytest.mark.parametrize("shape", [(4,), (4, 4, 4), (), (0, 4), (4, -1)])
def test_output_shape(conv, method, shape):
    layer = conv(2, 2, (4, 4))
    expected = says(f"output_shape (={shape})", "2", "(=(8, 7))")
    with pytest.raises(ValueError, match=expected):
        getattr(layer, method)(smooth(1, 2, (8, 7)), output_shape=shape)


# configure


@every_conv
@pytest.mark.parametrize("name", ["gradients", "in_channels", "n_modes", "kwargs"])
def test_unknown_option(conv, name):
    expected = says(f"{conv.__name__}.configure", f"'{name}'", "extent")
    with pytest.raises(TypeError, match=expected):
        conv.configure(**{name: 1})


def test_unknown_option_that_is_close_to_another():
    with pytest.raises(TypeError, match="did you mean kernels"):
        DiffusionSpectralConv.configure(kernel=4)


@every_conv
def test_unknown_option_of_a_configured_class(conv):
    with pytest.raises(TypeError, match="'gradients'"):
        conv.configure(extent=2.0).configure(gradients=1)


@every_conv
@pytest.mark.parametrize("value", [{}, {"a": 1}, [1, [{}]], {1, 2}])
def test_option_that_cannot_be_compared(conv, value):
    with pytest.raises(TypeError, match=says("configure", "hashable")):
        conv.configure(decomposition_kwargs=value)


@every_conv
def test_bad_value_of_an_option_is_found_when_it_is_used(conv):
    configured = conv.configure(extent=-1.0)
    with pytest.raises(ValueError, match=says("extent (=-1.0)")):
        configured(2, 2, (4, 4))


def test_errors_come_through_the_builders():
    from neuralop.models import FNO

    conv = DiffusionSpectralConv.configure(extent=(1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match=says("extent (=(1.0, 2.0, 3.0))")):
        FNO((4, 4), 1, 1, 4, conv_module=conv)


@every_conv
@pytest.mark.parametrize(
    "shape", [4, (4.5, 4), (4,), (4, 0), (None, 4), "44", (nan, 4), (inf, 4)]
)
def test_output_shape_of_any_kind(conv, shape):
    with pytest.raises(ValueError, match=says(f"output_shape (={shape})")):
        conv(2, 2, (4, 4))(smooth(1, 2, (8, 8)), output_shape=shape)


@every_conv
def test_output_shape_as_a_tensor(conv):
    layer, x = conv(2, 2, (4, 4)), smooth(1, 2, (8, 8))
    assert layer(x, output_shape=torch.tensor([5, 3])).shape == (1, 2, 5, 3)


@every_conv
def test_extent_as_a_tensor(conv):
    assert conv(2, 2, (4, 4), extent=torch.tensor(2.0)).extent == (2.0, 2.0)
    assert conv(2, 2, (4, 4), extent=np.array(2.0)).extent == (2.0, 2.0)
    assert conv(2, 2, (4, 4), extent=np.array([2.0, 1.0])).extent == (2.0, 1.0)
    with pytest.raises(ValueError, match=says("extent (=-1.0)")):
        conv(2, 2, (4, 4), extent=torch.tensor(-1.0))


def test_time_that_is_not_a_tensor():
    with pytest.raises(TypeError, match=says("diffusion_time (=0.1)")):
        DiffusionSpectralConv(2, 2, (4, 4))(smooth(1, 2, (8, 8)), diffusion_time=0.1)
