"""Effects of a choice on PyTorch, TensorFlow and JAX: the real packages, on the CPU, with fake GPUs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest
from fake_machine import FakeMachine


def need(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def test_none_is_imported_and_cuda_is_not_started(machine: FakeMachine):
    said = machine.run(
        """
import torch
with innkeeper.auto_choice(memory=1 << 30), innkeeper.GPUManager().auto_choice():
    pass
print(sorted({"tensorflow", "jax"} & set(sys.modules)), torch.cuda.is_initialized())
"""
    )
    assert said == ["[] False"]


FAKE_TORCH = """
import types, torch
from innkeeper.frameworks import torch_gpu
calls = []
started = False
queue = []
torch.backends.cuda.is_built = lambda: True
torch.cuda._is_in_bad_fork = lambda: False
torch.cuda.is_initialized = lambda: started
torch.cuda._lazy_call = lambda f: f() if started else queue.append(f)
torch.cuda.get_device_properties = lambda i: types.SimpleNamespace(total_memory=[24 << 30, 80 << 30][i])
torch.cuda.set_per_process_memory_fraction = lambda part, i: calls.append((round(part, 6), i))
class Device:
    def __init__(self, i): self.i = i
    def __enter__(self): calls.append(("in", self.i))
    def __exit__(self, *_): calls.append(("out", self.i))
torch.cuda.device = Device
"""
"""PyTorch's CUDA, played by what its Python side calls, since no GPU is here."""


def test_pytorch_is_limited_when_cuda_starts_and_not_before(machine: FakeMachine):
    said = machine.run(
        FAKE_TORCH
        + """
over = innkeeper.auto_choice(1, memory=1 << 30)
over.release()
with innkeeper.auto_choice(1, memory=6 << 30) as first:  # B
    print(first.uuids == [B], calls)
    started = True
    for each in queue: each()
    print(calls == [(round(5.5 / 24, 6), 0)])
    calls.clear()
    with innkeeper.auto_choice(0, memory=17 << 29) as second:  # A
        print(second.uuids == [A], calls)
        calls.clear()
    print(calls)
    calls.clear()
print(calls)
print(torch_gpu.allocator_bytes(600 << 20) >> 20)
"""
    )
    assert said == [
        "True []",
        "True",
        "True [(0.1, 1), ('in', 1)]",
        "[('out', 1), (1.0, 1)]",
        "[(1.0, 0)]",
        "300",
    ]


def test_pytorch_s_limit_is_lifted_from_the_gpus_that_are_left(machine: FakeMachine):
    """A GPU without which CUDA was started prevents neither the others' end nor the lease's."""
    said = machine.run(
        FAKE_TORCH
        + """
import ctypes
cuda = ctypes.CDLL(os.environ["FAKE_CUDA"])
choice = innkeeper.auto_choice(n=3, memory=1 << 30)
os.environ["CUDA_VISIBLE_DEVICES"] = f"{B},{C}"  # the program's own doing
cuda.cuInit(0)
started = True
choice.release()
print(sorted(calls), choice.lease.held)
"""
    )
    assert said == ["[(1.0, 0), (1.0, 1)] False"]


def test_pytorch_s_limit_is_that_of_all_choices_of_a_gpu_together(machine: FakeMachine):
    said = machine.run(
        FAKE_TORCH
        + """
os.environ["CUDA_VISIBLE_DEVICES"] = B
first, second, third = (innkeeper.auto_choice(memory=gib << 30) for gib in (6, 4, 2))
second.release()
started = True
for each in queue: each()
second = innkeeper.auto_choice(memory=4 << 30)
innkeeper.auto_choice().release()
for each in (first, third, second):
    each.release()
print([round(part * 24, 2) for part, i in calls])
"""
    )
    # The one CUDA context that they all share takes 512 MiB.
    assert said == ["[7.5, 7.5, 11.5, 5.5, 3.5, 24.0]"]


TENSORFLOW = """
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import warnings, tensorflow as tf
"""


