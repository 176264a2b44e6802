"""What termux/README.md and termux/CHECKLIST.md name is there: commands, options, files, routes."""

import importlib
import itertools
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from fastapi import APIRouter
from fastapi.routing import APIRoute
from typer.core import TyperGroup

import service.routes
from api_schemas.scopes import MEANINGS
from service.cli.commands import app
from service.gates.limits import Limits
from service.home import Home
from service.settings import Settings
from tests.house.repository import ROOT

FOLDER = ROOT / "termux"
GUIDE = FOLDER / "README.md"
CHECKLIST = FOLDER / "CHECKLIST.md"
PAGES = (GUIDE, CHECKLIST)
TEXT = {page: page.read_text() for page in PAGES}
SCRIPTS = "".join(
    path.read_text()
    for path in sorted(FOLDER.rglob("*"))
    if path.is_file() and path.suffix != ".md"
)
OTHERS = {
    # Termux's own, and Android's
    *("pkg", "sv", "sv-enable", "sv-disable", "termux-setup-storage", "termux-battery-status"),
    *("termux-job-scheduler", "proot-distro", "adb", "getprop", "logcat", "git"),
    # a shell's
    *(".", "cat", "cd", "curl", "done", "echo", "for", "grep", "id", "kill", "ls", "mkdir", "mv"),
    *("nc", "pgrep", "ps", "sed", "seq", "sleep", "tail", "time", "umask", "uname"),
}
"""Commands that aren't lorad's. A new one is named here once it is known to be there in Termux."""

ROOT_COMMAND = typer.main.get_command(app)
assert isinstance(ROOT_COMMAND, TyperGroup)


def snippets(page: Path) -> list[str]:
    """Each command line: those of the blocks, of what is to be run, and lorad's own elsewhere."""
    text = TEXT[page]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    for line in re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).splitlines():
        for code in re.findall(r"`([^`]+)`", line):
            to_run = "- Run:" in line and re.match(r"[a-z.][\w-]*[ ;]", code)
            if to_run or code.startswith(("lorad ", "sh termux/", "sv ", "sv-", "adb ", "pkg ")):
                lines.append(code)
    return lines


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line; none of what a substitution does."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()<>")
    lexer.whitespace_split = True
    command: list[str] = []
    for word in lexer:
        if set(word) <= set(";|&()"):
            if command:
                yield command
            command = []
        else:
            command.append(word)
    if command:
        yield command


def commands() -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for line in snippets(page):
            for words in simple_commands(line):
                while words and words[0] in ("time", "do", "timeout"):
                    words = words[2:] if words[0] == "timeout" else words[1:]
                if words:
                    found.append((page.name, words))
    return found


COMMANDS = commands()


def of(*names: str) -> list[list[str]]:
    return [words for _, words in COMMANDS if words[0] in names]


def settings() -> set[str]:
    found = set()
    for model in (Settings, Limits):
        prefix = str(model.model_config.get("env_prefix", ""))
        found |= {prefix + name.upper() for name in model.model_fields}
    return found


def routes() -> set[str]:
    modules = [
        importlib.import_module(f"service.routes.{info.name}")
        for info in pkgutil.iter_modules(service.routes.__path__)
    ]
    routers = [value for m in modules for value in vars(m).values() if isinstance(value, APIRouter)]
    return {r.path_format for router in routers for r in router.routes if isinstance(r, APIRoute)}


def test_something_is_found() -> None:
    """A change of the reader above must not make the tests below read nothing."""
    assert len(of("lorad")) > 40
    assert len([words for words in of("sh") if words[1].startswith("termux/")]) > 15


@pytest.mark.parametrize("words", of("lorad"), ids=" ".join)
def test_lorad_has_the_command_and_its_options(words: list[str]) -> None:
    command: object = ROOT_COMMAND
    rest = words[1:]
    while isinstance(command, TyperGroup):
        assert rest, f"{words} is no command but a group"
        name, *rest = rest
        assert name in command.commands, words
        command = command.commands[name]
    assert isinstance(command, typer.core.TyperCommand)
    options = {option for each in command.params for option in [*each.opts, *each.secondary_opts]}
    for word in rest:
        if word.startswith("--"):
            assert word in options, words
    scopes = [scope for flag, scope in itertools.pairwise(rest) if flag == "--scope"]
    assert set(scopes) <= set(MEANINGS)


