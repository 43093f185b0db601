"""Weights that carry over: the new model is the old one where nothing is new."""

import copy

import pytest
import torch
from neuralop.models import FNO, FNOGNO, GINO
from support.contract import smooth
from support.models import dependent
from torch import nn

from dinozaur_no import (
    DINOZAUR,
    DINOZAURGINO,
    BayesianDiffusionConv,
    ConditionalDiffusionConv,
    CorrelatedNoise,
    Deterministic,
    DiffusionSpectralConv,
    FieldAmplitude,
    GradientSpectralConv,
    VariationalOperator,
    accelerate_gno,
    carry_over,
    condition,
)

KINDS = {
    "features": {},
    "plain": {"gradient_features": False},
    "drift": {"drift": True},
    "kernels": {"kernels": 3, "drift": True},
    "resting kernels": {"kernels": 2},
    "output grid": {"feature_grid": "output"},
    "plain drift": {"gradient_features": False, "drift": True},
}
every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def trained(model, seed=0):
    """Give a model weights as training leaves them: nothing is zero or one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += 0.3 * noise.to(parameter)
    return model.eval()


def make(d, conv=DiffusionSpectralConv, width=6, modes=None, seed=0, **options):
    torch.manual_seed(seed)
    modes = (4, 5, 6)[:d] if modes is None else modes
    options = {"n_layers": 2, **options}
    return FNO(modes, 2, 1, width, conv_module=conv, **options).double()


def flat_and_solid(options=None, axis=2, **of_model):
    """A trained model of two axes, and what it becomes with a third one."""
    conv = DiffusionSpectralConv.configure(**(options or {}))
    flat = trained(make(2, conv, **of_model))
    modes = [4, 5]
    modes.insert(axis, 6)
    solid = make(3, conv, modes=tuple(modes), seed=1, **of_model).eval()
    axes = [i for i in range(3) if i != axis]
    return flat, solid, carry_over(flat, solid, axes=axes)


def same_along(axis, x, points=5):
    """Repeat fields along a new axis."""
    return torch.stack([x] * points, 2 + axis)


def fields():
    return smooth(2, 2, (7, 8)).double()


@every_kind
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_fields_without_the_new_axis_are_mapped_as_before(options, axis):
    flat, solid, _ = flat_and_solid(options, axis)
    x = fields()
    expected = same_along(axis, flat(x))
    torch.testing.assert_close(
        solid(same_along(axis, x)), expected, rtol=1e-11, atol=1e-11
    )
    assert expected.std() > 1e-2


@pytest.mark.parametrize("options", [{}, {"kernels": 2, "drift": True}], ids=str)
def test_shells_are_the_same_with_another_axis(options):
    conv = DiffusionSpectralConv.configure(shells=3, **options)
    flat = trained(make(2, conv, modes=(6, 4)))
    solid = make(3, conv, modes=(6, 4, 6), seed=1).eval()
    carry_over(flat, solid)
    x = fields()
    torch.testing.assert_close(solid(same_along(2, x)), same_along(2, flat(x)))


def test_the_last_shell_is_all_shells_beyond_it():
    """Twice the modes and twice the shells: the same function of old frequencies."""
    conv = DiffusionSpectralConv.configure
    few = trained(make(2, conv(shells=3, gradient_features=False), modes=(6, 6)))
    many = make(2, conv(shells=6, gradient_features=False), modes=(12, 12), seed=1)
    carry_over(few, many.eval())
    weights = [m.fno_blocks.convs[0].shell_weight for m in (few, many)]
    assert torch.equal(weights[1][:3], weights[0])
    assert all(torch.equal(own, weights[0][2]) for own in weights[1][3:])
    for conv in many.fno_blocks.convs:
        conv.n_modes = (6, 6)
    x = fields()
    torch.testing.assert_close(many(x), few(x))


@pytest.mark.parametrize(("shells", "modes"), [(3, 12), (1, 6), (4, 6)])
def test_shells_of_another_width_are_refused(shells, modes):
    conv = DiffusionSpectralConv.configure
    few = make(2, conv(shells=3), modes=(6, 6))
    many = make(2, conv(shells=shells), modes=(modes, modes))
    message = f"build the target with shells={modes // 2}"
    with pytest.raises(ValueError, match=message):
        carry_over(few, many)


def test_the_default_new_axis_is_the_last_one():
    flat, solid = trained(make(2)), make(3, seed=1)
    carry_over(flat, solid)
    x = fields()
    torch.testing.assert_close(solid(same_along(2, x)), same_along(2, flat(x)))


def test_float32_agrees_to_1e6():
    flat, solid, _ = flat_and_solid({"kernels": 2, "drift": True})
    x = fields().float()
    expected = same_along(2, flat.float()(x))
    difference = (solid.float()(same_along(2, x)) - expected).norm() / expected.norm()
    assert difference < 1e-6


OF_MODEL = {
    "instance norm": {"norm": "instance_norm"},
    "group norm": {"norm": "group_norm"},
    "batch norm": {"norm": "batch_norm"},
    "linear skips": {"channel_mlp_skip": "linear"},
    "gates": {"fno_skip": "soft-gating"},
    "identity skips": {"fno_skip": "identity", "channel_mlp_skip": "identity"},
    "no skips": {"fno_skip": None, "channel_mlp_skip": None},
    "no channel MLP": {"use_channel_mlp": False},
    "no coordinates": {"positional_embedding": None},
    "one lifting layer": {"lifting_channel_ratio": 0},
    "preactivation": {"preactivation": True},
    "stabilizer": {"stabilizer": "tanh"},
}


@pytest.mark.parametrize("of_model", OF_MODEL.values(), ids=OF_MODEL)
def test_every_part_of_a_model_carries_over(of_model):
    flat, solid, _ = flat_and_solid(axis=1, **of_model)
    x = fields()
    torch.testing.assert_close(solid(same_along(1, x)), same_along(1, flat(x)))


def test_padding_along_the_shared_axes():
    flat, solid, _ = flat_and_solid(axis=2)
    for model, share in ((flat, [0.3, 0.3]), (solid, [0.3, 0.3, 0])):
        padded = make(len(share), domain_padding=share, modes=(4, 5, 6)[: len(share)])
        model.domain_padding = padded.domain_padding
    x = fields()
    torch.testing.assert_close(solid(same_along(2, x)), same_along(2, flat(x)))


def test_complex_data():
    flat, solid, _ = flat_and_solid(complex_data=True)
    # Upstream computes complex numbers in single precision.
    x = torch.complex(fields(), fields().flip(-1)).to(torch.complex64)
    found, expected = solid.float()(same_along(2, x)), same_along(2, flat.float()(x))
    assert (found - expected).norm() < 1e-5 * expected.norm()


def test_from_one_axis_to_three():
    line, solid = trained(make(1)), make(3, seed=1)
    carry_over(line, solid, axes=[1])
    x = smooth(2, 2, (9,)).double()

    def spread(u):
        return u[:, :, None, :, None].expand(-1, -1, 5, -1, 6)

    torch.testing.assert_close(
        solid.eval()(spread(x).contiguous()), spread(line(x)), rtol=1e-11, atol=1e-11
    )


def test_axes_may_change_their_order():
    options = {"drift": True, "extent": (2.0, 1.0)}
    flat = trained(make(2, DiffusionSpectralConv.configure(**options), modes=(4, 6)))
    options["extent"] = (1.0, 2.0)
    turned = make(2, DiffusionSpectralConv.configure(**options), modes=(6, 4), seed=1)
    carry_over(flat, turned, axes=(1, 0))
    x = fields()
    torch.testing.assert_close(turned.eval()(x.mT.contiguous()), flat(x).mT)


def test_other_modes_change_nothing_that_the_old_ones_carry():
    """One layer, as the nonlinearities of several make new modes."""
    options = {"feature_grid": "output", "drift": True}
    conv = DiffusionSpectralConv.configure(**options)
    coarse = trained(conv(3, 2, (4, 4)).double())
    fine = conv(3, 2, (16, 16)).double()
    carry_over(coarse, fine)
    low = DiffusionSpectralConv(3, 3, (4, 4), gradient_features=False).double()
    x = low(torch.randn(2, 3, 20, 20, dtype=torch.float64)).detach()
    torch.testing.assert_close(fine(x), coarse(x))


# Unit of length


def test_kernels_are_the_same_in_the_unit_of_the_box():
    """A box of twice the length holds two copies of the same fields."""
    options = {"kernels": 2, "drift": True, "feature_grid": "output"}
    short = DiffusionSpectralConv(3, 3, (4, 4), extent=(1.5, 2.0), **options)
    long = DiffusionSpectralConv(3, 3, (8, 4), extent=(3.0, 2.0), **options)
    carry_over(trained(short.double()), long.double())
    x = smooth(2, 3, (8, 7)).double()
    torch.testing.assert_close(long(x.repeat(1, 1, 2, 1)), short(x).repeat(1, 1, 2, 1))
    torch.testing.assert_close(long.displacement, short.displacement)
    torch.testing.assert_close(long.diffusion_time, short.diffusion_time)


# Graph layers

GNO = {
    "gno_radius": 0.4,
    "gno_use_open3d": False,
    "gno_use_torch_scatter": False,
    "gno_embed_channels": 3,
    "fno_hidden_channels": 4,
    "fno_n_layers": 2,
    "fno_conv_module": DiffusionSpectralConv.configure(drift=True),
}


def exact(model):
    """Return a model in double precision, of which upstream's sums are not capable."""
    return accelerate_gno(model).double()


