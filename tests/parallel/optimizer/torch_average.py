"""Prints torch_average.inc: averages of weights by torch.optim.swa_utils.

torch_average.py > torch_average.inc    (made with torch 2.15.0)
"""
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS, SIZES = 6, [4, 3]


def values(step, k, size):
    """Numbers that float32 holds exactly."""
    return [((7 * i + 13 * step + 5 * k) % 32 - 16) / 8 for i in range(size)]


def averages(dtype, decay):
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(size, dtype=dtype)) for size in SIZES])
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    for step in range(STEPS):
        for k, param in enumerate(model):
            param.data = torch.tensor(values(step, k, param.numel()), dtype=dtype)
        averaged.update_parameters(model)
        yield step, torch.cat([param.detach() for param in averaged.module])


if __name__ == "__main__":
    for name, dtype, digits in [("kFloat32", torch.float32, 9), ("kFloat64", torch.float64, 17)]:
        for decay in [.999, .25]:
            for step, numbers in averages(dtype, decay):
                print(f"{{torch::{name}, {decay}, {step}, {{"
                      + ", ".join(f"{number:.{digits}g}" for number in numbers.tolist()) + "}},")
