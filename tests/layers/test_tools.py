"""The layer under torch's own tools: compilers, exporters, transforms, processes."""

import copy

import pytest
import torch
import torch.multiprocessing
from neuralop.models import FNO
from support.contract import close, smooth
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    GradientSpectralConv,
)

PLAIN = DiffusionSpectralConv.configure(gradient_features=False)
TRANSPORT = DiffusionSpectralConv.configure(kernels=3, drift=True)
SHELLS = DiffusionSpectralConv.configure(shells=3)
KINDS = [DiffusionSpectralConv, PLAIN, TRANSPORT, SHELLS]
OURS = pytest.mark.parametrize("conv", KINDS)
ALL = pytest.mark.parametrize("conv", [*KINDS, GradientSpectralConv])


def small_fno(conv=DiffusionSpectralConv, **options):
    options = {"n_layers": 2, "lifting_channel_ratio": 1, **options}
    return FNO((4, 4), 2, 1, 3, conv_module=conv, **options)


def results(module, x, function=None):
    """Output, and the gradients of its square by input and parameters."""
    x = x.detach().clone().requires_grad_()
    module.zero_grad()
    y = (module if function is None else function)(x)
    y.abs().square().sum().backward()
    gradients = {name: p.grad.clone() for name, p in module.named_parameters()}
    return {"output": y.detach(), "input": x.grad, **gradients}


def same(actual, expected, tolerance=1e-5):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert value.any(), f"nothing to compare in {name}"
        close(actual[name], value, tolerance)


# Compilers


@pytest.fixture
def dynamo():
    """A compiler that remembers nothing of other tests."""
    torch.compiler.reset()
    yield torch.compile
    torch.compiler.reset()


def test_compile(dynamo):
    """The default compiler, down to machine code; with everything a layer can do."""
    layer = TRANSPORT(2, 3, (4, 4), kernels=2, shells=2)
    x = smooth(2, 2, (8, 7))
    same(results(layer, x, dynamo(layer, fullgraph=True)), results(layer, x))


@pytest.mark.parametrize(
    ("conv", "dtype"),
    [
        (DiffusionSpectralConv, torch.float64),
        (PLAIN, torch.float32),
        (TRANSPORT, torch.float32),
        (SHELLS, torch.float32),
    ],
)
def test_captured_graph(conv, dtype, dynamo):
    """What every compiler is given: one graph, forward and backward, per grid."""
    layer = conv(2, 3, (4,)).to(dtype)
    compiled = dynamo(layer, fullgraph=True, dynamic=False, backend="aot_eager")
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for n in (9, 20):
        x = smooth(2, 2, (n,)).to(dtype)
        same(results(layer, x, compiled), results(layer, x), tolerance)


@OURS
def test_captured_graph_with_a_default_device(conv, dynamo):
    layer = conv(2, 3, (4,))
    x = smooth(2, 2, (9,))
    with torch.device("cpu"):
        compiled = dynamo(layer, fullgraph=True, backend="aot_eager")
        same(results(layer, x, compiled), results(layer, x))


@pytest.mark.parametrize("dynamic", [None, True])
def test_captured_samples_per_item_of_a_smaller_last_batch(dynamic, dynamo):
    layer = BayesianDiffusionConv(2, 2, (4,), sample_per="item")
    compiled = dynamo(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for n in (4, 3):
        assert compiled(torch.randn(n, 2, 9)).shape == (n, 2, 9)


def test_captured_graph_with_times_per_item(dynamo):
    layer = DiffusionSpectralConv(2, 2, (4,))
    compiled = dynamo(layer, fullgraph=True, dynamic=True, backend="eager")
    for n in (2, 3):
        x, times = torch.randn(n, 2, 9), 0.01 * torch.rand(n, 2)
        close(compiled(x, diffusion_time=times), layer(x, diffusion_time=times))


@OURS
def test_captured_empty_batch(conv, dynamo):
    layer = conv(2, 3, (4,), axis_method="fft")
    compiled = dynamo(layer, dynamic=False, backend="aot_eager")
    assert compiled(torch.randn(0, 2, 9)).shape == (0, 3, 9)


@OURS
@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_traced_before_the_first_call(conv):
    layer = conv(2, 3, (4,)).eval()
    traced = torch.jit.trace(layer, (smooth(2, 2, (9,)),))
    x = smooth(2, 2, (9,))
    close(traced(x), layer(x))


def test_compiled_layer_follows_its_parameters_and_modes(dynamo):
    layer = PLAIN(2, 2, (2,), drift=True)
    compiled = dynamo(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 2, 9)
    close(compiled(x), layer(x))
    layer.diffusion_time = 1e-5
    close(compiled(x), layer(x))
    layer.displacement = 0.3
    close(compiled(x), layer(x))
    layer.n_modes = (8,)
    close(compiled(x), layer(x))


def test_compiled_fno(dynamo):
    model = small_fno(n_layers=1)
    x = smooth(2, 2, (8, 7))
    compiled = dynamo(model, fullgraph=True, backend="aot_eager")
    same(results(model, x, compiled), results(model, x))


@ALL
def test_export(conv):
    layer = conv(2, 3, (4, 4)).eval()
    x = smooth(2, 2, (8, 7))
    expected = copy.deepcopy(layer)(x)
    program = torch.export.export(layer, (x,))
    close(program.module()(x), expected)
    assert torch.equal(layer(x), expected)


@OURS
def test_export_for_any_batch(conv):
    layer = conv(2, 3, (4, 4)).eval()
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        layer, (smooth(2, 2, (8, 7)),), dynamic_shapes=({0: batch},)
    )
    x = smooth(5, 2, (8, 7))
    close(program.module()(x), layer(x))