def grid_points(sizes):
    axes = [torch.linspace(0, 1, n + 1, dtype=torch.float64)[:-1] for n in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)


def with_zero(points):
    """Give points a third coordinate, which is 0."""
    return torch.cat([points, torch.zeros_like(points[..., :1])], -1)


@pytest.mark.parametrize("embedding", ["transformer", "nerf", None])
@pytest.mark.parametrize("transform", ["linear", "nonlinear"])
def test_fnogno_is_the_same_on_a_plane(embedding, transform):
    def model(d):
        return FNOGNO(
            2,
            1,
            gno_coord_dim=d,
            fno_n_modes=(4, 4, 4)[:d],
            gno_channel_mlp_hidden_layers=[5],
            gno_pos_embed_type=embedding,
            gno_transform_type=transform,
            **GNO,
        )

    flat, solid = trained(exact(model(2))), exact(model(3))
    report = carry_over(flat, solid)
    assert "gno.integral_transform.channel_mlp.fcs.0.weight" in report.extended
    grid, f = grid_points((6, 6)), torch.randn(6, 6, 2).double()
    points = torch.rand(5, 2).double()
    # One layer of points, so that both find the same neighbours.
    found = solid(with_zero(grid)[:, :, None], with_zero(points), f[:, :, None])
    torch.testing.assert_close(found, flat(grid, points, f))


