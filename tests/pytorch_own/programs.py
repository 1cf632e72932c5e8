"""Programs on the CPU that use PyTorch's parts for accelerators. Each prints one line.

python tests/pytorch_own/programs.py [--with-innkeeper] [NAME ...]

The lines must be the same with the package and without: see tests/python/device/test_other_devices.py.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

LOADED = "--with-innkeeper" in sys.argv or os.environ.get("PYTORCH_OWN_LOADED") == "1"
if LOADED:
    os.environ["PYTORCH_OWN_LOADED"] = "1"  # Started processes read it.
    import innkeeper

Program = Callable[[], Any]


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 4))


def batch() -> Tensor:
    return torch.linspace(-1, 1, 48).reshape(6, 8)


def trained(network: nn.Module, step: Callable[[], Any] | None = None) -> list[float]:
    """Sums of the parameters after three steps."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        network(batch()).square().sum().backward()
        optimizer.step()
    return [whole(p).double().sum().item() for p in network.parameters()]


def whole(p: Tensor) -> Tensor:
    return p.detach().full_tensor() if hasattr(p, "full_tensor") else p.detach()


def data_parallel() -> Any:
    return trained(nn.DataParallel(model()))


def checkpointed() -> Any:
    network = model()
    checkpoint = torch.utils.checkpoint.checkpoint
    results = []
    for reentrant in (True, False):
        x = batch().requires_grad_()
        checkpoint(network, x, use_reentrant=reentrant).sum().backward()
        results.append(x.grad.sum().item())
    return results


def loader() -> Any:
    data = torch.utils.data.TensorDataset(batch(), torch.arange(6))
    rows = []
    for options in ({}, {"pin_memory": True}, {"num_workers": 1}, {"num_workers": 1, "pin_memory": True}):
        for x, _ in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, **options):
            rows.append((x.sum().item(), x.device.type))
    return rows


def compiled() -> Any:
    return trained(torch.compile(model().eval(), backend="aot_eager"))


def exported() -> Any:
    program = torch.export.export(model().eval(), (batch(),))
    return program.module()(batch()).sum().item(), [node.name for node in program.graph.nodes]


def scripted() -> Any:
    return torch.jit.script(model().eval())(batch()).sum().item()


def autocast() -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return trained(model())


def scaled() -> Any:
    scaler = torch.amp.GradScaler("cpu")
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    scaler.scale(network(batch()).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return [p.sum().item() for p in network.parameters()], scaler.get_scale()


def generators() -> Any:
    torch.manual_seed(1)
    first = torch.rand(2).tolist()
    with torch.random.fork_rng():
        torch.rand(5)
    with torch.random.fork_rng(devices=[]):
        torch.rand(5)
    state = torch.get_rng_state()
    draws = [torch.rand(1).item(), torch.seed() > 0]
    torch.set_rng_state(state)
    return first, draws, torch.rand(1).item(), torch.Generator().device.type, torch.initial_seed() > 0


def files() -> Any:
    file = io.BytesIO()
    torch.save(model().state_dict(), file)
    file.seek(0)
    return [
        x.sum().item() for x in torch.load(file).values()
    ], torch.serialization.get_default_load_endianness()


def pinned() -> Any:
    x = torch.ones(3).pin_memory() if torch.cuda.is_available() else torch.ones(3)
    return x.is_pinned(), torch.ones(3).is_shared(), torch.ones(3).share_memory_().is_shared()


def saved_on_cpu() -> Any:
    with torch.autograd.graph.save_on_cpu():
        return trained(model())


def averaged() -> Any:
    network = model()
    average = torch.optim.swa_utils.AveragedModel(network)
    trained(network)
    average.update_parameters(network)
    return [p.sum().item() for p in average.parameters()]


def profiled() -> Any:
    with torch.profiler.profile() as profile:
        model().eval()(batch())
    return sorted({event.key for event in profile.key_averages() if event.key.startswith("aten::")})


def transformed() -> Any:
    network = model().eval()
    parameters = dict(network.named_parameters())

    def loss(p: Any, x: Tensor) -> Tensor:
        return torch.func.functional_call(network, p, (x,)).square().sum()

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, batch()[:, None])
    return [g.sum().item() for g in gradients.values()]


