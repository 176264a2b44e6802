"""The committed tree: its top level, the length of its files, nothing of one machine."""

import re

import pytest

from tests.house.repository import ROOMS, text_of, tracked_files

TOP_LEVEL = {
    *ROOMS,
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "bench",
    "constraints-android.txt",
    "constraints.txt",
    "pyproject.toml",
    "termux",
    "tests",
}
MOST_LINES = 400
WRITTEN_BY_HAND = {".py", ".sh", ".js", ".css", ".html"}

FOREIGN = [
    r"(?<![\w.$}/-])/(?:work|opt|root)/",
    r"(?<![\w.$*}/-])/home/\w",
    r"\bpypi\.org\b",
    r"\bpythonhosted\.org\b",
    r"\bdownload\.pytorch\b",
    r"\bregistry\.npmjs\b",
    r"\bdeb\.debian\b",
]


def test_top_level_is_exactly_the_house() -> None:
    assert {path.parts[0] for path in tracked_files()} == TOP_LEVEL


def test_no_long_files() -> None:
    long = {
        str(path): count
        for path in tracked_files()
        if path.parts[0] in {*ROOMS, "bench"}
        and path.suffix in WRITTEN_BY_HAND
        and (count := len(text_of(path).splitlines())) > MOST_LINES
    }
    assert not long, f"split these files, {MOST_LINES} lines is the most: {long}"


@pytest.mark.parametrize("pattern", FOREIGN)
def test_no_machine_path_or_registry_host(pattern: str) -> None:
    found = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path in tracked_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found


@pytest.mark.parametrize(
    "line",
    ["cd ~work/main", "PATH=~opt/wheels", 'open("~root/x")', "--index-url https:~/pypi!org/"],
)
def test_the_patterns_find_what_they_forbid(line: str) -> None:
    line = line.replace("~", "/").replace("!", ".")
    assert any(re.search(pattern, line) for pattern in FOREIGN)
