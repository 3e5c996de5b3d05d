"""Recipes that need no files: dates generated with Babel, and the CMU pronouncing dictionary."""

from regard.data.dates import Dates
from regard.data.sounds import Sounds
from regard.models import Seq2SeqConfig
from regard.objectives import TeacherForcing
from regard.recipes.plan import Plan
from regard.recipes.recipe import Recipe


def dates() -> Recipe:
    """Dates written in many languages → ISO 8601, in a minute on a CPU."""
    return Recipe(
        name="dates",
        title="dates in 24 languages to ISO 8601",
        data=Dates(),
        model=Seq2SeqConfig(width=128, embed=64, decoder="luong", capacity=64, dropout=0.0),
        objective=TeacherForcing(),
        plan=Plan(
            steps=450,
            batch_tokens=2048,
            rate=4e-3,
            schedule="linear",
            warmup=50,
            decay=0.0,
            evaluate=150,
            samples=300,
            select="exact",
        ),
        metrics=("exact", "alignment"),
    )


def sounds() -> Recipe:
    """Letters → phonemes: the pronunciation of English words (CMU dictionary)."""
    return Recipe(
        name="sounds",
        title="English spelling to phonemes (CMUdict, without stress)",
        data=Sounds(),
        model=Seq2SeqConfig(width=512, embed=256, layers=2, capacity=64, dropout=0.3),
        objective=TeacherForcing(smoothing=0.1),
        plan=Plan(
            steps=8000, batch_tokens=8192, rate=1e-3, warmup=400, evaluate=500, samples=2000, select="word_error"
        ),
        metrics=("word_error", "phoneme_error"),
    )