FAKE_TENSORFLOW = """
import contextlib, ctypes, types
seen = []  # what CUDA_VISIBLE_DEVICES was when TensorFlow started CUDA, and the names entered
shown = None
tf = types.ModuleType("tensorflow")
def start():
    global shown
    if shown is None:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", "A,B,C").split(",")
        ctypes.CDLL(os.environ["FAKE_CUDA"]).cuInit(0)
    return [f"physical:{ordinal}" for ordinal in range(len(shown))]
limits = {}
tf.config = types.SimpleNamespace(
    set_soft_device_placement=lambda on: None,
    list_physical_devices=lambda kind=None: start(),
    get_logical_device_configuration=limits.get,
    set_logical_device_configuration=lambda gpu, parts: limits.update({gpu: parts[0].memory_limit}),
    LogicalDeviceConfiguration=lambda memory_limit: types.SimpleNamespace(memory_limit=memory_limit),
)
@contextlib.contextmanager
def device(name):
    seen.append(name)
    yield
tf.device = device
class Config:
    def __init__(self):
        self.allow_soft_placement = False
        self.gpu_options = types.SimpleNamespace(allow_growth=False)
    def CopyFrom(self, other):
        self.__dict__.update(other.__dict__)
class Session:
    sess_str = ""
    def __init__(self, target="", graph="default graph", config=None):
        self.graph, self._config = graph, config
    def run(self):
        return start()
tf.compat = types.SimpleNamespace(v1=types.SimpleNamespace(ConfigProto=Config, Session=Session))
sys.modules["tensorflow"] = tf
"""
"""TensorFlow, played by what is asked of it. CUDA starts when its devices are asked for, or by run()."""


def test_several_choices_before_tensorflow_s_session_are_several_gpus(machine: FakeMachine):
    said = machine.run(
        FAKE_TENSORFLOW
        + """
gm = innkeeper.GPUManager(initSession=False)
kept = [gm.auto_choice(mode=mode) for mode in (0, 1, 3)]
print([choice.uuids[0] for choice in kept] == [A, B, C], shown, os.environ["TF_FORCE_GPU_ALLOW_GROWTH"])
Session().run()
print(len(shown), [choice.ordinal for choice in kept])
for choice in kept:
    with choice:
        pass
print(seen, os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH"), limits)
"""
    )
    assert said == ["True None true", "3 [0, 1, 2]", "['/GPU:0', '/GPU:1', '/GPU:2'] None {}"]


def test_tensorflow_s_memory_is_limited_when_a_choice_is_entered(machine: FakeMachine):
    said = machine.run(
        FAKE_TENSORFLOW
        + """
gm = innkeeper.GPUManager(initSession=False)
first, second = gm.auto_choice(0, memory=8 << 30), gm.auto_choice(1, memory=4 << 30)
print(shown, limits)
with first:
    print(len(shown), limits)
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "false"  # the program's own
second.release()
print(os.environ["TF_FORCE_GPU_ALLOW_GROWTH"])
with gm.auto_choice():
    print(os.environ["TF_FORCE_GPU_ALLOW_GROWTH"])
"""
    )
    assert said == ["None {}", "2 {'physical:0': 7680, 'physical:1': 3584}", "false", "false"]


def test_a_session_gets_the_two_settings(machine: FakeMachine):
    said = machine.run(
        FAKE_TENSORFLOW
        + """
plain = Session(graph="mine")
for manager in (innkeeper.GPUManager(session=plain), innkeeper.GPUManager(plain)):
    made = manager.sess
    print(made is plain, made.graph, made._config.allow_soft_placement, made._config.gpu_options.allow_growth)
print(innkeeper.GPUManager(made).sess is made, innkeeper.GPUManager(Config()).sess.graph)
for wrong in (3, lambda: 0):
    try:
        innkeeper.GPUManager(wrong)
    except TypeError as error:
        print(error)
"""
    )
    kinds = ("int", "function")
    assert said == [
        *["False mine True True"] * 2,
        "True default graph",
        *(f"session is a tf.compat.v1.Session or a ConfigProto, got {kind}" for kind in kinds),
    ]


