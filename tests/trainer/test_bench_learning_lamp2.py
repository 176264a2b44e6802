"""The loader of LaMP-2's official files, on rows in their format."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.learning_lamp2 import TAGS, read_lamp2
from bench.learning_rows import LabelledText, LearningDataError

INSTRUCTION = (
    "Which tag does this movie relate to among the following tags? Just answer with the tag name"
    f" without further explanation. tags: [{', '.join(TAGS)}] description: "
)


def question(name: str, description: str, profile: list[dict[str, str]]) -> dict[str, Any]:
    return {"id": name, "input": INSTRUCTION + description, "profile": profile}


QUESTIONS = [
    question(
        "200",
        "A thief steals secrets. The description: a dream.\nIn a dream.",
        [
            {"id": "200-0", "tag": "dystopia", "description": "A city without rain."},
            {"id": "200-1", "tag": "based on a book ", "text": "A whale."},
        ],
    ),
    question("201", "Two friends laugh.", []),
]
OUTPUTS = {
    "task": "LaMP_2",
    "golds": [{"id": "201", "output": "comedy"}, {"id": "200", "output": "twist ending"}],
}


def write(folder: Path, questions: Any, outputs: Any) -> tuple[Path, Path]:
    paths = folder / "dev_questions.json", folder / "dev_outputs.json"
    for path, content in zip(paths, (questions, outputs), strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")
    return paths


def test_questions_and_outputs_become_users(tmp_path: Path) -> None:
    task = read_lamp2(*write(tmp_path, QUESTIONS, OUTPUTS))
    assert task.labels == TAGS
    assert len(TAGS) == 15
    assert task.queries == {
        "200": (
            LabelledText(
                "A thief steals secrets. The description: a dream.\nIn a dream.", "twist ending"
            ),
        ),
        "201": (LabelledText("Two friends laugh.", "comedy"),),
    }
    assert task.histories["200"].rows == (
        LabelledText("A city without rain.", "dystopia"),
        LabelledText("A whale.", "based on a book"),
    )
    assert task.histories["201"].rows == task.histories["201"].cut == ()
    assert task.donors == ()


def changed(change: str) -> tuple[Any, Any]:
    questions, outputs = json.loads(json.dumps(QUESTIONS)), json.loads(json.dumps(OUTPUTS))
    exec(change, {"questions": questions, "outputs": outputs})
    return questions, outputs


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("questions[0]['input'] = 'Which tag?'", "question 200: expected an input with 'descr"),
        ("questions[1]['profile'] = None", "question 201: expected a profile as a list, found N"),
        ("del questions[0]['profile'][1]['tag']", "question 200, profile: expected a text tag"),
        ("questions[0]['profile'][0]['tag'] = 'noir'", "profile: expected one of the 15 tags, fou"),
        ("questions[1]['id'] = '200'", "question 200: expected each id once, found it again"),
        ("questions[1]['id'] = '202'", "question 202: expected its output in dev_outputs.json"),
        ("del questions[1]", "expected only outputs of questions in dev_questions.json, found 201"),
        ("outputs['golds'][0]['output'] = 'noir'", "gold 0: expected one of the 15 tags, found 'n"),
        ("outputs['task'] = 'LaMP_3'", "expected an object with task LaMP_2, found LaMP_3"),
        ("del outputs['golds']", "dev_outputs.json: expected golds as a list, found NoneType"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: str, says: str) -> None:
    with pytest.raises(LearningDataError) as refused:
        read_lamp2(*write(tmp_path, *changed(change)))
    assert says in str(refused.value)


def test_a_file_that_is_no_json_or_no_list(tmp_path: Path) -> None:
    questions, outputs = write(tmp_path, QUESTIONS, OUTPUTS)
    with pytest.raises(LearningDataError, match=r"dev_outputs.json: expected an object with task"):
        read_lamp2(questions, questions.rename(outputs))
    questions, outputs = write(tmp_path, QUESTIONS, OUTPUTS)
    questions.write_text("[{", encoding="utf-8")
    with pytest.raises(LearningDataError, match=r"dev_questions.json: expected JSON, found"):
        read_lamp2(questions, outputs)
