"""Optimisers, and their state by the name of each weight."""

from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from regard.errors import UserError
from regard.recipes.plan import Plan


def build_optimizer(module: nn.Module, plan: Plan) -> Optimizer:
    """The plan's optimiser. Only what has two dimensions or more decays: biases and gains do not.

    All of them are fused, on the GPU for speed, and everywhere because a fused step can be called off by a flag on the
    device (`found_inf`), which keeps good weights from a bad gradient before the CPU knows of it.
    """
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.dim() >= 2], "weight_decay": plan.decay},
        {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
    ]
    match plan.optimizer:
        case "adamw":
            return AdamW(groups, lr=plan.rate, betas=plan.betas, eps=plan.epsilon, fused=True)
        case "adam":
            return Adam(weights, lr=plan.rate, betas=plan.betas, eps=plan.epsilon, fused=True)
        case "sgd":
            return SGD(groups, lr=plan.rate, momentum=0.9, fused=True)


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Let the next step have this rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_state(optimizer: Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """All that the optimiser remembers: `name of the weight/what` → tensor."""
    return {
        f"{name}/{key}": value
        for name, weight in module.named_parameters()
        for key, value in optimizer.state.get(weight, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, module: nn.Module, state: dict[str, Tensor]) -> None:
    """Give the optimiser back what `optimizer_state` took, on the device of its weights."""
    weights = dict(module.named_parameters())
    for place, value in state.items():
        name, _, key = place.rpartition("/")
        if name not in weights:
            raise UserError(f"training/optimizer.safetensors: the model has no weight {name}; it is of another model.")
        optimizer.state[weights[name]][key] = value.to(weights[name].device)
