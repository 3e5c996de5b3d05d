"""Optimisers, and their state by the name of each weight."""

from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from regard.errors import UserError
from regard.recipes.plan import Plan


def build_optimizer(module: nn.Module, plan: Plan) -> Optimizer:
    """The plan's optimiser. Weight decay applies only to weights of two or more dimensions, not to biases and gains.

    All optimisers are fused: for speed on a GPU, and because a fused step can be skipped by a flag on the device
    (`found_inf`), which protects the weights from a gradient that is not finite without a synchronisation.
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
    """Set the learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_state(optimizer: Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """The state of the optimiser as one mapping: `weight name/state name` → tensor."""
    return {
        f"{name}/{key}": value
        for name, weight in module.named_parameters()
        for key, value in optimizer.state.get(weight, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, module: nn.Module, state: dict[str, Tensor]) -> None:
    """Restore the state that `optimizer_state` returned, on the device of the weights."""
    weights = dict(module.named_parameters())
    for place, value in state.items():
        name, _, key = place.rpartition("/")
        if name not in weights:
            raise UserError(
                f"training/optimizer.safetensors: the model has no weight {name}; it is the file of another model."
            )
        optimizer.state[weights[name]][key] = value.to(weights[name].device)
