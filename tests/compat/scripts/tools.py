"""PyTorch's tools to inspect and export models: counted operations, exports, TensorBoard."""

import io
import warnings

import onnx
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.tensorboard import SummaryWriter

warnings.simplefilter("ignore")
device = torch.accelerator.current_accelerator() or torch.device("cpu")
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(288, 4),
)
model = model.to(device).eval()
x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(device)


def flops():
    with FlopCounterMode(display=False) as counted:
        model(x).sum().backward()
    return sorted(
        (name, str(op), flops) for name, ops in counted.get_flop_counts().items() for op, flops in ops.items()
    )


def shapes():
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y = model(mode.from_tensor(x))
    assert y.device.type == device.type
    return tuple(y.shape)


def exported():
    program = torch.export.export(model, (x,))
    return program.module()(x), sorted(str(node.target) for node in program.graph.nodes)


def in_onnx(dynamo):
    written = io.BytesIO()
    torch.onnx.export(model, (x,), written, dynamo=dynamo, verbose=False)
    graph = onnx.load_from_string(written.getvalue()).graph
    weights = [torch.from_numpy(onnx.numpy_helper.to_array(held).copy()) for held in graph.initializer]
    return [node.op_type for node in graph.node], weights


def on_board():
    with SummaryWriter("board") as board:
        board.add_scalar("norm", x.norm(), 0)
        board.add_histogram("weights", model[4].weight, 0)
        board.add_graph(model, x)
    read = EventAccumulator("board")
    read.Reload()
    histogram = read.Histograms("weights")[0].histogram_value
    nodes = sorted(node.op for node in read.Graph().node)
    return read.Scalars("norm")[0].value, list(histogram.bucket), nodes


def scripted():
    return torch.jit.trace(model, (x,))(x), torch.jit.script(model)(x)


results = {
    "FlopCounterMode": flops(),
    "FakeTensorMode": shapes(),
    "torch.export": exported(),
    "ONNX": in_onnx(dynamo=True),
    "ONNX by TorchScript": in_onnx(dynamo=False),
    "TorchScript": scripted(),
    "TensorBoard": on_board(),
}
