"""TensorFlow: ``tf.device``, soft placement, memory that grows or is limited. Never imports it."""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from innkeeper import visible
from innkeeper.frameworks.torch_gpu import allocator_bytes
from innkeeper.frameworks.variables import write

if TYPE_CHECKING:
    from innkeeper.choice import Choice


def _tensorflow() -> Any:
    return sys.modules["tensorflow"]


GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"

_live: list[Choice] = []


def prepare(choice: Choice) -> None:
    """Soft placement, and memory that grows, by settings that TensorFlow reads when it starts CUDA.

    It does not ask for TensorFlow's devices: that starts CUDA with the GPUs that are shown now, and the
    program may choose others before its session.
    """
    _tensorflow().config.set_soft_device_placement(True)
    _live.append(choice)
    _let_grow()


def forget(choice: Choice) -> None:
    """The last choice leaves the variable as it was."""
    if choice in _live:
        _live.remove(choice)
        _let_grow()


def _let_grow() -> None:
    with visible._lock:
        write(GROWTH, "true" if _live else None)


def limit() -> None:
    """Limits TensorFlow on each GPU to the bytes promised to all choices of it together, if they name a size.

    Asks for TensorFlow's devices, which starts CUDA. If TensorFlow has started, or the program has configured
    a device itself, that configuration stays.
    """
    tf = _tensorflow()
    limited = [choice for choice in _live if choice.memory is not None]
    if not limited:
        return
    promised: dict[int, int] = {}
    for choice in limited:
        for ordinal in choice.ordinals:
            promised[ordinal] = promised.get(ordinal, 0) + (choice.memory or 0)
    for ordinal, gpu in enumerate(tf.config.list_physical_devices("GPU")):
        try:
            if ordinal in promised and not tf.config.get_logical_device_configuration(gpu):
                mib = allocator_bytes(promised[ordinal]) >> 20
                part = tf.config.LogicalDeviceConfiguration(memory_limit=mib)
                tf.config.set_logical_device_configuration(gpu, [part])
        except (RuntimeError, ValueError):
            return  # TensorFlow has started, or the program has set a growth of its own


def device_name(choice: Choice) -> str:
    """The first GPU as TensorFlow names it, or the CPU. With soft placement it need not be there."""
    return f"/GPU:{choice.ordinal}" if choice.uuids else "/CPU:0"


def enter(choice: Choice, stack: ExitStack) -> None:
    """Enters ``tf.device``, with the memory limited."""
    limit()
    stack.enter_context(_tensorflow().device(device_name(choice)))


def session_config(base: Any = None) -> Any:
    """A ``ConfigProto`` with soft placement and growing memory, on top of ``base``."""
    tf = importlib.import_module("tensorflow")  # the caller wants a session
    config = tf.compat.v1.ConfigProto()
    if base is not None:
        config.CopyFrom(base)
    config.allow_soft_placement = True
    config.gpu_options.allow_growth = True
    return config


def new_session(base: Any = None) -> Any:
    """A session of TensorFlow 1's kind, on the default graph, with that configuration."""
    config = session_config(base)
    limit()
    return _tensorflow().compat.v1.Session(config=config)


def like(session: Any) -> Any:
    """The session itself if it places softly and grows; else another on its graph that does.

    TensorFlow does not allow changes to a session. Variables belong to a session, so the new session
    initializes them again.
    """
    config = getattr(session, "_config", None)
    if config is not None and config.allow_soft_placement and config.gpu_options.allow_growth:
        return session
    made = session_config(config)
    print(
        "innkeeper: the session lacks allow_soft_placement or allow_growth, and cannot be changed: "
        "GPUManager.sess is another on its graph, whose variables are to be initialized",
        file=sys.stderr,
    )
    return _tensorflow().compat.v1.Session(target=session.sess_str, graph=session.graph, config=made)