@pytest.fixture
def tensorflow(machine: FakeMachine) -> Callable[[str], list[str]]:
    """Lines that a program with TensorFlow prints."""
    need("tensorflow")
    return lambda program: machine.run(TENSORFLOW + program)


@pytest.mark.slow
def test_tensorflow_2_enters_the_device_softly(tensorflow: Callable[[str], list[str]]):
    said = tensorflow(
        """
names = []
real = tf.device
tf.device = lambda name: (names.append(name), real(name))[1]
gm = innkeeper.GPUManager(initSession=False)
with gm.auto_choice():
    x = tf.constant([[1.0, 2.0]]) @ tf.constant([[3.0], [4.0]])
print(names, x.numpy().tolist(), tf.config.get_soft_device_placement())
with gm.auto_choice(1) as outer, gm.auto_choice(0) as inner:
    print(names[1:], outer.uuids == [B], inner.uuids == [A])
print(tf.constant(1).device.rsplit("/", 1)[1])
try:
    gm.sess
except AttributeError as error:
    print(error)

# Its GPUs, which are not here, are played by what tf.config is told of them.
calls = []
config = tf.config
config.list_physical_devices = lambda kind=None: ["one", "two"]
config.get_logical_device_configuration = lambda gpu: None
config.experimental.set_memory_growth = lambda gpu, on: calls.append((gpu, on))
config.set_logical_device_configuration = lambda gpu, parts: calls.append((gpu, parts[0].memory_limit))
with gm.auto_choice():
    print(calls, os.environ["TF_FORCE_GPU_ALLOW_GROWTH"])
print(os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH"))
with gm.auto_choice(memory=8 << 30):
    print(calls)
def started(*_):
    raise RuntimeError("cannot be modified once it was initialized")
config.set_logical_device_configuration = started
with gm.auto_choice(memory=8 << 30) as still:
    print(still.lease.held)
"""
    )
    assert said == [
        "['/GPU:0'] [[11.0]] True",
        "['/GPU:0', '/GPU:1'] True True",
        "device:CPU:0",
        "this GPUManager has no session: it was made with initSession=False",
        *("[] true", "None"),
        *("[('one', 7680)]", "True"),
    ]


@pytest.mark.slow
def test_tensorflow_1_as_the_manager_s_users_write_it(tensorflow: Callable[[str], list[str]]):
    said = tensorflow(
        """
tf1 = tf.compat.v1
tf1.disable_eager_execution()
gm = innkeeper.GPUManager()
sess = gm.sess
with gm.auto_choice():
    x = tf1.placeholder(tf.float32, [2])
    w = tf1.get_variable("w", initializer=[3.0, 4.0])
    y = tf1.reduce_sum(w * x)
    sess.run(tf1.global_variables_initializer())
    print(sess.run(y, {x: [1.0, 2.0]}), y.device)
print(sess._config.allow_soft_placement, sess._config.gpu_options.allow_growth)

mine = tf1.Session(config=tf1.ConfigProto(allow_soft_placement=True,
                                          gpu_options=tf1.GPUOptions(allow_growth=True)))
print(innkeeper.GPUManager(session=mine).sess is mine, innkeeper.GPUManager(mine).sess is mine)
graph = tf1.Graph()
with graph.as_default():
    plain = tf1.Session(config=tf1.ConfigProto(intra_op_parallelism_threads=2))
    made = innkeeper.GPUManager(plain).sess
    print(made.graph is graph, made._config.allow_soft_placement, made._config.intra_op_parallelism_threads)
config = tf1.ConfigProto(intra_op_parallelism_threads=1)
made = innkeeper.GPUManager(session=config).sess._config
print(made.intra_op_parallelism_threads, made.allow_soft_placement, made.gpu_options.allow_growth)
print(config.allow_soft_placement)
"""
    )
    assert said == [
        *("11.0 /device:GPU:0", "True True", "True True", "True True 2"),
        *("1 True True", "False"),
    ]