@pytest.mark.parametrize("transform", ["linear", "nonlinear_kernelonly"])
def test_gino_is_the_same_on_a_plane(transform):
    options = {name: v for name, v in GNO.items() if name != "gno_radius"}

    def model(d):
        return GINO(
            2,
            1,
            gno_coord_dim=d,
            in_gno_radius=0.5,
            out_gno_radius=0.4,
            fno_n_modes=(4, 4, 4)[:d],
            fno_in_channels=2,
            latent_feature_channels=1,
            in_gno_channel_mlp_hidden_layers=[5],
            out_gno_channel_mlp_hidden_layers=[5],
            in_gno_transform_type=transform,
            **options,
        )

    flat, solid = trained(exact(model(2))), exact(model(3))
    carry_over(flat, solid)
    grid, points = grid_points((6, 6))[None], torch.rand(1, 9, 2).double()
    queries, x = torch.rand(1, 5, 2).double(), torch.randn(1, 9, 2).double()
    more = torch.randn(1, 6, 6, 1).double()
    expected = flat(points, grid, queries, x, latent_features=more)
    found = solid(
        *(with_zero(points), with_zero(grid)[:, :, :, None], with_zero(queries), x),
        latent_features=more[:, :, :, None],
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("amplitude", [None, FieldAmplitude(n_modes=4)])
def test_noise_stays_with_its_problem(amplitude):
    """An amplitude has diffusion layers of its own."""
    noise = CorrelatedNoise(amplitude=amplitude)
    source = Deterministic(DINOZAUR((4, 4), 1, 1, 4), noise=noise)
    target = Deterministic(DINOZAUR((8, 8), 1, 1, 4), noise=CorrelatedNoise())
    source.fit_noise([tuple(torch.randn(2, 16, 1, 12, 12))])
    report = carry_over(source, target)
    assert "noise.weights" in report.left_out
    assert "noise.weights" in report.new
    assert not target.noise.fitted
    assert "call fit_noise" in str(report)
    pairs = zip(source.model.parameters(), target.model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_registered_models():
    flat, solid = DINOZAUR((4, 4), 1, 1, 4, drift=True), DINOZAUR((4,) * 3, 1, 1, 4)
    with pytest.raises(ValueError, match=r"drift of 'fno_blocks.convs.0' is True"):
        carry_over(flat, solid)
    options = {k: v for k, v in GNO.items() if k != "fno_conv_module"}
    flat, solid = (
        DINOZAURGINO(1, 1, gno_coord_dim=d, fno_n_modes=(4, 4, 4)[:d], **options)
        for d in (2, 3)
    )
    assert "lifting.fcs.0.weight" in carry_over(flat, solid).extended


# Inputs


def test_new_input_channels_start_at_zero():
    few, many = trained(make(2)), make(2, seed=1)
    more = FNO((4, 5), 4, 1, 6, n_layers=2, conv_module=DiffusionSpectralConv).double()
    assert not carry_over(few, many).extended
    report = carry_over(few, more)
    reason = "zeros for new inputs: input channel 2, input channel 3"
    assert report.extended == {"lifting.fcs.0.weight": reason}
    x = fields()
    torch.testing.assert_close(more(torch.cat([x, torch.randn_like(x)], 1)), few(x))


def test_new_inputs_may_keep_their_weights():
    flat, solid = trained(make(2)), make(3, seed=1)
    before = copy.deepcopy(solid.lifting.fcs[0].weight)
    report = carry_over(flat, solid, axes=(0, 2), new_inputs="keep")
    weight = solid.lifting.fcs[0].weight
    assert torch.equal(weight[:, 3], before[:, 3])
    assert torch.equal(weight[:, [0, 1, 2, 4]], flat.lifting.fcs[0].weight)
    reason = "as built for new inputs: coordinate 1"
    assert report.extended == {"lifting.fcs.0.weight": reason}
    with pytest.raises(ValueError, match=r"new_inputs \(='noise'\) must be one of"):
        carry_over(flat, solid, new_inputs="noise")


def test_a_problem_that_is_symmetric_hides_a_new_coordinate():
    """Zero weights of a coordinate are a saddle point of a symmetric problem."""
    grads = {}
    for start in ("zero", "keep"):
        flat, solid = trained(make(2)), make(3, seed=1)
        carry_over(flat, solid, new_inputs=start)
        x = same_along(2, fields(), 8)
        z = (torch.arange(8).double() + 0.5) / 8
        target = torch.cos(2 * torch.pi * z).expand(2, 1, 7, 8, 8)
        # Upstream's coordinate begins at 0 and ends before 1: centre it.
        solid.positional_embedding.grid_boundaries[2] = [-0.5 + 1 / 16, 0.5 + 1 / 16]
        (solid(x) - target).square().mean().backward()
        weight = solid.lifting.fcs[0].weight
        grads[start] = (weight.grad[:, -1].norm() / weight.grad[:, -2].norm()).item()
    assert grads["zero"] < 1e-6 * grads["keep"]  # coordinates have single precision


def test_coordinates_that_the_target_does_not_see_are_an_error():
    with pytest.raises(ValueError, match=r"has coordinate 0.*positional_embedding"):
        carry_over(make(2), make(3, positional_embedding=None))


def test_new_coordinates_matter_after_training():
    _, solid, _ = flat_and_solid()
    x = same_along(2, fields())
    solid(x).square().mean().backward()
    assert solid.lifting.fcs[0].weight.grad[:, -1].abs().min() > 0


# Posteriors and conditions


def bayesian(d, seed=0, **options):
    conv = BayesianDiffusionConv.configure(drift=True, **options)
    return make(d, conv, width=3, seed=seed, n_layers=1)


def layer_of(model):
    return model.fno_blocks.convs[0]


def indices(order, axes):
    """Places of times and displacements of three channels, with some axes."""
    arrows = torch.arange(3 * order).view(3, order)[:, list(axes)] + 3
    return torch.cat([torch.arange(3), arrows.flatten()])


@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (2, 0)])
def test_posteriors_keep_their_covariance(axes):
    flat, solid = trained(bayesian(2)), bayesian(3, seed=1, scale_init=0.3)
    before = copy.deepcopy(layer_of(solid))
    report = carry_over(flat, solid, axes=axes)
    old, new = layer_of(flat), layer_of(solid)
    places = indices(3, axes)
    torch.testing.assert_close(
        new.posterior_covariance[places][:, places], old.posterior_covariance
    )
    others = [i for i in range(new.posterior_size) if i not in places]
    assert len(others) == 3
    rest = before.posterior_covariance
    torch.testing.assert_close(new.posterior_covariance[others], rest[others])
    # The prior is that of the target.
    torch.testing.assert_close(new.prior_mean, before.prior_mean)
    assert "fno_blocks.convs.0.prior_mean" in report.new
    assert "fno_blocks.convs.0.raw_scale" in report.extended


