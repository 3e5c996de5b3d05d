"""Pairs with a class or a number, and contexts with choices: what is read, and what is refused with its line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from regard.data.example import Choice, LabelledPair, RatedPair
from regard.data.text_pairs import Choices, LabelledPairs, RatedPairs
from regard.errors import UserError

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def test_pairs_are_read_from_every_format(write: Write) -> None:
    expected = [LabelledPair(("a b", "c"), "yes"), LabelledPair(("d", "e"), "no")]
    plain = write("a.tsv", "yes\ta b\tc\nno\td\te\n")
    assert LabelledPairs(train=plain, valid=plain).load().train == expected
    named = {"first": "premise", "second": "hypothesis", "label": "gold"}
    for path in (
        write("b.tsv", "id\tgold\tpremise\thypothesis\n1\tyes\ta b\tc\n2\tno\td\te\n"),
        write("b.csv", "premise,hypothesis,gold\na b,c,yes\nd,e,no\n"),
        write(
            "b.jsonl",
            '{"gold": "yes", "premise": "a b", "hypothesis": "c"}\n{"gold": "no", "premise": "d", "hypothesis": "e"}\n',
        ),
    ):
        assert LabelledPairs(train=path, valid=path, **named).load().train == expected


def test_pairs_in_both_orders(write: Write) -> None:
    path = write("a.tsv", "1.5\ta\tb\n")
    (one,) = RatedPairs(train=path, valid=path, both_orders=True).load().train
    assert one == RatedPair((("a", "b"), ("b", "a")), 1.5)


def test_an_incomplete_pair_is_left_out_with_a_warning(write: Write) -> None:
    path = write("a.tsv", "yes\ta\tb\nno\tc\td\n\ta\tb\nyes\t\tb\nno\ta\t \n")
    corpus = LabelledPairs(train=path, valid=path).load()
    assert [example.label for example in corpus.train] == ["yes", "no"]
    assert any("3 of 5 examples have no label or no first or no second" in one for one in corpus.warnings)
    numbers = write("n.tsv", "\ta\tb\n2\ta\t\n3\ta\tb\n")
    assert len(RatedPairs(train=numbers, valid=numbers).load().train) == 1


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_label_seen_only_in_another_part_is_named_with_its_line(write: Write, part: str) -> None:
    train, other = write("train.tsv", "yes\ta\tb\nno\tc\td\n"), write("dev.tsv", "yes\ta\tb\nmaybe\tc\td\n")
    with pytest.raises(UserError, match=r"dev\.tsv, line 2: the label 'maybe' is not a class of the training examples"):
        LabelledPairs(train=train, **{"valid": train, part: other}).load()


def test_a_rare_class_stays_in_the_training_examples(write: Write) -> None:
    path = write("a.tsv", "".join(f"{'rare' if n == 7 else 'ab'[n % 2]}\ttext {n}\tother {n}\n" for n in range(120)))
    corpus = LabelledPairs(train=path).load()
    assert "rare" in {example.label for example in corpus.train}
    assert "rare" not in {example.label for example in corpus.valid}
    assert corpus.valid


def test_equal_pairs_are_in_one_part(write: Write) -> None:
    path = write("a.tsv", "".join(f"{'ab'[n % 2]}\ttext {n % 30}\tother {n % 30}\n" for n in range(300)))
    corpus = LabelledPairs(train=path).load()
    assert not {one.text for one in corpus.train} & {one.text for one in corpus.valid}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1e300\ta\tb\n", r"line 1: '-1e300' is beyond 3\.4e\+38, the largest number of 32 bits"),
        ("high\ta\tb\n", r"line 1: 'high' is not a finite number; write a number such as 3\.5"),
        ("1\ta\n", r"line 1: expected number<TAB>first<TAB>second, found '1\\ta'"),
    ],
)
def test_numbers_that_cannot_be_read(write: Write, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RatedPairs(train=write("a.tsv", text)).load()


def test_two_settings_cannot_name_one_column(write: Write) -> None:
    path = write("a.csv", "a,b\n1,2\n")
    with pytest.raises(UserError, match=r"data\.first=a: two columns have this name"):
        LabelledPairs(train=path, first="a", second="a", label="b").load()


CONTEXT = Choice((("it rains", "wet"), ("it rains", "dry"), ("it rains", "old")), 1)


@pytest.mark.parametrize("label", ["1", "B", "dry"])
def test_the_right_choice_is_a_number_a_letter_or_a_text(write: Write, label: str) -> None:
    path = write("a.tsv", f"{label}\tit rains\twet\tdry\told\n")
    assert Choices(train=path, valid=path).load().train == [CONTEXT]


def test_choices_are_read_from_every_format(write: Write) -> None:
    table = write("a.csv", "label,context,ending0,ending1,ending2\n2,it rains,wet,dry,old\n")
    names = ("ending0", "ending1", "ending2")
    assert Choices(train=table, valid=table, choices=names, count_from=1).load().train == [CONTEXT]
    lists = write("a.jsonl", '{"label": 1, "context": "it rains", "choices": ["wet", "dry", "old"]}\n')
    assert Choices(train=lists, valid=lists).load().train == [CONTEXT]
    endings = write("b.jsonl", '{"label": 1, "context": "it rains", "endings": ["wet", "dry", "old"]}\n')
    assert Choices(train=endings, valid=endings, choices=("endings",)).load().train == [CONTEXT]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("swag.csv", "id,sent1,ending0,ending1,ending2,label\n7,it rains,wet,dry,old,1\n"),
        ("order.csv", "sent1,ending2,ending0,ending1,label\nit rains,old,wet,dry,1\n"),
        ("letters.tsv", "question\toption_a\toption_b\toption_c\tlabel\nit rains\twet\tdry\told\tB\n"),
        ("hellaswag.jsonl", '{"ctx": "it rains", "endings": ["wet", "dry", "old"], "label": "1"}\n'),
        ("copa.jsonl", '{"label": 1, "context": "it rains", "choice1": "wet", "choice2": "dry", "choice3": "old"}\n'),
    ],
)
def test_choices_with_usual_names_need_no_setting(write: Write, name: str, data: str) -> None:
    path = write(name, data)
    assert Choices(train=path, valid=path).load().train == [CONTEXT]


def test_of_two_kinds_of_numbered_columns_none_is_guessed(write: Write) -> None:
    path = write("a.csv", "question,option1,option2,answer1,answer2,label\nit rains,wet,dry,no,yes,1\n")
    with pytest.raises(UserError, match=r"name the columns of the choices, such as data\.choices=choice1,choice2"):
        Choices(train=path, valid=path).load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3\tc\ta\tb\td\n", r"line 1: the label '3' is none of the 3 choices; give a number from 0 to 2, a letter"),
        ("3\tc\ta\tb\td\n", r"or set data\.count_from=1"),
        ("0\tc\ta\tb\n0\tc\ta\n", r"line 2: expected label<TAB>context<TAB>choices 1<TAB>choices 2"),
        ("0\tc\ta\n", r"line 1: expected label<TAB>context<TAB>choices 1<TAB>choices 2"),
    ],
)
def test_choices_that_cannot_be_read(write: Write, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Choices(train=write("a.tsv", text)).load()


def test_more_choices_than_on_the_first_line_are_left_out_with_a_warning(write: Write) -> None:
    path = write("a.tsv", "0\tc\ta\tb\n1\td\ta\tb\te\n")
    (warning,) = Choices(train=path, valid=path).load().warnings
    assert "name its columns: data.label=COLUMN data.context=COLUMN data.choices=COLUMN" in warning


def test_other_numbers_of_choices_are_named_with_their_line(write: Write) -> None:
    lines = '{"label": 0, "context": "c", "choices": ["a", "b"]}\n{"label": 0, "context": "c", "choices": ["a"]}\n'
    with pytest.raises(UserError, match=r"line 2: 1 choices, and others 2; give all lines as many"):
        Choices(train=write("a.jsonl", lines)).load()
    with pytest.raises(UserError, match=r"name the columns of the choices, such as data\.choices=choice1,choice2"):
        Choices(train=write("a.csv", "label,context,a,b\n0,c,d,e\n")).load()
    with pytest.raises(UserError, match=r"data\.count_from=2: give 0 or 1"):
        Choices(count_from=2)


def test_a_choice_that_is_empty_is_left_out_with_its_context(write: Write) -> None:
    path = write("a.tsv", "0\tc\ta\tb\n1\tc\ta\t\n1\t\ta\tb\n\tc\ta\tb\n")
    corpus = Choices(train=path, valid=path).load()
    assert len(corpus.train) == 1
    assert any("3 of 4 examples" in one for one in corpus.warnings)
