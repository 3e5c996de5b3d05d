"""The learning rate as a function of the step, and of nothing else."""

import math

from regard.recipes.plan import Plan

ENDLESS = ("constant", "inverse-sqrt", "noam")  # schedules that do not ask how many steps there will be


def rate_at(plan: Plan, step: int, width: int) -> float:
    """The rate of step 0, 1, …: a straight rise to `plan.rate`, then the fall that `plan.schedule` names.

    `width` is the model's, which only noam looks at: rate · width^-½ · min(n^-½, n · warmup^-1½) for n = step + 1
    (Vaswani et al. 2017, eq. 3). It rises and falls as inverse-sqrt does, to another height.
    """
    if plan.schedule == "noam":
        n, warmup = step + 1, max(plan.warmup, 1)
        return plan.rate * width**-0.5 * min(n**-0.5, n * warmup**-1.5)
    if step < plan.warmup:
        return plan.rate * (step + 1) / plan.warmup
    done = (step - plan.warmup) / max(plan.steps - plan.warmup, 1)  # 0 … 1 over the steps after the warm-up
    match plan.schedule:
        case "constant":
            return plan.rate
        case "linear":
            return plan.rate * max(1 - done, 0.0)
        case "cosine":
            return plan.rate * (1 + math.cos(math.pi * min(done, 1.0))) / 2
        case "inverse-sqrt":  # Vaswani et al. 2017, section 5.3
            return plan.rate * math.sqrt(max(plan.warmup, 1) / (step + 1))
