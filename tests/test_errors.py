"""What error messages have in common."""

from regard.errors import nearest


def test_a_name_that_shares_more_than_half_of_its_letters_is_suggested() -> None:
    known = ["batch_tokens", "steps"]
    assert nearest("batchsize", known) == ' Did you mean "batch_tokens"?'
    assert nearest("batchsize", known, "plan.") == ' Did you mean "plan.batch_tokens"?'
    assert nearest("xlnet", ["albert", "gpt"]) == " Known: albert, gpt."
