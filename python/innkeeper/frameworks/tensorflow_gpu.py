"""TensorFlow: ``tf.device``, soft placement, memory that grows or is limited. Never imports it."""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from innkeeper.frameworks.torch_gpu import allocator_bytes

if TYPE_CHECKING:
    from innkeeper.choice import Choice


def _tensorflow() -> Any:
    return sys.modules["tensorflow"]


def prepare(choice: Choice) -> None:
    """Soft placement; GPUs' memory grows, or is limited to the lease, if TensorFlow has not started.

    Where TensorFlow has CUDA it is started by this: by asking for TensorFlow's devices.
    """
    tf = _tensorflow()
    tf.config.set_soft_device_placement(True)
    for gpu in tf.config.list_physical_devices("GPU"):
        try:
            if choice.memory is None:
                tf.config.experimental.set_memory_growth(gpu, True)
            elif not tf.config.get_logical_device_configuration(gpu):
                mib = allocator_bytes(choice.memory) >> 20
                limit = tf.config.LogicalDeviceConfiguration(memory_limit=mib)
                tf.config.set_logical_device_configuration(gpu, [limit])
        except (RuntimeError, ValueError):
            return  # TensorFlow has started, or the program has set one of the two itself


def device_name(choice: Choice) -> str:
    """The first GPU as TensorFlow names it. With soft placement it need not be there."""
    return f"/GPU:{choice.ordinal}"


def enter(choice: Choice, stack: ExitStack) -> None:
    """Enters ``tf.device``."""
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
    return _tensorflow().compat.v1.Session(config=config)