@pytest.mark.parametrize("whole_model", [False, True], ids=["layer", "FNO"])
def test_onnx(whole_model, tmp_path):
    pytest.importorskip("onnxscript", reason="torch exports to ONNX with onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    module = small_fno(n_layers=1) if whole_model else TRANSPORT(2, 3, (4, 4))
    module.eval()
    x = smooth(2, 2, (8, 7))
    program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    program.save(tmp_path / "module.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "module.onnx")
    (name,) = (node.name for node in session.get_inputs())
    (y,) = session.run(None, {name: x.numpy()})
    close(torch.from_numpy(y), module(x).detach(), 1e-4)


# Function transforms


@OURS
@pytest.mark.parametrize("grid", [(9,), (8, 7), (20, 22)])
def test_vmap_over_the_batch(conv, grid):
    layer = conv(2, 3, (4,) * len(grid))
    x = smooth(4, 2, grid)
    y = vmap(lambda item: layer(item[None])[0])(x)
    close(y, layer(x))


@OURS
@pytest.mark.parametrize("in_dims", [1, 2])
def test_vmap_over_another_axis(conv, in_dims):
    layer = conv(2, 3, (4, 4))
    x = smooth(6, 2, (8, 7)).unflatten(0, (2, 3))
    stacked = x.movedim(0, in_dims)
    y = vmap(layer, in_dims=in_dims)(stacked)
    close(y, torch.stack([layer(part) for part in x]))


@OURS
@pytest.mark.parametrize("grid", [(8, 7), (20, 22)])
def test_per_sample_gradients(conv, grid):
    layer = conv(2, 3, (4, 4))
    x = smooth(4, 2, grid)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(values, item):
        return functional_call(layer, values, (item[None],)).square().sum()

    per_sample = vmap(grad(loss), (None, 0))(parameters, x)
    expected = results(layer, x)
    for name, value in per_sample.items():
        assert value.shape == (4, *parameters[name].shape)
        close(value.sum(0), expected[name])
        alone = results(layer, x[1:2])
        close(value[1], alone[name])


@OURS
def test_ensemble(conv):
    layers = [conv(2, 3, (4, 4)) for _ in range(3)]
    layers[1].diffusion_time = 1e-2
    x = smooth(2, 2, (8, 7))
    parameters, buffers = stack_module_state(layers)
    assert not buffers

    def apply(values, x):
        return functional_call(layers[0], values, (x,))

    y = vmap(apply, (0, None))(parameters, x)
    close(y, torch.stack([layer(x) for layer in layers]))

    y.square().sum().backward()
    for i, layer in enumerate(layers):
        expected = results(layer, x)
        for name, value in parameters.items():
            close(value.grad[i], expected[name])


@ALL
def test_functional_call(conv):
    layer, other = conv(2, 3, (4, 4)), conv(2, 3, (4, 4))
    x = smooth(2, 2, (8, 7))
    values = {
        name: p.detach().clone().requires_grad_()
        for name, p in other.named_parameters()
    }
    y = functional_call(layer, values, (x,))
    assert torch.equal(y, other(x))
    y.square().sum().backward()
    expected = results(other, x)
    for name, value in values.items():
        close(value.grad, expected[name])
    assert all(p.grad is None for p in layer.parameters())


@ALL
def test_jacobian(conv):
    layer = conv(1, 1, (4,))
    x = smooth(1, 1, (6,))
    jacobian = torch.func.jacrev(layer)(x).reshape(6, 6)
    step = 1e-2 * torch.eye(6).reshape(6, 1, 6)
    with torch.no_grad():
        columns = (layer(x + step) - layer(x - step)).reshape(6, 6) / 2e-2
    close(jacobian, columns.T, 1e-2)


# Its first forward-mode derivative makes torch compile formulas of its own.
torchs_own_formulas = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)
EVERYTHING = TRANSPORT.configure(shells=2, axis_method="fft", feature_grid="output")
FORWARD = [*KINDS, EVERYTHING]


def slope_by_differences(function, x, direction, step=1e-5):
    with torch.no_grad():
        ends = function(x + step * direction), function(x - step * direction)
    return (ends[0] - ends[1]) / (2 * step)


@torchs_own_formulas
@pytest.mark.parametrize("conv", FORWARD)
@pytest.mark.parametrize("grid", [(9,), (8, 7), (5, 6, 4)])
def test_forward_mode(conv, grid):
    layer = conv(2, 3, (4,) * len(grid)).double()
    x = smooth(2, 2, grid).double()
    direction = torch.randn_like(x)
    y, slope = torch.func.jvp(layer, (x,), (direction,))
    close(y, layer(x), 1e-12)
    close(slope, slope_by_differences(layer, x, direction), 1e-7)
    with forward_ad.dual_level():
        dual = layer(forward_ad.make_dual(x, direction))
        close(forward_ad.unpack_dual(dual).tangent, slope, 1e-12)


@torchs_own_formulas
@pytest.mark.parametrize("conv", FORWARD)
def test_forward_mode_by_parameters(conv):
    layer = conv(2, 3, (4, 4), drift=True).double()
    x = smooth(2, 2, (8, 7)).double()
    values = {name: p.detach() for name, p in layer.named_parameters()}
    directions = {name: torch.randn_like(p) for name, p in values.items()}

    def apply(moved):
        return functional_call(layer, moved, (x,))

    def along(t):
        return apply({name: p + t * directions[name] for name, p in values.items()})

    _, slope = torch.func.jvp(apply, (values,), (directions,))
    one = torch.ones((), dtype=torch.float64)
    close(slope, slope_by_differences(along, 0 * one, one, 1e-6), 1e-6)


@torchs_own_formulas
def test_forward_mode_of_upstreams_weights():
    """In single precision, as ``double()`` leaves complex weights alone."""
    layer = GradientSpectralConv(2, 3, (4, 4))
    x = smooth(2, 2, (8, 8))
    direction = torch.randn_like(x)
    _, slope = torch.func.jvp(layer, (x,), (direction,))
    close(slope, slope_by_differences(layer, x, direction, 1e-2), 1e-3)


@torchs_own_formulas
def test_forward_mode_of_a_model():
    model = small_fno(TRANSPORT).double()
    x = smooth(2, 2, (8, 7)).double()
    direction = torch.randn_like(x)
    _, slope = torch.func.jvp(model, (x,), (direction,))
    close(slope, slope_by_differences(model, x, direction), 1e-7)


@torchs_own_formulas
@ALL
def test_jacobians_of_both_modes(conv):
    layer = conv(1, 1, (4,))
    x = smooth(1, 1, (6,))
    jacobian = torch.func.jacrev(layer)(x)
    close(torch.func.jacfwd(layer)(x), jacobian)
    close(torch.func.jacfwd(copy.deepcopy(layer))(x), jacobian)  # makes its tables


@torchs_own_formulas
@OURS
def test_hessian(conv):
    layer = conv(1, 1, (4,)).double()
    x = smooth(1, 1, (6,)).double()

    def energy(x):
        return layer(x).square().sum()

    hessian = torch.func.hessian(energy)(x)
    close(hessian, torch.func.jacrev(torch.func.jacrev(energy))(x), 1e-10)


@torchs_own_formulas
@OURS
def test_forward_mode_of_a_backward_pass(conv):
    """It is linear, so it moves along a direction as it maps the direction."""
    layer = conv(2, 3, (4, 4))
    x = smooth(2, 2, (8, 7)).requires_grad_()
    y = layer(x)
    inputs = [x, *layer.parameters()]
    with forward_ad.dual_level():
        moving = forward_ad.make_dual(torch.randn_like(y), torch.ones_like(y))
        moved = torch.autograd.grad(y, inputs, moving, retain_graph=True)
        slopes = [forward_ad.unpack_dual(value).tangent for value in moved]
    expected = torch.autograd.grad(y, inputs, torch.ones_like(y))
    for slope, value in zip(slopes, expected, strict=True):
        close(slope, value)


# Batches of gradients

FULL_BATCHES = [*FORWARD, BayesianDiffusionConv]
BATCHES = pytest.mark.parametrize("conv", [*FULL_BATCHES, GradientSpectralConv])
GRIDS = pytest.mark.parametrize("grid", [(9,), (8, 7), (5, 6, 4)])


def gradients_of_flows(conv, grid):
    """Gradients of input and parameters as a function of the output's, and those."""
    layer = conv(2, 3, (4,) * len(grid))
    x = smooth(2, 2, grid).requires_grad_()
    y = layer(x)
    inputs = [x, *layer.parameters()]

    def pull(flow, **options):
        return torch.autograd.grad(y, inputs, flow, retain_graph=True, **options)

    flows = torch.randn(3, *y.shape)
    expected = [torch.stack(parts) for parts in zip(*map(pull, flows), strict=True)]
    assert all(value.any() for value in expected)
    return pull, flows, expected


@BATCHES
@GRIDS
@pytest.mark.parametrize("create_graph", [False, True])
def test_batched_gradients(conv, grid, create_graph):
    pull, flows, expected = gradients_of_flows(conv, grid)
    found = pull(flows, is_grads_batched=True, create_graph=create_graph)
    for value, loop in zip(found, expected, strict=True):
        close(value, loop)


@pytest.mark.parametrize("conv", FULL_BATCHES)  # not upstream's own layer
@GRIDS
def test_vmap_over_gradients(conv, grid):
    pull, flows, expected = gradients_of_flows(conv, grid)
    for value, loop in zip(vmap(pull)(flows), expected, strict=True):
        close(value, loop)


@BATCHES
def test_vectorised_jacobian_and_hessian(conv):
    layer = conv(1, 2, (4, 4)).eval()
    x = smooth(1, 1, (5, 4))
    found = jacobian(layer, x, vectorize=True)
    assert found.any()
    close(found, jacobian(layer, x))

    def energy(x):
        return layer(x).square().sum()

    close(hessian(energy, x, vectorize=True), hessian(energy, x))


def test_vectorised_jacobian_of_a_model():
    model = small_fno(TRANSPORT)
    x = smooth(1, 2, (6, 5))
    close(jacobian(model, x, vectorize=True), jacobian(model, x))


# Several processes


def ddp_worker(rank: int, folder: str) -> None:
    """Compute the gradients of one half of the batch in its own process."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    try:
        given = torch.load(f"{folder}/given.pt", weights_only=False)
        model = DistributedDataParallel(given["model"])
        half = given["x"].chunk(2)[rank]
        model(half).square().mean().backward()
        gradients = {name: p.grad for name, p in model.module.named_parameters()}
        torch.save(gradients, f"{folder}/gradients_{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


def test_two_processes(tmp_path):
    model = nn.Sequential(
        DiffusionSpectralConv(2, 3, (4, 4)),
        TRANSPORT(3, 3, (4, 4)),
        PLAIN(3, 3, (4, 4)),
        GradientSpectralConv(3, 2, (4, 4)),
    )
    x = smooth(4, 2, (8, 7))
    torch.save({"model": model, "x": x}, tmp_path / "given.pt")
    torch.multiprocessing.spawn(ddp_worker, (str(tmp_path),), nprocs=2)
    model(x).square().mean().backward()
    for rank in range(2):
        gradients = torch.load(tmp_path / f"gradients_{rank}.pt")
        same(gradients, {name: p.grad for name, p in model.named_parameters()})


# Modes of autograd


@ALL
@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
def test_inference_first(conv, context):
    """What is kept between calls must serve training too."""
    layer = conv(2, 3, (4, 4))
    x = smooth(2, 2, (8, 7))
    expected = results(copy.deepcopy(layer), x)
    with context():
        y = layer(x)
        assert not y.requires_grad
        close(y.clone(), expected["output"])
    same(results(layer, x), expected, 0.0)
    with context():
        close(layer(x).clone(), expected["output"], 0.0)


@ALL
@pytest.mark.parametrize("inside", [False, True])
def test_backward_under_autocast(conv, inside):
    """Inside the context, torch itself rounds products to bfloat16."""
    layer = conv(2, 3, (4, 4))
    x = smooth(2, 2, (8, 7))
    expected = results(layer, x)
    layer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        if inside:
            y.square().sum().backward()
    if not inside:
        y.square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.dtype == parameter.dtype
        close(parameter.grad, expected[name], 3e-2 if inside else 1e-5)


@ALL
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing(conv, use_reentrant):
    layer = conv(2, 3, (4, 4))
    x = smooth(2, 2, (8, 7))

    def checkpointed(x):
        return checkpoint(layer, x, use_reentrant=use_reentrant)

    same(results(layer, x, checkpointed), results(layer, x), 0.0)


@OURS
def test_double_backward(conv):
    """The Hessian of a loss of a whole model is symmetric, and is the derivative."""
    model = small_fno(conv).double()
    x = smooth(1, 2, (8, 7)).double()

    def gradient(x):
        (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return slope

    def hessian_times(v):
        variable = x.clone().requires_grad_()
        (product,) = torch.autograd.grad((gradient(variable) * v).sum(), variable)
        return product

    v, w = torch.randn_like(x), torch.randn_like(x)
    torch.testing.assert_close(
        (hessian_times(v) * w).sum(), (hessian_times(w) * v).sum()
    )
    step = 1e-5 * v
    forward = gradient((x + step).requires_grad_())
    backward = gradient((x - step).requires_grad_())
    close(hessian_times(v), (forward - backward).detach() / 2e-5, 1e-6)


@ALL
def test_gradient_penalty_reaches_the_parameters(conv):
    layer = conv(2, 3, (4, 4))
    x = smooth(2, 2, (8, 7)).requires_grad_()
    (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@ALL
def test_frozen_parameters(conv):
    layer = conv(2, 3, (4, 4)).requires_grad_(False)
    x = smooth(2, 2, (8, 7)).requires_grad_()
    layer(x).square().sum().backward()
    assert x.grad.any()
    assert not layer(x.detach()).requires_grad


# Devices and dtypes without numbers


@ALL
def test_meta_device(conv):
    layer = conv(2, 3, (4, 4)).to("meta")
    y = layer(torch.empty(2, 2, 8, 7, device="meta"), output_shape=(9, 5))
    assert (y.shape, y.device.type) == ((2, 3, 9, 5), "meta")


@ALL
def test_built_on_the_meta_device(conv):
    """Without memory, to be filled from a checkpoint."""
    with torch.device("meta"):
        layer = conv(2, 3, (4, 4))
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    filled = conv(2, 3, (4, 4))
    layer.load_state_dict(filled.state_dict(), assign=True)
    x = smooth(2, 2, (8, 7))
    assert torch.equal(layer(x), filled(x))


@ALL
def test_fake_tensors(conv):
    layer = conv(2, 3, (4, 4))
    x = smooth(2, 2, (8, 7))
    expected = copy.deepcopy(layer)(x)
    with FakeTensorMode(allow_non_fake_inputs=True):
        y = layer(torch.empty(2, 2, 8, 7))
    assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
    # What was made under the mode did not stay behind.
    assert torch.equal(layer(x), expected)


@ALL
def test_built_under_fake_tensors(conv):
    with FakeTensorMode():
        y = conv(2, 3, (4, 4))(torch.empty(2, 2, 8, 7))
        assert y.shape == (2, 3, 8, 7)


@OURS
def test_whole_model_in_bfloat16(conv):
    # Upstream's grid embedding is always float32.
    model = small_fno(conv, positional_embedding=None)
    x = smooth(2, 2, (8, 7))
    expected = model(x).detach()
    lean = copy.deepcopy(model).bfloat16()
    y = lean(x.bfloat16())
    assert y.dtype == torch.bfloat16
    close(y.float(), expected, 0.1)
    y.float().square().sum().backward()
    for name, parameter in lean.named_parameters():
        assert parameter.grad.dtype == torch.bfloat16
        assert parameter.grad.isfinite().all(), name


@OURS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_only_rounding(conv, dtype):
    """Parameters, input and output are rounded; what is in between is not."""
    layer = conv(2, 3, (4, 4)).to(dtype)
    x = smooth(2, 2, (8, 7)).to(dtype)
    y = layer(x)
    assert y.dtype == dtype
    expected = copy.deepcopy(layer).float()(x.float())
    close(y.float(), expected, torch.finfo(dtype).eps)
