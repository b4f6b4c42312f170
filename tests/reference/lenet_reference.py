#!/usr/bin/env python3
"""Reference values of the scratch LeNet, computed with Python torch, for the C++ tests. Needs the full torch.

    tests/reference/lenet_reference.py           writes the two files beside this script

lenet_initial.json: the initial weights of seeds 0 and 1, as scripts/compare/baseline_pytorch.py draws them
    {"torch": "2.11.0+cu130",
     "seeds": {"0": {"W1": {"shape": [20, 1, 3, 3],
                            "sha256": of the tensor's bytes (float32, little endian, row by row),
                            "first": its first 3 values, exact: each is a float32}, "b1": ..., ... "b4": ...}, "1": ...}}

lenet_step.json: one step, all in float64
    rows X (n, 1, 28, 28), element i of all = ((i * 37) % 256) / 255, i counted over the whole batch; label of row
    r = (r * 3) % 10; parameters: the float32 weights of seed 0 converted to float64; loss = sum over the rows of the
    cross entropy; after backward each parameter -= lr / n * its gradient.
    {"torch": ..., "rows": 7, "seed": 0, "lr": 0.2,
     "loss_sum": number,
     "logits_row0": 10 numbers,
     "params": {"W1": {"grad_sum": sum of the gradient's elements (0 in W4 and b4 except for rounding: compare
                                   differences of gradients with grad_abs_max),
                       "grad_abs_max": its largest absolute element,
                       "at": flat indices (row-major),
                       "grad": the gradient there,
                       "updated": the parameter there after the step}, "b1": ..., ... "b4": ...}}
"""
import ctypes
import hashlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts/compare"))
from baseline_pytorch import NAMES, init_params, lenet, loss, sgd  # noqa: E402
import torch  # noqa: E402

ROWS, SEED, LR = 7, 0, 0.2


def initial(seed):
    def describe(tensor):
        raw = ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
        return dict(shape=list(tensor.shape), sha256=hashlib.sha256(raw).hexdigest(),
                    first=tensor.flatten()[:3].double().tolist())

    return {name: describe(param) for name, param in zip(NAMES, init_params(seed))}


def step():
    i = torch.arange(ROWS * 28 * 28, dtype=torch.float64)
    X = (i * 37 % 256 / 255).reshape(ROWS, 1, 28, 28)
    y = torch.arange(ROWS) * 3 % 10
    params = [param.double().requires_grad_() for param in init_params(SEED)]
    logits = lenet(X, params)
    loss_sum = loss(logits, y).sum()
    loss_sum.backward()
    grads = [param.grad.flatten().clone() for param in params]
    sgd(params, LR, ROWS)

    def describe(grad, param):
        # The place of the largest gradient, and a few places where it is not zero.
        live = grad.nonzero().flatten()
        at = sorted({grad.abs().argmax().item(), *(live[k * (len(live) - 1) // 4].item() for k in range(5))})
        return dict(grad_sum=grad.sum().item(), grad_abs_max=grad.abs().max().item(), at=at,
                    grad=grad[at].tolist(), updated=param.detach().flatten()[at].tolist())

    return dict(rows=ROWS, seed=SEED, lr=LR, loss_sum=loss_sum.item(), logits_row0=logits[0].tolist(),
                params={name: describe(*pair) for name, pair in zip(NAMES, zip(grads, params))})


def write(name, content):
    (HERE / name).write_text(json.dumps(dict(torch=torch.__version__, **content), indent=1) + "\n")


write("lenet_initial.json", dict(seeds={str(seed): initial(seed) for seed in (0, 1)}))
write("lenet_step.json", step())