def default_device() -> Any:
    with torch.device("cpu"):
        x = torch.ones(2)
    return (
        x.device.type,
        torch.get_default_device().type,
        torch.ones(2).device.type,
        torch.tensor(1).device.type,
    )


def attention() -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    mask = torch.tensor([[False, False, True]] * 2)
    with torch.no_grad():
        return nn.TransformerEncoder(layer, 2)(batch().view(2, 3, 8), src_key_padding_mask=mask).sum().item()


# ---------------------------------------------------------------- in two processes


def replicated(rank: int) -> Any:
    return trained(nn.parallel.DistributedDataParallel(model().eval()))


def meshed(rank: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("rows",))
    group = mesh.get_group("rows")
    x = torch.full((2,), float(rank))
    dist.all_reduce(x, group=group)
    return (
        x.tolist(),
        mesh.get_local_rank(),
        group.group_name,
        group.group_desc,
        dist.get_process_group_ranks(group),
    )


def sharded(rank: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    network = fully_shard(model().eval(), mesh=init_device_mesh("cpu", (2,)))
    return trained(network)


def distributed_tensor(rank: int) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    x = distribute_tensor(batch(), init_device_mesh("cpu", (2,)), [Shard(0)])
    return (x @ x.T).full_tensor().sum().item()


def collectives(rank: int) -> Any:
    x = torch.full((3,), float(rank))
    dist.all_reduce(x)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    dist.broadcast(x, 0)
    listed = [[rank]]
    dist.broadcast_object_list(listed)
    dist.barrier()
    parts = [torch.empty(3) for _ in range(2)]
    dist.all_gather(parts, x + rank)
    return x.tolist(), objects, listed, [part.tolist() for part in parts], dist.get_backend()


def checkpointed_in_parts(rank: int) -> Any:
    import torch.distributed.checkpoint as dcp

    directory = os.environ["PROGRAM_DIRECTORY"]
    state = {"model": model().state_dict()}
    dcp.save(state, checkpoint_id=directory)
    for value in state["model"].values():
        value.zero_()
    dcp.load(state, checkpoint_id=directory)
    return [value.sum().item() for value in state["model"].values()]


ALONE: dict[str, Program] = {
    program.__name__: program
    for program in (
        data_parallel, checkpointed, loader, compiled, exported, scripted, autocast, scaled, generators,
        files, pinned, saved_on_cpu, averaged, profiled, transformed, default_device, attention,
    )
}  # fmt: skip
TOGETHER = {
    program.__name__: program
    for program in (replicated, meshed, sharded, distributed_tensor, collectives, checkpointed_in_parts)
}


def say(name: str, program: Program) -> None:
    try:
        result = repr(program())
    except Exception as error:  # An exception is an outcome, too.
        result = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    print(f"{name}: {result}", flush=True)


def together(rank: int, names: list[str], directory: str) -> None:
    warnings.simplefilter("ignore")
    os.environ["PROGRAM_DIRECTORY"] = directory + "/state"
    for name in names:
        dist.init_process_group(init_method=f"file://{directory}/{name}", rank=rank, world_size=2)
        if rank == 0:
            say(name, lambda name=name: TOGETHER[name](0))
        else:
            TOGETHER[name](rank)
        dist.destroy_process_group()


def main() -> None:
    """Runs the named programs; all, without names."""
    import tempfile

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    named = [name for name in sys.argv[1:] if not name.startswith("--")]
    for name, program in ALONE.items():
        if not named or name in named:
            say(name, program)
    parallel = [name for name in TOGETHER if not named or name in named]
    if parallel:
        with tempfile.TemporaryDirectory() as directory:
            torch.multiprocessing.spawn(together, (parallel, directory), nprocs=2)
    if LOADED:  # PyTorch reports none of these as ours.
        assert not innkeeper._C.started(), "the managed device was started"


if __name__ == "__main__":
    main()