def test_posterior_as_prior():
    flat, solid = trained(bayesian(2)), bayesian(3, seed=1, displacement_prior=0.7)
    carry_over(flat, solid, posterior_as_prior=True)
    old, new = layer_of(flat), layer_of(solid)
    places = indices(3, (0, 1))
    torch.testing.assert_close(new.prior_mean[places], old._mean())
    deviation = old.posterior_covariance.diagonal().sqrt()
    torch.testing.assert_close(new.prior_scale[places], deviation)
    others = [i for i in range(new.posterior_size) if i not in places]
    assert new.prior_scale[others].tolist() == pytest.approx([0.7] * 3)
    assert not new.prior_mean[others].any()


def test_a_diagonal_posterior_as_prior_has_no_divergence():
    flat = trained(make(2, BayesianDiffusionConv.configure(covariance="diagonal")))
    solid = make(3, BayesianDiffusionConv.configure(covariance="diagonal"))
    carry_over(flat, solid, posterior_as_prior=True)
    assert VariationalOperator(solid).kl_divergence().abs() < 1e-10


def test_deterministic_and_bayesian_layers():
    plain, uncertain = trained(make(2)), make(3, BayesianDiffusionConv, seed=1)
    report = carry_over(plain, uncertain)
    assert "no posterior" in report.new["fno_blocks.convs.0.raw_scale"]
    back = make(3, seed=2)
    report = carry_over(uncertain, back)
    assert "medians" in report.left_out["fno_blocks.convs.0.raw_scale"]
    x = fields()
    torch.testing.assert_close(back.eval()(same_along(2, x)), same_along(2, plain(x)))
    for source, role in ((plain, "source"), (uncertain, "target")):
        with pytest.raises(ValueError, match=f"Bayesian layers, but the {role} has"):
            carry_over(source, back, posterior_as_prior=True)
    diagonal = BayesianDiffusionConv.configure(covariance="diagonal")
    with pytest.raises(ValueError, match="covariance='diagonal'"):
        carry_over(trained(uncertain), make(3, diagonal))


