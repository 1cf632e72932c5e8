"""Gradients of functions that cross from one GPU to another, checked numerically."""

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

cuda = torch.cuda.is_available()


def gpu(i):
    return f"cuda:{i}" if cuda else "cpu"


def leaf(*shape, i=0):
    return torch.randn(*shape, dtype=torch.double).to(gpu(i)).requires_grad_()


def there_and_back(x):
    return torch.tanh(x.to(gpu(1)) ** 2).to(gpu(0)) * x


def product(x, w):  # x is on the first GPU, w on the second.
    return torch.sigmoid(x.to(w.device) @ w).sum(0)


def zigzag(x, y):
    for i in range(4):
        x, y = y.to(gpu(i % 2)), (x.to(gpu(i % 2)) * y.to(gpu(i % 2))).sin()
    return x.to(gpu(0)), y


class Remote(torch.autograd.Function):
    """The softplus of its input, which the second GPU computes both ways."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.log1p(torch.exp(x.to(gpu(1)))).to(x.device)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return (grad.to(gpu(1)) * torch.sigmoid(x.to(gpu(1)))).to(x.device)


torch.manual_seed(0)
x, w, y = leaf(6, 5), leaf(5, 4, i=1), leaf(6, 5, i=1)
print("there and back", gradcheck(there_and_back, (x,), check_forward_ad=True, check_batched_grad=True))
print("fast", gradcheck(there_and_back, (x,), fast_mode=True))
print("product", gradcheck(product, (x, w)), gradgradcheck(product, (x, w)))
print("zigzag", gradcheck(zigzag, (x, y), check_forward_ad=True))
print("function", gradcheck(Remote.apply, (x,)), gradgradcheck(Remote.apply, (x,)))
linear = torch.nn.Linear(5, 3).double().to(gpu(1))
print("module", gradcheck(lambda x: linear(x.to(gpu(1))).to(gpu(0)), (x,)))
try:
    gradcheck(lambda x: x.to(gpu(1)) * x.detach().to(gpu(1)), (x,))
except GradcheckError as error:
    print("a wrong gradient is found:", str(error).splitlines()[0])

for gradient, input in zip(torch.autograd.grad(product(x, w).sum(), (x, w)), (x, w)):
    assert gradient.device == input.device
    print(gradient.sum(0).tolist())
jacobian = torch.autograd.functional.jacobian(product, (x, w))
hessian = torch.autograd.functional.hessian(lambda v: product(v, w.detach()).sum(), x)
print([j.norm().item() for j in jacobian], hessian.norm().item())
_, tangent = torch.func.jvp(lambda v: product(v, w.detach()), (x.detach(),), (torch.ones_like(x),))
print(tangent.tolist())
