"""The package's C++ interface: other programs find it by CMake, link it, train and choose GPUs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import innkeeper
import pytest
from documents import fences, without_numbers
from fake_machine import A, FakeMachine
from models import Norm
from processes import RunProgram
from repository import ROOT

import torch
from torch import Tensor, nn

F = nn.functional
SOURCE = ROOT / "tests" / "consumer"
EXAMPLE = ROOT / "examples" / "cpp"
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith("INNKEEPER_")}

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake")


@dataclass
class Built:
    """The built programs of tests/consumer, and a directory laid out as in examples/cpp's README."""

    run_program: RunProgram
    consumer: Path
    example: Path
    commands: list[str]  # Commands of that README after those that build.

    def run(self, *command: str | Path, env: dict[str, str] = PLAIN, cwd: Path = ROOT) -> str:
        done = self.run_program(*command, env=env, cwd=cwd, timeout=1800)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def train(self, *arguments: str, nodes: str = "sim:1x64MiB,host:1GiB") -> Run:
        """Runs the example."""
        program = self.example / "build" / "cpp" / "train"
        env = PLAIN | {"INNKEEPER_NODES": nodes}
        return parsed(self.run(program, *arguments, env=env, cwd=self.example))


@pytest.fixture(scope="module")
def built(compiler: str, run_program: RunProgram, tmp_path_factory: pytest.TempPathFactory) -> Built:
    # PyTorch's directory, for where it is not the package's neighbour; and many compilers' default, under
    # which by_name, that needs nothing of ours, is to have the device all the same.
    torch_dir = f"-DINNKEEPER_TORCH_DIR={Path(torch.__file__).parent}"
    as_needed = PLAIN | {"LDFLAGS": "-Wl,--as-needed"}
    consumer, example = tmp_path_factory.mktemp("consumer"), tmp_path_factory.mktemp("example")
    (example / "examples").symlink_to(ROOT / "examples")
    (example / ".venv").symlink_to(sys.prefix)
    prefix, configure, build, *commands = fences(EXAMPLE / "README.md")[0].text.splitlines()
    made = Built(run_program, consumer, example, commands)

    def build_consumer() -> None:
        found = f"-DCMAKE_PREFIX_PATH={innkeeper.cmake_prefix_path}"
        made.run("cmake", "-S", SOURCE, "-B", consumer, found, torch_dir, env=as_needed)
        made.run("cmake", "--build", consumer, "--parallel", "2")

    def build_example() -> None:
        assert configure.startswith("cmake -S ") and build.startswith("cmake --build ")
        configure_here = configure.replace("cmake", f"cmake {torch_dir}", 1)
        made.run("bash", "-euc", f"{prefix}\n{configure_here}\n{build}", env=as_needed, cwd=example)

    with ThreadPoolExecutor() as pool:
        for work in [pool.submit(build_consumer), pool.submit(build_example)]:
            work.result()
    return made


def test_a_program_finds_links_and_uses_the_package(machine: FakeMachine, built: Built):
    consumer, run = built.consumer, built.run
    assert run(consumer / "consumer").splitlines() == [
        "equal 1 evictions 1 nodes 3",
        "born sim:1",
        "evicted host",
        "real cpu",
        "sum 32",
        'refused: pin: there is no node "sim:7"; the nodes are sim:0, sim:1, host',
    ]
    # """A module is the first to touch the device; memory is less than a step needs."""
    small = PLAIN | {"INNKEEPER_NODES": "sim:1x128KiB,host:1GiB"}
    assert run(consumer / "train", env=small) == "9 tensors equal\n"
    assert run(consumer / "by_name", env=small) == "managed:0 holds 2\n"
    choose = str(consumer / "choose")
    assert run(choose, env=machine.environment()) == f"cuda:0 is {A}\n"
    held = (
        "import innkeeper, subprocess, sys; a = innkeeper.lease(memory=35 << 30); subprocess.run(sys.argv[1])"
    )
    busy = run(sys.executable, "-c", held, choose, env=machine.environment(CUDA_VISIBLE_DEVICES=A))
    assert busy.startswith("later: asked for 1 GPU with 8.0 GiB, 0 have that now"), busy


# ---------------------------------------------------------------- examples/cpp


