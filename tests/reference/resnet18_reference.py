#!/usr/bin/env python3
"""Reference values of the chapters' ResNet-18, computed with Python torch, for the C++ tests. Needs the full torch.
The network is scripts/compare/twin/resnet18.py's.

    tests/reference/resnet18_reference.py           writes the two files beside this script

Lists keep the network's own order, which is that of state_dict().

resnet18_initial.json: the start of the whole network
    {"torch": "2.11.0+cu130",
     "seed": 0,
     "parameters": [{"name": "0.weight", "shape": [64, 1, 3, 3], "sha256": see below}, ...], seed 0, init_weights
     "buffers": [{"name": "1.running_mean", "shape": [64], "dtype": "float32"}, ...],
     "starts": [{"seed": 1, "start": "normal", "sha256": of all parameters one after another}, ...]
        start: normal = init_weights, normal-zero-bias = that, then zero biases in the same layers,
               torch = as the layers are constructed}
sha256: of a tensor's values (float32, little endian, row by row).

resnet18_step.json: in float64; parameters: the float32 values converted
    batches: rows X (n, channels, height, width), element i of all = ((i * 37) % 256) / 255, i counted over the whole
             batch; label of row r = (r * 3) % classes; loss = mean over the rows of the cross entropy
    {"torch": ...,
     "chapter": one step of the whole network in training mode, start normal
        {"rows": 3, "seed": 0, "lr": 0.1, "loss_sum": rows * loss, "logits": [[10 numbers] for each row],
         "parameters": [{"name": ..., "grad_abs_max": ..., "at": flat indices (row-major), "grad": the gradient there,
                         "updated": the parameter there after the step}, ...],
         "buffers": [{"name": ..., "sum": of its elements after the step, "at": ..., "values": there}, ...],
         "evaluated": logits of the same rows in evaluation mode, after the step,
         "saved_per_row": floating point values that one more row makes autograd save for the backward pass (input
                          included, parameters not)},
     "plain": a network without batch normalisation, start torch, in training mode
        {"rows": ..., "channels": ..., "height": ..., "width": of the image, "stage_width": of the network,
         "classes": ..., "seed": ..., "loss_sum": ..., "logits": ..., "parameters": as above without "updated",
         "saved_per_row": as above}}
"""
import ctypes
import hashlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "scripts/compare"))
from twin.resnet18 import build  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def sha256(*tensors):
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
    return digest.hexdigest()


def initial(seed):
    net = build(seed, "normal")
    starts = [(1, "normal"), (0, "normal-zero-bias"), (0, "torch")]
    return dict(
        seed=seed,
        parameters=[dict(name=name, shape=list(p.shape), sha256=sha256(p)) for name, p in net.named_parameters()],
        buffers=[dict(name=name, shape=list(b.shape), dtype=str(b.dtype).removeprefix("torch."))
                 for name, b in net.named_buffers()],
        starts=[dict(seed=s, start=start, sha256=sha256(*build(s, start).parameters())) for s, start in starts])


def batch(rows, channels, height, width, classes):
    i = torch.arange(rows * channels * height * width, dtype=torch.float64)
    return (i * 37 % 256 / 255).reshape(rows, channels, height, width), torch.arange(rows) * 3 % classes


def places_of(values, count):
    """The place of the largest value, and places where `values` is not zero."""
    live = values.nonzero().flatten()
    places = (live[k * (len(live) - 1) // (count - 1)].item() for k in range(count)) if len(live) else ()
    return sorted({values.abs().argmax().item(), *places})


def gradients(net):
    def describe(name, grad):
        at = places_of(grad, 3)
        return dict(name=name, grad_abs_max=grad.abs().max().item(), at=at, grad=grad[at].tolist())

    return [describe(name, p.grad.flatten()) for name, p in net.named_parameters()]


def saved_per_row(net, *shape, classes):
    parameters = {p.untyped_storage().data_ptr() for p in net.parameters()}

    def saved(rows):
        storages = {}

        def pack(tensor):
            place = tensor.untyped_storage().data_ptr()
            if tensor.is_floating_point() and place not in parameters:
                storages[place] = tensor.numel()
            return tensor

        X, y = batch(rows, *shape, classes)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = F.cross_entropy(net(X), y)  # exists while the tensors are counted, so that no memory is used twice
        return sum(storages.values()), loss

    return (saved(4)[0] - saved(2)[0]) // 2


def step(rows, seed, lr):
    net = build(seed, "normal").double()
    X, y = batch(rows, 1, 28, 28, 10)
    logits = net(X)
    loss = F.cross_entropy(logits, y)
    loss.backward()
    described = gradients(net)
    with torch.no_grad():
        for entry, parameter in zip(described, net.parameters()):
            parameter -= lr * parameter.grad
            entry["updated"] = parameter.flatten()[entry["at"]].tolist()
    buffers = []
    for name, buffer in net.named_buffers():
        at = places_of(buffer.flatten(), 2)
        buffers.append(dict(name=name, sum=buffer.sum().item(), at=at, values=buffer.flatten()[at].tolist()))
    net.eval()
    with torch.no_grad():
        evaluated = net(X)
    net.train()
    return dict(rows=rows, seed=seed, lr=lr, loss_sum=rows * loss.item(), logits=logits.tolist(), parameters=described,
                buffers=buffers, evaluated=evaluated.tolist(),
                saved_per_row=saved_per_row(net, 1, 28, 28, classes=10))


def plain(rows, channels, height, width, stage_width, classes, seed):
    net = build(seed, "torch", classes=classes, channels=channels, width=stage_width, batch_norm=False).double()
    X, y = batch(rows, channels, height, width, classes)
    logits = net(X)
    loss = F.cross_entropy(logits, y)
    loss.backward()
    return dict(rows=rows, channels=channels, height=height, width=width, stage_width=stage_width, classes=classes,
                seed=seed, loss_sum=rows * loss.item(), logits=logits.tolist(), parameters=gradients(net),
                saved_per_row=saved_per_row(net, channels, height, width, classes=classes))


def write(name, content):
    """Writes each entry of a list of objects in one line."""
    def text(value, indent):
        inner = indent + " "
        if isinstance(value, dict):
            parts = [f"{inner}{json.dumps(key)}: {text(item, inner)}" for key, item in value.items()]
            return "{\n" + ",\n".join(parts) + "\n" + indent + "}"
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            return "[\n" + ",\n".join(inner + json.dumps(item) for item in value) + "\n" + indent + "]"
        return json.dumps(value)

    (HERE / name).write_text(text(dict(torch=torch.__version__, **content), "") + "\n")


if __name__ == "__main__":
    write("resnet18_initial.json", initial(seed=0))
    write("resnet18_step.json", dict(
        chapter=step(rows=3, seed=0, lr=0.1),
        plain=plain(rows=4, channels=3, height=13, width=10, stage_width=8, classes=7, seed=5)))
