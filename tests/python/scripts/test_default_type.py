"""`torch.set_default_tensor_type` of a CUDA type, under `python -m innkeeper`."""

# ruff: noqa: E501  (scripts in strings)

from __future__ import annotations

from managed_scripts import Scripts


def test_the_default_type_is_one_of_cuda(scripts: Scripts):
    """As in the detectors of 2017 to 2021, whose anchors and priors torch.Tensor(...) makes."""
    code = """
import numpy, torch
plain = torch.ones(2)
torch.set_default_tensor_type("torch.cuda.FloatTensor")
made = [torch.Tensor(2, 3), torch.Tensor([[1, 2]]), torch.Tensor(torch.Size([4])), torch.Tensor(), torch.ones(2),
        torch.Tensor(numpy.int64(3)), torch.Tensor(numpy.arange(2)), torch.tensor([1.5]), torch.Tensor([numpy.float64(2)])]
print({x.type() for x in made}, [tuple(x.shape) for x in made], made[1].tolist(), made[6].tolist())
print(torch.Tensor(plain).device, torch.FloatTensor(2).device, torch.nn.Parameter(torch.Tensor(2)).device)
with torch.cuda.device(1):
    print(torch.Tensor(2).device)
size = torch.tensor([2, 3]).max()
print(torch.Tensor(size, 4).device, torch.Tensor([1.0], device="cuda:1").device, torch.Tensor(data=[1.0]).device,
      torch.Tensor(made[4].untyped_storage()).tolist())
class Mine(torch.Tensor): pass
print(type(Mine(2)).__name__, Mine([1.0]).device)
for wrong in (lambda: torch.Tensor(True), lambda: torch.set_default_tensor_type(torch.float32),
              lambda: torch.set_default_tensor_type("torch.cuda.LongTensor")):
    try:
        wrong()
    except TypeError as error:
        print(error)
@torch.compile(backend="eager")
def compiled(x):
    return x * torch.Tensor([2.0])
print(compiled(torch.Tensor([3.0])), torch.optim.SGD([torch.Tensor(2).requires_grad_()], 0.1).step())
for name in ("torch.DoubleTensor", torch.FloatTensor, "torch.FloatTensor"):
    torch.set_default_tensor_type(name)
    print(torch.Tensor(2).type(), torch.ones(1).type(), "__new__" in vars(torch.Tensor))
"""
    assert scripts.ok(code).splitlines() == [
        "{'torch.cuda.FloatTensor'} [(2, 3), (1, 2), (4,), (0,), (2,), (3,), (2,), (1,), (1,)] "
        "[[1.0, 2.0]] [0.0, 1.0]",
        "cpu cpu cuda:0",
        "cuda:1",
        "cuda:0 cuda:1 cuda:0 [1.0, 1.0]",
        "Mine cuda:0",
        "new(): data must be a sequence (got bool)",
        "invalid type object: only floating-point types are supported as the default type",
        "only floating-point types are supported as the default type",
        "tensor([6.], device='cuda:0') None",
        "torch.DoubleTensor torch.DoubleTensor False",
        "torch.FloatTensor torch.FloatTensor False",
        "torch.FloatTensor torch.FloatTensor False",
    ]


def test_the_default_type_is_that_of_every_thread(scripts: Scripts):
    code = """
import threading, torch
from concurrent.futures import ThreadPoolExecutor
def made(_=None):
    return str(torch.zeros(1).device), str(torch.Tensor(1).device)
class Worker(threading.Thread):
    def run(self):
        self.made = made()
def of_a_worker():
    worker = Worker()
    worker.start()
    worker.join()
    return worker.made
torch.set_default_tensor_type("torch.cuda.FloatTensor")
with ThreadPoolExecutor(2) as pool:
    print(made(), of_a_worker(), *pool.map(made, range(2)))
    torch.set_default_tensor_type("torch.FloatTensor")
    print(made(), of_a_worker())
    with ThreadPoolExecutor(1) as other:
        print(*other.map(made, range(1)))
print(threading.Thread.start is threading.Thread.__dict__["start"], threading.Thread.start.__module__)
"""
    cuda, cpu = "('cuda:0', 'cuda:0')", "('cpu', 'cpu')"
    assert scripts.ok(code).splitlines() == [
        f"{cuda} {cuda} {cuda} {cuda}",
        f"{cpu} {cpu}",
        cpu,
        "True threading",
    ]


def test_a_thread_leaves_no_default_device_behind(scripts: Scripts):
    """PyTorch would drop it when the thread has ended; concurrently with the program's end that ends the process."""
    code = """
import threading, torch
class Worker(threading.Thread):
    def run(self):
        self.within = torch._C._len_torch_function_stack()
        raise SystemExit
    def _delete(self):  # the last that Python does in a thread
        self.left = torch._C._len_torch_function_stack()
        super()._delete()
torch.set_default_tensor_type("torch.cuda.FloatTensor")
worker = Worker()
worker.start()
worker.join()
print(worker.within, worker.left)
"""
    assert scripts.ok(code) == "1 0\n"