def test_conditions_carry_over():
    conv = ConditionalDiffusionConv.configure(n_conditions=2, drift=True)
    flat = dependent(trained(make(2, conv)))
    solid = dependent(make(3, conv, modes=(5, 6, 4), seed=1))
    carry_over(flat, solid, axes=(2, 0))
    x, z = fields(), torch.randn(2, 2).double()
    with condition(flat, z):
        expected = flat(x).mT[:, :, :, None]
    with condition(solid, z):
        found = solid.eval()(x.mT[:, :, :, None].repeat(1, 1, 1, 5, 1))
    torch.testing.assert_close(found, expected.expand_as(found))
    wanted = r"conv_module=Conditional{}DiffusionConv\.configure\(n_conditions=2\)"
    with pytest.raises(ValueError, match=wanted.format("")):
        carry_over(flat, make(3))
    with pytest.raises(ValueError, match=wanted.format("Bayesian")):
        carry_over(flat, make(3, BayesianDiffusionConv))
    with pytest.raises(ValueError, match=r"the target with n_conditions=2"):
        carry_over(flat, make(3, ConditionalDiffusionConv))
    # A layer without condition becomes one that does not yet depend on it.
    carry_over(trained(make(2)), solid)
    assert not layer_of(solid).time_weight.any()
    assert not layer_of(solid).displacement_weight.any()


# Report, wrappers, checkpoints, errors


def test_report_names_every_tensor_once():
    _, solid, report = flat_and_solid({"drift": True})
    named = [*report.copied, *report.extended, *report.new]
    own = [n for n, v in solid.state_dict().items() if isinstance(v, torch.Tensor)]
    assert sorted(named) == sorted(own)
    assert report.extended["fno_blocks.convs.1.raw_displacement"] == (
        "zeros along new axes: 2"
    )
    assert not report.left_out
    text = str(report)
    assert text.startswith(f"copied: {len(report.copied)} tensors")
    assert "lifting.fcs.0.weight: zeros for new inputs: coordinate 2" in text


