"""PyTorch's old types, such as `torch.cuda.FloatTensor`, under `python -m innkeeper`."""

# ruff: noqa: E501  (scripts in strings)

from __future__ import annotations

from managed_scripts import Scripts

ATTRIBUTES = """
import torch
kinds = [name for name in dir(torch) if name.endswith("Tensor") and type(getattr(torch, name)) is type(torch.FloatTensor)]
names = "dtype", "layout", "is_sparse", "is_sparse_csr", "is_xpu", "__name__", "__qualname__"
def attributes(kind):
    return [str(getattr(kind, name)) for name in names]
pairs = [(getattr(torch, name), getattr(torch.cuda, name)) for name in kinds]
pairs += [(getattr(torch.sparse, name), getattr(torch.cuda.sparse, name)) for name in kinds if name != "BoolTensor"]
"""


def test_a_type_has_the_attributes_of_its_counterpart_on_the_cpu(scripts: Scripts):
    code = """
print(len(pairs), [str(cuda) for cpu, cuda in pairs if attributes(cpu) != attributes(cuda) or not cuda.is_cuda])
print([str(cuda) for cpu, cuda in pairs if str(cuda) != str(cpu).replace("torch.", "torch.cuda.")])
print([str(cuda) for cpu, cuda in pairs if cuda.__module__ != cpu.__module__.replace("torch", "torch.cuda", 1)])
print(torch.cuda.FloatTensor.add(torch.ones(1).cuda(), 1).tolist(), hasattr(torch.cuda.FloatTensor, "nothing"))
try:
    torch.cuda.FloatTensor.nothing
except AttributeError as error:
    print(error)
"""
    assert scripts.ok(ATTRIBUTES + code).splitlines() == [
        "19 []",
        "[]",
        "[]",
        "[2.0] False",
        "type object 'torch.cuda.FloatTensor' has no attribute 'nothing'",
    ]


def test_types_go_through_a_pickle_and_by_name(scripts: Scripts):
    code = """
import pickle
kinds = [torch.cuda.FloatTensor, torch.cuda.sparse.HalfTensor, torch.cuda.FloatStorage]
print([pickle.loads(pickle.dumps(kind)) is kind for kind in kinds], [torch.typename(kind) for kind in kinds])
print([b"managed" in pickle.dumps(kind) for kind in kinds])
"""
    assert scripts.ok("import torch" + code).splitlines() == [
        "[True, True, True] ['torch.cuda.FloatTensor', 'torch.cuda.sparse.HalfTensor', 'torch.cuda.FloatStorage']",
        "[False, False, False]",
    ]


def test_storages_are_of_cuda_s_types(scripts: Scripts):
    code = """
import torch
s, cpu = torch.ones(2).cuda().storage(), torch.ones(2).storage()
print(s.type(), torch.cuda.FloatStorage, torch.cuda.FloatStorage.__module__, torch.cuda.FloatStorage([1, 2]).device)
print([isinstance(x, kind) for x in (s, cpu) for kind in (torch.cuda.FloatStorage, torch.FloatStorage, torch.cuda.HalfStorage)])
"""
    assert scripts.ok(code).splitlines() == [
        "torch.cuda.FloatStorage <class 'torch.cuda.FloatStorage'> torch.cuda cuda:0",
        "[True, False, False, False, True, False]",
    ]


def test_sparse_types_make_and_know_tensors(scripts: Scripts):
    code = """
import torch
T = torch.cuda.sparse.FloatTensor
i, v = torch.tensor([[0, 1], [1, 0]]).cuda(), torch.ones(2).cuda()
made = [T(i, v, torch.Size([2, 3])), T(i, v), T(2, 3), T(torch.Size([2, 3])), T(size=(2, 3)), T(), T(2, device="cuda:1"), T(indices=i, values=v)]
for x in made:
    print(x.type(), x.device, tuple(x.shape), x._nnz(), isinstance(x, T))
print(made[0].to_dense().tolist(), torch.cuda.sparse.DoubleTensor(2).dtype)
with torch.cuda.device(1):
    print(T(2).device)
dense, other = torch.ones(2, 2).cuda(), torch.sparse_coo_tensor(i.cpu(), v.cpu())
print([isinstance(x, kind) for x in (made[0], dense, other, made[0].double(), dense.to_sparse_csr(), 1) for kind in (T, torch.cuda.FloatTensor)])
double = made[0].double()
print(double.type(T).type(), double.type("torch.cuda.sparse.HalfTensor").type(), other.type(T).device, other.double().type(dtype=T).dtype)
for wrong in (lambda: T([1, 2]), lambda: T("a"), lambda: T(i), lambda: torch.set_default_tensor_type(T),
              lambda: torch.set_default_tensor_type("torch.cuda.sparse.FloatTensor")):
    try:
        wrong()
    except TypeError as error:
        print(str(error).splitlines()[0])
"""
    sparse = "torch.cuda.sparse.FloatTensor"
    assert scripts.ok(code).splitlines() == [
        f"{sparse} cuda:0 (2, 3) 2 True",
        f"{sparse} cuda:0 (2, 2) 2 True",
        f"{sparse} cuda:0 (2, 3) 0 True",
        f"{sparse} cuda:0 (2, 3) 0 True",
        f"{sparse} cuda:0 (2, 3) 0 True",
        f"{sparse} cuda:0 (0,) 0 True",
        f"{sparse} cuda:1 (2,) 0 True",
        f"{sparse} cuda:0 (2, 2) 2 True",
        "[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]] torch.float64",
        "cuda:1",
        "[True, False, False, True, False, False, False, False, False, False, False, False]",
        f"{sparse} torch.cuda.sparse.HalfTensor cuda:0 torch.float32",
        "torch.sparse.SparseTensor(sequence) only accepts sizes.  Please use torch.sparse_coo_tensor() or construct a strided tensor and convert it to sparse via to_sparse.",
        "new() received an invalid combination of arguments - got (str), but expected one of:",
        "new() received an invalid combination of arguments - got (Tensor), but expected one of:",
        "only dense types are supported as the default type",
        "only dense types are supported as the default type",
    ]


def test_layouts_without_a_type_are_refused_in_cuda_s_words(scripts: Scripts):
    """PyTorch has no such type's name for CUDA; of the CPU it has that of quantized tensors alone."""
    code = """
import torch
x = torch.ones(4, 4).cuda()
made = [x.to_sparse_csr(), x.to_sparse_csc(), x.to_sparse_bsr((2, 2)), x.to_sparse_bsc((2, 2)), torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)]
for x in made:
    for ask in (x.type, lambda: torch.typename(x)):
        try:
            ask()
        except RuntimeError as error:
            print(error)
"""
    compressed, quantized = "Unimplemented backend SparseCsrCUDA", "Unimplemented backend QuantizedCUDA"
    assert scripts.ok(code).splitlines() == [compressed] * 8 + [quantized] * 2