class Run(NamedTuple):
    """Output of a run of the example: its other lines, and the nodes' lines."""

    lines: list[str]
    nodes: dict[str, tuple[int, ...]]  # Peak, budget, operators and evictions by node.


def parsed(output: str) -> Run:
    lines, nodes = [], {}
    for line in output.splitlines():
        name, mark, rest = line.partition(": peak ")
        if mark:
            nodes[name] = tuple(map(int, re.findall(r"\d+", rest)))
        else:
            lines.append(line)
    return Run(lines, nodes)


def test_the_examples_commands_work_as_they_are_pasted(built: Built):
    printed = [built.run("bash", "-c", command, cwd=built.example) for command in built.commands]
    shown = fences(EXAMPLE / "README.md")[1].text
    form = [without_numbers(re.sub(r"weights \w{16}", "weights 0", text)) for text in (shown, printed[1])]
    assert form[0] == form[1]
    plain, tight, half, rest = map(parsed, printed)
    assert int(plain.lines[3].split()[4]) > 230  # The model has learned the rule.
    assert tight.lines == plain.lines and tight.nodes["sim:0"][3] > 0 and tight.nodes["sim:0"][2] > 1000
    assert half.lines[:2] == plain.lines[:2] and rest.lines == plain.lines[2:]
    assert not plain.nodes and not rest.nodes


def test_a_cpp_program_trains_to_the_same_bits_at_60_percent_of_its_peak(built: Built):
    plain, ample = built.train("--device", "cpu"), built.train()
    peak, budget, _, evictions = ample.nodes["sim:0"]
    assert ample.lines == plain.lines and evictions == 0 and peak < budget
    for count in (1, 2):
        tight = built.train(nodes=f"sim:{count}x{peak * 6 // 10}B,host:1GiB")
        assert tight.lines == plain.lines
        assert sum(node[3] for node in tight.nodes.values()) > 0
        assert all(node[0] <= node[1] for node in tight.nodes.values())


@pytest.mark.parametrize(("first", "then"), [("managed", "managed"), ("cpu", "managed")])
def test_a_cpp_program_goes_on_where_another_stopped(built: Built, tmp_path: Path, first: str, then: str):
    # """The learning rate has fallen once when the file is saved, and falls again before the last epoch."""
    tight, saved = "sim:1x6MiB,host:1GiB", str(tmp_path / "saved.pt")
    whole = built.train("--epochs", "6", nodes=tight)
    built.train("--device", first, "--epochs", "3", "--save", saved, nodes=tight)
    rest = built.train("--device", then, "--epochs", "6", "--load", saved, nodes=tight)
    assert rest.lines == whole.lines[3:] and len(rest.lines) == 4  # Three epochs and the hash.


def test_the_example_says_in_one_line_what_is_wrong(built: Built):
    for arguments, says in [
        (["--device", "gpu"], "train: --device gpu? It is --device managed or cpu, --epochs N, "),
        (["--epochs", "-1"], "train: --epochs -1? It is --device"),
        (["--load", "nowhere.pt"], "train: open file failed"),
    ]:
        program = built.example / "build" / "cpp" / "train"
        done = built.run_program(program, *arguments, env=PLAIN)
        assert done.returncode == 1 and done.stderr.startswith(says) and done.stderr.count("\n") == 1


# ---------------------------------------------------------------- the same in Python


def hash_of(tensors: list[Tensor]) -> str:
    value = 0xCBF29CE484222325
    for tensor in tensors:
        for byte in tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).tolist():
            value = ((value ^ byte) * 0x100000001B3) % 2**64
    return f"{value:016x}"


