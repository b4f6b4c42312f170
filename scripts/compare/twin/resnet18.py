"""The concise multi-GPU chapters' ResNet-18 in Python torch: the twin of models/resnet18.cpp."""
import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the image is halved."""

    def __init__(self, channels_in, channels_out, stride=1, batch_norm=True):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1, stride=stride)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.conv3 = nn.Conv2d(channels_in, channels_out, 1, stride=stride) if stride > 1 else None
        self.bn1 = nn.BatchNorm2d(channels_out) if batch_norm else None
        self.bn2 = nn.BatchNorm2d(channels_out) if batch_norm else None

    def forward(self, X):
        normalise1, normalise2 = (bn or (lambda h: h) for bn in (self.bn1, self.bn2))
        h = F.relu(normalise1(self.conv1(X)))
        h = normalise2(self.conv2(h))
        return F.relu(h + (self.conv3(X) if self.conv3 else X))


def resnet18(classes=10, channels=1, width=64, batch_norm=True):
    first = [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width) if batch_norm else nn.Identity(), nn.ReLU()]
    net = nn.Sequential(*first)
    for stage in range(4):
        out = width << stage
        blocks = [Residual(out if stage == 0 else out // 2, out, 1 if stage == 0 else 2, batch_norm),
                  Residual(out, out, 1, batch_norm)]
        net.add_module(f"resnet_block{stage + 1}", nn.Sequential(*blocks))
    net.add_module("global_avg_pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(8 * width, classes)))
    return net


INITIALIZATIONS = ["torch", "normal", "normal-zero-bias"]


def build(seed, start, **size):
    """start: torch = torch's default initialisation, normal = the chapter's init_weights, normal-zero-bias = the latter
    with zero biases."""
    def init_weights(module):
        if type(module) in (nn.Linear, nn.Conv2d):
            nn.init.normal_(module.weight, std=0.01)
            if start == "normal-zero-bias":
                nn.init.zeros_(module.bias)

    torch.manual_seed(seed)
    net = resnet18(**size)
    if start != "torch":
        net.apply(init_weights)
    return net


class PlainTwin(nn.Module):
    """A network with the interface that training.py needs."""

    def __init__(self, net, momentum=0.0, weight_decay=0.0):
        super().__init__()
        self.net = net
        # Fused: one pass over parameters, gradients and momenta, as in lockstep.
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0, momentum=momentum, weight_decay=weight_decay,
                                         fused=True)

    def logits(self, X):
        return self.net(X)

    def forward(self, X, y):
        """Returns the sum of the rows' losses."""
        return F.cross_entropy(self.logits(X), y, reduction="sum")

    @staticmethod
    def objective(loss_sum, rows):
        """Returns what the backward pass starts from."""
        return loss_sum / rows

    def update(self, lr, rows):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self):
        return self.net.state_dict()


class ResNet18Twin(PlainTwin):
    def __init__(self, seed, start, momentum, weight_decay):
        super().__init__(build(seed, start), momentum, weight_decay)
