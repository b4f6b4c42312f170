"""The Python side of python_goes_on.sh. Needs torch and safetensors.

A network that goes on from a checkpoint in double, with torch's own optimizer, says what is exact. After 20 steps
lockstep's weights in fp32 may be as far from it as step_parity.py allows after one: 3 times as far as Python's in fp32.
"""
import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT / "scripts/compare"), str(ROOT / "tests/models")]
from twin.data import epoch_batches, load_set  # noqa: E402
from twin.lenet import LeNetTwin  # noqa: E402
from twin.resnet18 import resnet18  # noqa: E402
from step_parity import errors, floats, judge, worst  # noqa: E402

BEFORE, AFTER = 4, 24  # steps of the checkpoints
MOMENTUM = .9
CLOSE = .1  # error of Python's fp32; where it is larger, three times of it says nothing
LOGITS = 1e-6  # difference of logits, relative to the largest


def network(model, weights, dtype):
    net = LeNetTwin(0) if model == "lenet" else resnet18()
    net.load_state_dict(weights)  # strict: all names and shapes must match
    return net.to(dtype)


def logits(net, X):
    return net.logits(X) if hasattr(net, "logits") else net(X)


def check_logits(folder, model, seed):
    run = folder / f"{model}-{seed}"
    checkpoint = run / f"checkpoints/step-{BEFORE:08}"
    net = network(model, load_file(checkpoint / "model.safetensors"), torch.float64).eval()
    momentum = {name: tensor.shape for name, tensor in load_file(checkpoint / "optimizer.safetensors").items()}
    if momentum != {f"momentum_buffer.{name}": parameter.shape for name, parameter in net.named_parameters()}:
        sys.exit(f"{model}: the optimizer's tensors are not the parameters' momenta: {momentum}")
    with torch.no_grad():
        exact = logits(net, load_file(folder / "images.safetensors")["X"].double())
    for name, tensor in load_file(run / "logits.safetensors").items():
        error = ((tensor - exact).abs().max() / exact.abs().max()).item()
        print(f"{model}: logits in {name} differ by {error:.1e}")
        if not error <= LOGITS:
            sys.exit(f"{model}: the logits are not Python's")


def go_on(args, run, seed, dtype, with_momentum=True):
    """Returns the weights of Python's network after the remaining steps."""
    checkpoint = run / f"checkpoints/step-{BEFORE:08}"
    net = network("lenet", load_file(checkpoint / "model.safetensors"), dtype).train()
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=MOMENTUM)
    momentum = load_file(checkpoint / "optimizer.safetensors")
    for name, parameter in net.named_parameters():
        if with_momentum:
            optimizer.state[parameter]["momentum_buffer"] = momentum[f"momentum_buffer.{name}"].to(dtype)
    pixels, labels = load_set(args.folder, "train")
    order = argparse.Namespace(seed=seed, batch_size=args.batch_size)
    batches = [rows for epoch in range(6) for rows in epoch_batches(order, epoch, len(labels))]
    for rows in batches[BEFORE:AFTER]:
        optimizer.zero_grad()
        X, y = pixels[rows].to(dtype) / 255, labels[rows]
        torch.nn.functional.cross_entropy(logits(net, X), y).backward()
        optimizer.step()
    return floats({name: tensor.detach() for name, tensor in net.state_dict().items()})


def compare(args):
    found, host, forgetful = [], [], []
    for seed in range(args.seeds):
        run = args.folder / f"lenet-{seed}"
        start = floats(load_file(run / f"checkpoints/step-{BEFORE:08}/model.safetensors"))
        ended = floats(load_file(run / f"checkpoints/step-{AFTER:08}/model.safetensors"))
        exact = go_on(args, run, seed, torch.float64)
        found.append(errors(ended, exact, start))
        host.append(errors(go_on(args, run, seed, torch.float32), exact, start))
        forgetful.append(errors(go_on(args, run, seed, torch.float32, with_momentum=False), exact, start))
    for who, seeds in (("lockstep", found), ("Python", host), ("without momentum", forgetful)):
        error, name = worst(seeds)
        print(f"lenet, {who}: error {error:.1e} at most, in {name} (median of {args.seeds} seeds)")
    if worst(host)[0] > CLOSE:
        sys.exit(f"lenet: Python in fp32 and in double are too far from each other to compare with")
    if wrong := judge(found, host):
        sys.exit(f"lenet: wrong in {', '.join(wrong)}")
    if not judge(forgetful, host):
        sys.exit(f"lenet: a network that has lost its momentum passes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--seeds", type=int, required=True)
    args = parser.parse_args()
    for model, seed in [*(("lenet", seed) for seed in range(args.seeds)), ("resnet18", 0)]:
        check_logits(args.folder, model, seed)
    compare(args)


if __name__ == "__main__":
    main()
