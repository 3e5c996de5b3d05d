"""Recipes for sequences: the tasks of Bai et al. 2018 with their convolutional networks, and the frames of clips.

The kernel, the number of layers and the number of channels are those of table 2 of the paper. Numbers are read in
float32: bfloat16 has too few digits for the adding problem.
"""

from dataclasses import replace

from regard.data.mnist import Mnist
from regard.data.music import PolyphonicMusic
from regard.data.synthetic import Adding, Clips, CopyMemory
from regard.models import RecurrentLmConfig, TcnConfig
from regard.objectives import BinaryAnswers, Classification, Recall, Regression
from regard.recipes.recipe import Plan, Recipe

# By the name of the model: the settings of `adding`, `copy`, `smnist` and `pmnist` that follow from it. Their answers
# depend on the first steps of a sequence, so the gates of a recurrent network start with a memory of all its steps.
LONG_MEMORY: dict[str, tuple[str, ...]] = dict.fromkeys(("lstm", "gru"), ("model.chrono={data.memory}",))
PLAN = Plan(rate=2e-3, warmup=200, decay=0.0, evaluate=500, precision="float32")


def adding() -> Recipe:
    """The adding problem, 600 steps: the sum of the two marked numbers, with a TCN of 70,000 parameters."""
    return Recipe(
        name="adding",
        title="the sum of two marked numbers among 600",
        data=Adding(),
        model=TcnConfig(width=24, embed=24, layers=8, kernel=8, dropout=0.0, embedding_dropout=0.0),
        objective=Regression(),
        plan=replace(PLAN, steps=12_000, batch_tokens=32 * 600, betas=(0.9, 0.99), select="mse"),
        metrics=("mse",),
    )


def copy() -> Recipe:
    """Copy memory: ten symbols that are recalled after 1,000 steps, with a TCN of 16,000 parameters."""
    return Recipe(
        name="copy",
        title="ten symbols, recalled after 1,000 steps",
        data=CopyMemory(),
        model=TcnConfig(width=10, embed=10, layers=8, kernel=8, dropout=0.0, embedding_dropout=0.0),
        objective=Recall(),
        plan=replace(PLAN, steps=10_000, batch_tokens=32 * 1020, rate=1e-3),
        metrics=("recalled",),
    )


def mnist() -> Recipe:
    """Handwritten digits, the whole image in one step: a network with one hidden layer. A minute on a CPU."""
    return Recipe(
        name="mnist",
        title="handwritten digits, the whole image at once (MNIST)",
        data=Mnist(pixels=784),
        model=RecurrentLmConfig(cell="rnn", width=256, embed=256, layers=1, dropout=0.2),
        objective=Classification(),
        # Short sequences are padded to 8 steps.
        plan=Plan(steps=3000, batch_tokens=128 * 8, rate=1e-3, decay=0.0, evaluate=500, select="accuracy"),
        metrics=("accuracy",),
    )


def sequential_mnist() -> Recipe:
    """Handwritten digits, pixel by pixel (784 steps), with a TCN of 70,000 parameters."""
    return Recipe(
        name="smnist",
        title="handwritten digits, pixel by pixel (MNIST)",
        data=Mnist(),
        model=TcnConfig(width=25, embed=25, layers=8, kernel=7, dropout=0.05, embedding_dropout=0.0),
        objective=Classification(),
        plan=replace(PLAN, steps=30_000, batch_tokens=64 * 784, rate=4e-3, decay=0.1, evaluate=1000, select="accuracy"),
        metrics=("accuracy",),
    )


def permuted_mnist() -> Recipe:
    """Handwritten digits, pixel by pixel in a fixed random order, with a TCN of 70,000 parameters."""
    base = sequential_mnist()
    return replace(
        base,
        name="pmnist",
        title="handwritten digits, pixels in a random order (permuted MNIST)",
        data=Mnist(permuted=True),
        plan=replace(base.plan, rate=PLAN.rate, decay=PLAN.decay),
    )


def jsb() -> Recipe:
    """Chorales of J. S. Bach: the keys of the next step, with a TCN of 300,000 parameters."""
    return Recipe(
        name="jsb",
        title="the next keys of Bach's chorales (JSB)",
        data=PolyphonicMusic("jsb"),
        model=TcnConfig(width=150, embed=150, layers=2, kernel=3, dropout=0.5, embedding_dropout=0.2),
        objective=BinaryAnswers(),
        plan=replace(
            PLAN,
            steps=3000,
            batch_tokens=1024,
            rate=4e-3,
            schedule="linear",
            warmup=100,
            decay=0.2,
            clip=0.4,
            evaluate=50,
        ),
        metrics=(),
    )


def nottingham() -> Recipe:
    """Folk tunes: the keys of the next step, with a TCN of a million parameters."""
    base = jsb()
    return replace(
        base,
        name="nottingham",
        title="the next keys of folk tunes (Nottingham)",
        data=PolyphonicMusic("nottingham"),
        model=replace(base.model, layers=4, kernel=6, dropout=0.25, embedding_dropout=0.1),
        plan=replace(base.plan, steps=5000, batch_tokens=8192, decay=0.3, evaluate=100),
    )


def clips() -> Recipe:
    """Clips of a moving shape: how it moved, for each frame, with a GRU. Drawn; a minute on a CPU."""
    return Recipe(
        name="clips",
        title="how a shape moves, for each frame of a clip",
        data=Clips(),
        model=RecurrentLmConfig(cell="gru", width=128, embed=64, layers=1, dropout=0.0),
        objective=Classification(),
        plan=Plan(steps=1500, batch_tokens=1024, rate=3e-3, decay=0.0, evaluate=250, select="accuracy"),
        metrics=("accuracy",),
    )
