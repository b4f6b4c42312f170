"""A network of one's own: three linear layers of torch's, as a user writes them. compare_case.cpp has its C++ side.

From the same seed both have the same initial weights: C++ and Python draw them in the same order.
"""
import torch
from torch import nn

from twin.resnet18 import PlainTwin


class MlpTwin(PlainTwin):
    def __init__(self, seed):
        torch.manual_seed(seed)
        super().__init__(nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                                       nn.Linear(512, 10)))
