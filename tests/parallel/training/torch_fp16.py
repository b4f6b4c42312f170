"""Prints torch_fp16.inc: steps in fp16 with torch.amp.GradScaler on the CPU, one of them skipped.

torch_fp16.py > torch_fp16.inc    (made with torch 2.15.0)

The network and its rows are those of trainer_fp16_test.cpp.
"""
import torch

STEPS, ROWS = 12, 4
FAR = 5  # the step whose targets are far away: its gradients overflow


def wave(*sizes, factor):
    count = torch.Size(sizes).numel()
    return (torch.arange(count, dtype=torch.float64) * factor).sin().view(sizes).float()


def train(make_optimizer):
    inner, outer = torch.nn.Linear(6, 5), torch.nn.Linear(5, 3)
    with torch.no_grad():
        for k, param in enumerate([*inner.parameters(), *outer.parameters()]):
            param.copy_(wave(*param.shape, factor=.7 + k) * .5)
    params = [*inner.parameters(), *outer.parameters()]
    inputs, targets = wave(STEPS * ROWS, 6, factor=.37), wave(STEPS * ROWS, 3, factor=.53)
    targets[FAR * ROWS:(FAR + 1) * ROWS] = 1000
    optimizer = make_optimizer(params)
    scaler = torch.amp.GradScaler("cpu", init_scale=8192, growth_interval=3)
    for step in range(STEPS):
        rows = slice(step * ROWS, (step + 1) * ROWS)
        with torch.autocast("cpu", torch.float16):
            outputs = outer(inner(inputs[rows]).tanh())
            loss = (outputs.float() - targets[rows]).square().sum() / ROWS
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(params, 2.)
        scaler.step(optimizer)
        scaler.update()
        yield loss.item(), scaler.get_scale(), scaler.state_dict()["_growth_tracker"]
    yield torch.cat([param.detach().flatten() for param in params]).tolist()


if __name__ == "__main__":
    for name, make in [("sgd", lambda params: torch.optim.SGD(params, lr=.05, momentum=.9)),
                       ("adam", lambda params: torch.optim.Adam(params, lr=.01))]:
        *steps, weights = train(make)
        print(f'{{"{name}",\n {{' + ",\n  ".join(f"{{{loss:.6g}, {scale:.0f}, {good}}}" for loss, scale, good in steps)
              + "},\n {" + ", ".join(f"{weight:.6g}" for weight in weights) + "}},")
