"""The learning rate as a function of the step."""

import math

from regard.recipes import Plan

INDEPENDENT_OF_STEPS = ("constant", "inverse-sqrt", "noam")  # schedules whose rates do not depend on plan.steps


def rate_at(plan: Plan, step: int, width: int) -> float:
    """The learning rate of step 0, 1, …: a linear warm-up to `plan.rate`, then the decay that `plan.schedule` names.

    `width` is the model's. Only noam uses it: rate · width^-½ · min(n^-½, n · warmup^-1½) for n = step + 1
    (Vaswani et al. 2017, eq. 3). Noam has the form of inverse-sqrt, with another maximum.
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