def test_jax_s_part_is_that_of_all_choices_together(machine: FakeMachine):
    """The choice reads only the variable, so an empty module stands in for JAX."""
    said = machine.run(
        """
import types
sys.modules["jax"] = types.ModuleType("jax")
def choice(uuid, gib):
    return innkeeper.auto_choice(key=lambda gpu: gpu.uuid == uuid, memory=gib << 30)
def part():
    said = os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION")
    return said and round(float(said) * 24, 1)
os.environ["CUDA_VISIBLE_DEVICES"] = f"{B},{C}"
first = choice(B, 6)
print(part())
second = choice(C, 3)
print(part())
third = choice(B, 6)
print(first.uuids == third.uuids == [B], part())
second.release()
print(part())
first.release()
print(part())
third.release()
print(part())
first = choice(B, 6)
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.5"  # the program's own stays
second = choice(C, 3)
first.release()
second.release()
print(part())
"""
    )
    # Of B, which has 24 GiB: 6, then 3 of C's 32 are less, even if B has 12; then B's 12 and 6. Each time the
    # CUDA context takes 512 MiB.
    assert said == ["5.5", "1.9", "True 1.9", "11.5", "5.5", "None", "12.0"]


def test_jax_takes_its_part_at_once_or_as_it_needs_it(machine: FakeMachine):
    said = machine.run(
        """
import types
sys.modules["jax"] = types.ModuleType("jax")
def said():
    return os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE")
for growth in (None, True, False):
    choice = innkeeper.auto_choice(memory=6 << 30, growth=growth)
    print(said())
    choice.release()
print(said())
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the program's own stays
choice = innkeeper.auto_choice(memory=6 << 30, growth=False)
print(said())
choice.release()
try:
    innkeeper.auto_choice(growth=False)
except ValueError as error:
    print(error)
"""
    )
    assert said[:5] == ["None", "false", "true", "None", "false"]
    assert "say how much" in said[5]


def test_pytorch_takes_its_memory_when_cuda_starts(machine: FakeMachine):
    said = machine.run(
        FAKE_TORCH
        + """
torch.cuda.memory_reserved = lambda i: 1 << 30
torch.cuda.caching_allocator_alloc = lambda n, i: (calls.append((n / 2**30, i)), 77)[1]
torch.cuda.caching_allocator_delete = lambda address: calls.append(address)
innkeeper.auto_choice(1, memory=6 << 30, growth=True).release()
with innkeeper.auto_choice(1, memory=6 << 30, growth=False):
    print(calls)
    started = True
    for each in queue: each()
    print(calls[1:])
"""
    )
    assert said == ["[]", "[(4.5, 0), 77]"]  # Of 5.5 GiB, 1 is present.


@pytest.mark.slow
def test_jax_has_its_default_device(machine: FakeMachine):
    need("jax")
    said = machine.run(
        """
import jax, jax.numpy as jnp
with innkeeper.auto_choice(memory=17 << 29):  # JAX has no GPU: nothing is entered, the limit stands
    print(float(jnp.ones(3).sum()), os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"])
print("XLA_PYTHON_CLIENT_MEM_FRACTION" in os.environ)

real = jax.local_devices  # three CPU devices stand for the GPUs
jax.local_devices = lambda backend=None: real(backend="cpu")
with innkeeper.auto_choice(1) as outer, innkeeper.auto_choice(0) as inner:
    print(outer.ordinal, inner.ordinal, jnp.ones(3).devices() == {real(backend="cpu")[1]})
print(jnp.ones(3).devices() == {real(backend="cpu")[0]})
""",
        XLA_FLAGS="--xla_force_host_platform_device_count=3",
        JAX_PLATFORMS="cpu",
    )
    assert said == ["3.0 0.1000", "False", "0 1 True", "True"]