class Net(nn.Module):
    """The example's modules, made in its order."""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for channels in (1, 16, 16, 16):
            blocks += [nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        self.blocks, self.linear = nn.Sequential(*blocks), nn.Linear(16 * 4 * 4, 4)
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(F.max_pool2d(self.blocks(x), 4).flatten(1))


class AdamW(torch.optim.Optimizer):
    """The steps as C++ writes them. Python's have rounded otherwise since they use lerp."""

    def __init__(self, params: list[Tensor], lr: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state |= {"step": 0, "mean": torch.zeros_like(p), "square": torch.zeros_like(p)}
                state["step"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                state["mean"].mul_(0.9).add_(p.grad, alpha=1 - 0.9)
                state["square"].mul_(0.999).addcmul_(p.grad, p.grad, value=1 - 0.999)
                root = (1 - 0.999 ** state["step"]) ** 0.5
                size = group["lr"] / (1 - 0.9 ** state["step"])
                p.addcdiv_(state["mean"], (state["square"].sqrt() / root).add_(1e-8), value=-size)


def quarters(count: int, seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    images, labels = torch.randn(count, 1, 16, 16), torch.randint(4, (count,))
    for quarter in range(4):
        bright = labels.eq(quarter).float().mul(0.5).view(count, 1, 1, 1)
        images.narrow(2, 8 * (quarter // 2), 8).narrow(3, 8 * (quarter % 2), 8).add_(bright)
    return images, labels


@pytest.mark.parametrize("device", ["cpu", "managed"])
def test_a_cpp_program_has_the_bits_of_the_same_in_python(built: Built, device: str):
    images, labels = quarters(512, 1)
    unseen, names = quarters(256, 2)
    torch.manual_seed(0)
    net = Net().to(device)
    optimizer = AdamW(list(net.parameters()), lr=2e-3, weight_decay=0.1)
    lines = []
    for epoch in range(1, 5):
        torch.manual_seed(epoch)
        torch.randperm(512)  # C++'s RandomSampler draws one order at its construction, and one for the epoch.
        total = 0.0
        net.train()
        for part in torch.randperm(512).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images[part].to(device)), labels[part].to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
        if epoch in (3, 5):  # C++'s StepLR of 2 falls at its third step.
            optimizer.param_groups[0]["lr"] *= 0.5
        net.epochs.add_(1)
        net.eval()
        with torch.no_grad():
            said = [net(part.to(device)).argmax(1).cpu() for part in unseen.split(64)]
        lines.append((total / 8, int(torch.cat(said).eq(names).sum())))
    got = built.train("--device", device).lines
    losses = [re.findall(r"loss (\S+), (\d+)", line)[0] for line in got[:-1]]
    assert [(float(loss), int(right)) for loss, right in losses] == lines
    assert got[-1] == f"weights {hash_of(list(chain(net.parameters(), net.buffers())))}"


# ---------------------------------------------------------------- data_parallel


def test_data_parallel_has_the_bits_of_pythons(built: Built, configure: Callable[[str], None]):
    shown = fences(ROOT / "docs" / "parallel.md")[2]
    source = (SOURCE / "data_parallel.cc").read_text()
    assert shown.language == "cpp" and all(line in source for line in shown.text.splitlines())
    nodes = "sim:3x64KiB,host:1GiB"
    out = built.run(built.consumer / "data_parallel", env=PLAIN | {"INNKEEPER_NODES": nodes}).splitlines()

    configure(nodes)
    torch.manual_seed(0)
    net = Norm()
    x, target = torch.randn(50, 32), torch.randn(50, 8).to("managed")
    model = innkeeper.DataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert [float(line.removeprefix("loss ")) for line in out[:4]] == losses
    parameters, buffers = hash_of(list(net.parameters())), hash_of(list(net.buffers()))
    assert out[4] == f"parameters {parameters} buffers {buffers}"
    del model, net, optimizer, loss, x, target
    assert out[5:] == [
        "host computed 0",
        "sim:0 computed 1",
        "sim:1 computed 1",
        "sim:2 computed 1",
        "fetches 1 evictions 1",
        "close 1 at sim:0",
        "close 1 at sim:1, with gradients 0",
        "a row 1",
        'refused: data_parallel: the module\'s "first.weight" is on cpu; it must be on the managed device: '
        "module->to(innkeeper::device())",
        'refused: data_parallel: "sim:7" is none of the nodes that compute: sim:0, sim:1, sim:2',
        "refused: data_parallel: sim:0 is named twice",
        "refused: a row has 31 columns at sim:0",
        "refused: clone() has not been implemented for (anonymous namespace)::Alone. Subclass "
        "torch::nn::Cloneable<(anonymous namespace)::Alone> instead of torch::nn::Module to inherit the "
        "ability to clone.",
        "again 1, another 1 1",
        "homes 0 1 2",
    ]