class Wrapper(nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, x):
        return self.operator(x)


def test_models_inside_of_other_modules():
    flat, solid = trained(Wrapper(make(2))), Wrapper(make(3, seed=1))
    carry_over(flat, solid)
    x = fields()
    torch.testing.assert_close(solid(same_along(2, x)), same_along(2, flat(x)))
    with pytest.raises(ValueError, match=r"operator.fno.*inside of a wrapper"):
        carry_over(flat, solid.operator)


def test_checkpoints_of_neuraloperator(tmp_path):
    flat = trained(make(2, DiffusionSpectralConv.configure(drift=True)))
    flat.save_checkpoint(tmp_path, "flat")
    solid = make(3, DiffusionSpectralConv.configure(drift=True), seed=1)
    carry_over(FNO.from_checkpoint(tmp_path, "flat"), solid)
    x = fields().float()
    expected = same_along(2, flat.float()(x))
    torch.testing.assert_close(
        solid.float().eval()(same_along(2, x)), expected, rtol=1e-5, atol=1e-5
    )


ERRORS = {
    "width": (
        lambda: make(3, width=8),
        "in_channels of 'fno_blocks.convs.0' is 6 in the source and 8 in the target; "
        r"build the target with hidden_channels=6 \(fno_hidden_channels",
    ),
    "depth": (lambda: make(3, n_layers=3), "2 diffusion layers.*n_layers"),
    "kernels": (
        lambda: make(3, DiffusionSpectralConv.configure(kernels=2)),
        "kernels of 'fno_blocks.convs.0' is 1 in the source and 2 in the target",
    ),
    "features": (
        lambda: make(3, DiffusionSpectralConv.configure(gradient_features=False)),
        "gradient_features=True",
    ),
    "feature grid": (
        lambda: make(3, DiffusionSpectralConv.configure(feature_grid="output")),
        "is modes in the source and output in the target; .* feature_grid='modes'",
    ),
    "projection": (
        lambda: make(3, projection_channel_ratio=3),
        r"'projection.fcs.0.weight' has shape \(12, 6, 1\) in the source and \(18, 6",
    ),
    "lifting": (lambda: make(3, lifting_channel_ratio=3), "'lifting.fcs.0.weight' has"),
    "parts": (lambda: make(3, fno_skip=None), "of the source is not in the target"),
    "more parts": (lambda: make(3, norm="group_norm"), "of the target is not in the"),
    "fewer axes": (lambda: make(1), "target has 1 axes and the source 2"),
    "dense": (lambda: FNO((4, 4, 4), 2, 1, 6), "contains no diffusion layer"),
}


@pytest.mark.parametrize(("build", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_leave_the_target_as_it_was(build, message):
    target = build()
    before = copy.deepcopy(target.state_dict())
    with pytest.raises(ValueError, match=message):
        carry_over(make(2), target)
    for name, value in target.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, before[name])


@pytest.mark.parametrize(
    "axes", [(0,), (0, 3), (1, 1), (-1, 0), 1, (0.0, 1.0), "01", [[0], [1]]]
)
def test_bad_axes_are_named(axes):
    with pytest.raises(ValueError, match=r"axes \(=.*from 0 to 2"):
        carry_over(make(2), make(3), axes=axes)


def test_axes_may_be_an_array():
    flat, solids = trained(make(2)), [make(3, seed=1), make(3, seed=1)]
    for solid, axes in zip(solids, ((2, 0), torch.tensor([2, 0])), strict=True):
        carry_over(flat, solid, axes=axes)
    x = same_along(2, fields())
    assert torch.equal(solids[0](x), solids[1](x))


def test_channels_of_a_single_layer_are_named():
    layers = [DiffusionSpectralConv(n, 2, (4, 4)) for n in (3, 2)]
    with pytest.raises(ValueError, match=r"the layer is 3 .* with in_channels=3"):
        carry_over(*layers)


def test_other_arguments_are_named():
    with pytest.raises(TypeError, match="source must be a torch Module, got dict"):
        carry_over({}, make(2))
    with pytest.raises(ValueError, match=r"the source .FNO. contains no diffusion"):
        carry_over(FNO((4, 4), 1, 1, 4, conv_module=GradientSpectralConv), make(2))
