"""torch.distributed with managed tensors: collectives over the device's own c10d backend, ``"innkeeper"``.

A process group that takes CPU tensors by Gloo takes managed ones too, over the same connections, however it
was made: ``init_process_group()``, ``init_process_group("gloo")``, ``new_group()``.
``DistributedDataParallel`` needs nothing else. If each process of a group has a GPU of its own, sums and
NCCL's other operations go between the GPUs, unless the program made the group as Gloo's.
"""

from __future__ import annotations

import functools
import inspect
import socket
from collections.abc import Callable
from typing import Any

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.torch_patches.patch import apply, put

BACKEND = "innkeeper"


def register() -> None:
    """Makes the backend known to torch.distributed, where PyTorch was built with that. Once."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    if BACKEND in c10d.Backend.backend_list:
        return
    register_backend = c10d.Backend.register_backend
    apply(
        "torch.distributed.distributed_c10d.Backend._plugins[INNKEEPER]",
        lambda: register_backend(BACKEND, _create, extended_api=True, devices=[DEVICE]),
    )
    _join_every_group(c10d)
    _take_other_accelerators(c10d)
    _take_other_indices(c10d)


def _create(options: Any, _: Any = None) -> Any:
    """The backend of a group that has no other; Gloo under it is the group's for CPU tensors too."""
    gloo = torch.distributed.ProcessGroupGloo(
        options.store, options.group_rank, options.group_size, timeout=options.timeout
    )
    gloo._set_sequence_number_for_group()
    _made.append(gloo)
    return _C.make_process_group(gloo, _between_gpus(options))


def _between_gpus(group: Any) -> Callable[[], tuple[Any, str] | None] | None:
    """A function that returns a group's NCCL backend and the node of this process's GPU.

    All processes call it at the first collective that could go between GPUs, because it starts the device.
    """
    nccl = getattr(torch._C._distributed_c10d, "ProcessGroupNCCL", None)
    if nccl is None or group.group_size == 1:
        return None
    kept: list[Any] = []  # the extension is given a pointer

    def make() -> tuple[Any, str] | None:
        node, gpu = _own_gpu()
        group.store.set(f"innkeeper GPU of {group.group_rank}", gpu)
        gpus = [group.store.get(f"innkeeper GPU of {rank}") for rank in range(group.group_size)]
        if b"" in gpus or len(set(gpus)) < len(gpus):  # NCCL refuses two processes of one GPU
            return None
        options = nccl.Options()
        options._timeout = group.timeout
        store = torch.distributed.PrefixStore("innkeeper nccl", group.store)
        kept.append(nccl(store, group.group_rank, group.group_size, options))
        return kept[0], node

    return make


def _own_gpu() -> tuple[str, str]:
    """The process's preferred GPU: its node, and its identity among all machines. Empty if it has none."""
    nodes = [node.name for node in _C.nodes() if node.computes and node.kind == "cuda"]
    if not nodes:
        return "", ""
    node = nodes[max(_C.local_rank(), 0) % len(nodes)]
    torch._C._cuda_init()
    gpu = torch.cuda._get_device_properties(int(node.partition(":")[2])).uuid  # type: ignore[attr-defined]
    return node, f"{socket.gethostname()} {gpu}"


_made: list[Any] = []  # Gloo, until its group has it for CPU tensors too


def _join_every_group(c10d: Any) -> None:
    """Has groups of CPU tensors take managed ones, and the reverse.

    PyTorch makes a group's backends by a list of devices that no accelerator of its own joins by itself; for
    an accelerator that it does not know it leaves CPU tensors without one.
    """
    original = c10d._new_process_group_helper

    def join(group: Any) -> None:
        name, description = group.group_name, group.group_desc
        add_backend(group)
        # A group takes its name from one of its backends, the first that it has.
        group._set_group_name(name)
        group._set_group_desc(description)

    def add_backend(group: Any) -> None:
        devices = {DEVICE if _C.is_managed(device) else device.type for device in group._device_types}
        gloo_type = torch.distributed.ProcessGroup.BackendType.GLOO
        if DEVICE in devices and "cpu" not in devices:
            if _made:
                group._register_backend(torch.device("cpu"), gloo_type, _made[-1])
        elif "cpu" in devices:
            cpu = group._get_backend(torch.device("cpu"))
            # Where managed shows itself as cuda, PyTorch has given it Gloo, which cannot read it.
            ours = DEVICE in devices and group._get_backend(torch.device(DEVICE)).name() == BACKEND
            if cpu.name() == "gloo" and not ours:
                custom = torch.distributed.ProcessGroup.BackendType.CUSTOM
                group._register_backend(torch.device(DEVICE), custom, _C.make_process_group(cpu))

    @functools.wraps(original)
    def helper(*args: Any, **kwargs: Any) -> Any:
        try:
            group, store = original(*args, **kwargs)
            # False if this process is not in the group.
            if isinstance(group, torch.distributed.ProcessGroup):
                join(group)
            return group, store
        finally:
            _made.clear()

    put("torch.distributed.distributed_c10d._new_process_group_helper", helper)


def _take_other_accelerators(c10d: Any) -> None:
    """Keeps the meaning of ``init_process_group(device_id=torch.device("cuda:0"))`` without Innkeeper.

    PyTorch refuses a device that is not the accelerator's, and the accelerator is the managed device now.
    """
    original = c10d.init_process_group

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> None:
        device = kwargs.get("device_id")
        if not isinstance(device, torch.device) or device.type == "cpu" or _C.is_managed(device):
            return original(*args, **kwargs)
        original(*args, **(kwargs | {"device_id": None}))
        group = c10d._get_default_group()
        if device.type in {each.type for each in group._device_types}:
            group.bound_device_id = device
        return None

    _put("init_process_group", init)


def _take_other_indices(c10d: Any) -> None:
    """Lets ``barrier(device_ids=[local_rank])`` wait: each process has one managed device, of index 0."""
    original = c10d.barrier
    signature = inspect.signature(original)

    @functools.wraps(original)
    def barrier(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        if call.arguments.get("device_ids") and _C.is_managed(torch._C._get_accelerator()):
            call.arguments["device_ids"] = [0]
        return original(*call.args, **call.kwargs)

    _put("barrier", barrier)


def _put(name: str, function: Any) -> None:
    for owner in ("torch.distributed", "torch.distributed.distributed_c10d"):
        put(f"{owner}.{name}", function)
