"""The multi-GPU chapter's scratch LeNet in Python torch: network, loss and update are the chapter's lines."""
import torch
from torch import nn
from torch.nn import functional as F

NAMES = ["W1", "b1", "W2", "b2", "W3", "b3", "W4", "b4"]


def init_params(seed):
    torch.manual_seed(seed)
    scale = 0.01
    W1 = torch.randn(size=(20, 1, 3, 3)) * scale
    b1 = torch.zeros(20)
    W2 = torch.randn(size=(50, 20, 5, 5)) * scale
    b2 = torch.zeros(50)
    W3 = torch.randn(size=(800, 128)) * scale
    b3 = torch.zeros(128)
    W4 = torch.randn(size=(128, 10)) * scale
    b4 = torch.zeros(10)
    return [W1, b1, W2, b2, W3, b3, W4, b4]


def lenet(X, params):
    h1_conv = F.conv2d(input=X, weight=params[0], bias=params[1])
    h1_activation = F.relu(h1_conv)
    h1 = F.avg_pool2d(input=h1_activation, kernel_size=(2, 2), stride=(2, 2))
    h2_conv = F.conv2d(input=h1, weight=params[2], bias=params[3])
    h2_activation = F.relu(h2_conv)
    h2 = F.avg_pool2d(input=h2_activation, kernel_size=(2, 2), stride=(2, 2))
    h2 = h2.reshape(h2.shape[0], -1)
    h3_linear = torch.mm(h2, params[4]) + params[5]
    h3 = F.relu(h3_linear)
    y_hat = torch.mm(h3, params[6]) + params[7]
    return y_hat


loss = nn.CrossEntropyLoss(reduction="none")


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()


class LeNetTwin(nn.Module):
    """The chapter's lines with the interface that training.py needs.

    A module, since DistributedDataParallel and torch.compile take modules.
    """

    def __init__(self, seed):
        super().__init__()
        self.params = [nn.Parameter(param) for param in init_params(seed)]
        for name, param in zip(NAMES, self.params):
            self.register_parameter(name, param)

    def logits(self, X):
        return lenet(X, self.params)

    def forward(self, X, y):
        """Returns the sum of the rows' losses."""
        return loss(self.logits(X), y).sum()

    @staticmethod
    def objective(loss_sum, rows):
        """Returns what the backward pass starts from."""
        return loss_sum

    def update(self, lr, rows):
        sgd(self.params, lr, rows)

    def weights(self):
        return self.state_dict()