@pytest.mark.parametrize("words", of("sh"), ids=" ".join)
def test_scripts_are_there_and_know_their_options(words: list[str]) -> None:
    script = ROOT / words[1]
    assert script.is_file(), words
    text = script.read_text()
    for word in words[2:]:
        if word.startswith("--"):
            assert re.search(rf"^\s*({re.escape(word)}|-h \| {re.escape(word)})\)", text, re.M), (
                words
            )
        elif script.name == "service.sh":
            assert re.search(rf"^\s*{word}\)", text, re.M), words


def test_other_commands_are_known() -> None:
    unknown = {words[0] for _, words in COMMANDS} - OTHERS - {"lorad", "sh"}
    assert {name for name in unknown if not name.startswith(("~/", "$", "2"))} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_of_the_tree_are_there(page: Path) -> None:
    text = TEXT[page]
    for name in re.findall(r"(?<![.\w])termux/[\w./-]*\w", text):
        assert (ROOT / name).exists(), name
    for target in re.findall(r"\]\(([^)]+)\)", text):
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve()
        assert linked.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, target


def test_paths_on_the_phone_are_those_in_the_code() -> None:
    """Each is one that a script or the daemon makes, or that the page itself makes."""
    home = Home.at(Path("/home"))
    of_the_home = {
        f"~/.local/share/lorad{str(getattr(home, name)).removeprefix('/home')}"
        for name, value in vars(Home).items()
        if isinstance(value, property)
    } | {"~/.local/share/lorad"}
    theirs = ("~/storage/downloads/", "$PREFIX/etc/profile.d/start-services.sh")
    own = (
        "~/.config/lorad/notes.",
        "~/check.jsonl",
        "~/lorad-backup.tar",
        "~/.local/lib/lorad/aside",
    )
    spelled = (
        SCRIPTS.replace("$HOME", "~")
        .replace("$program", "~/.local/lib/lorad")
        .replace("$prefix", "$PREFIX")
        .replace("$SVDIR", "$PREFIX/var/service")
        .replace("$boot/", "~/.termux/boot/")
        .replace("${LOGDIR:-$PREFIX/var/log}", "$PREFIX/var/log")
        .replace("$LOGDIR", "$PREFIX/var/log")
        .replace("$log/current", "$PREFIX/var/log/sv/lorad/current")
        .replace("$venv", "~/.local/lib/lorad/venv")
    )
    for page in PAGES:
        text = TEXT[page].replace("$HOME/", "~/")
        for path in set(re.findall(r"(?:~|\$PREFIX)/[\w./*-]*\w", text)):
            known = path in of_the_home or path.startswith((*theirs, *own)) or path in spelled
            assert known, f"{path} in {page.name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_and_routes_are_there(page: Path) -> None:
    text = TEXT[page]
    assert set(re.findall(r"\bLORAD_[A-Z_]+\b", text)) <= settings()
    patterns = [re.sub(r"\{\w+\}", "[^/]+", path) for path in routes()]
    for route in re.findall(r"/v1/[\w/-]*\w", text):
        assert any(re.fullmatch(pattern, route) for pattern in patterns), route


def test_the_page_for_app_developers_has_the_same_xml() -> None:
    def xml(text: str) -> list[str]:
        return re.findall(r"^```xml\n.*?^```$", text, re.MULTILINE | re.DOTALL)

    assert xml(TEXT[GUIDE]) == xml((ROOT / "service/for_apps/README.md").read_text())
    assert len(xml(TEXT[GUIDE])) == 1


def test_the_check_list_is_whole() -> None:
    text = TEXT[CHECKLIST]
    assert "Nothing here has been seen on a phone yet." in text.splitlines()[2]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. \*\*", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    items = re.split(r"^\d+\. \*\*", text, flags=re.MULTILINE)[1:]
    for item in items:
        parts = re.findall(r"^ +- (Run|Expect|Report): \S", item, re.MULTILINE)
        assert parts == ["Run", "Expect", "Report"], item
    for number in re.findall(r"[Nn]umbers? (\d+)", text):
        assert int(number) <= len(numbers)


def test_what_is_expected_is_what_the_programs_say() -> None:
    """The phrases of the check-list; its single words are states, gates and columns."""
    said = SCRIPTS + "".join(
        path.read_text()
        for room in ("service", "npu", "trainer")
        for path in (ROOT / room).rglob("*.*")
        if path.suffix in (".py", ".kt")
    )
    expected = "".join(re.findall(r"- Expect: (.*)", TEXT[CHECKLIST]))
    marked = re.findall(r"`([^`]+)`|\*([^*]+)\*", expected)
    found = {code or words for code, words in marked if " " in code + words}
    assert len(found) > 6
    assert {phrase for phrase in found if phrase not in said} == set()
