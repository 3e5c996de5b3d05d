"""The head of a number: its output is in the unit of the training numbers."""

from pathlib import Path

import torch

from regard.data.batches import Batch
from regard.heads import NumberHead, NumberHeadConfig
from regard.recipes import KINDS, change, find_recipe
from regard.training.prepare import prepare


def head_of(*batches: list[float]) -> NumberHead:
    head = NumberHead(NumberHeadConfig(pool="mean", hidden="none"), 4)
    for batch in batches:
        head.count_batch(Batch({"targets": torch.tensor(batch)}))
    return head


def test_the_output_has_the_mean_and_the_deviation_of_all_numbers() -> None:
    batches = ([250_000.0, 251_000.0, float("nan")], [249_000.0], [float("nan")], [250_500.0, 248_000.0, 250_001.0])
    head = head_of(*batches)
    numbers = torch.tensor([number for batch in batches for number in batch if number == number], dtype=torch.double)
    features = torch.randn(3, 5, 4)
    plain = head.out(features.mean(1)).squeeze(-1)
    expected = numbers.mean() + numbers.std(correction=0) * plain
    torch.testing.assert_close(head(features), expected.float(), rtol=1e-6, atol=0)


def test_equal_numbers_have_no_deviation_to_multiply_by() -> None:
    features = torch.randn(2, 5, 4)
    for head, mean in ((head_of([3.0, 3.0]), 3.0), (head_of(), 0.0)):
        torch.testing.assert_close(head(features), mean + head.out(features.mean(1)).squeeze(-1))


def test_the_mean_is_not_rounded_with_the_weights() -> None:
    head = head_of([1234.0, 1234.5]).to(torch.bfloat16)
    assert head.out.weight.dtype == torch.bfloat16
    assert head.statistics.tolist() == [2.0, 1234.25, 0.125]
    assert head(torch.zeros(1, 2, 4, dtype=torch.bfloat16)).dtype == torch.float32


def test_a_new_model_predicts_about_the_mean_of_its_training_numbers(tmp_path: Path) -> None:
    path = tmp_path / "prices.tsv"
    path.write_text("".join(f"{200_000 + 100 * n}\tword {'w' * n}\n" for n in range(20)), encoding="utf-8")
    settings = [f"data.train={path}", f"data.valid={path}", "model=lstm", "model.width=8", "model.embed=8"]
    prepared = prepare(change(find_recipe("rate"), settings, KINDS))
    model = prepared.build().model.eval()
    found = torch.cat([model(batch) for batch in prepared.batches.part(0, 1)])
    assert (found - 200_950).abs().max() < 2000
