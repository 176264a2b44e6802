"""bench.soak finds what grows, and finds nothing where nothing does."""

import json
import random
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.soak_clock import MovedClock
from bench.soak_verdict import TOLERANCES, Night, growths, theil_sen
from tests.house.repository import ROOT

MIB = 1024 * 1024
COUNT = 60
WARM_UP = 12


def nights(life_of: int = COUNT, **series: Any) -> list[Night]:
    """So many, of figures that are functions of the night; names with __ for a dot."""
    named = {name.replace("__", "."): figure for name, figure in series.items()}
    of_night = [{name: f(number) for name, f in named.items()} for number in range(1, COUNT + 1)]
    return [
        Night(number, (number - 1) // life_of, "none", figures)
        for number, figures in enumerate(of_night, 1)
    ]


def growing(life_of: int = COUNT, **series: Any) -> list[str]:
    return [one.name for one in growths(nights(life_of, **series), WARM_UP, 6)]


def noise(number: int, most: float) -> float:
    return random.Random(number).uniform(-most, most)


def test_a_few_odd_nights_do_not_move_a_trend() -> None:
    odd = {3: 900.0, 17: -400.0, 30: 1e6}
    points = [(float(x), odd.get(x, 5.0 + 2 * x)) for x in range(40)]
    assert theil_sen(points) == pytest.approx(2)
    assert theil_sen([]) == theil_sen([(1.0, 5.0)]) == 0


def test_what_only_varies_is_flat() -> None:
    assert not growing(
        memory__own=lambda n: 80 * MIB + noise(n, 2 * MIB),
        disk__database=lambda n: 400_000 + noise(n, 100_000),
        disk__wal=lambda n: 585_072 if n % 3 == 0 else 37_112,
        files__runs=lambda n: 24 + n % 3,
        rows__runs=lambda n: 12 + n % 2,
        log__bytes=lambda n: 17_000 * n + noise(n, 2000),
        descriptors=lambda n: 21,
        threads=lambda n: 7 + (n % 6 == 2),
        resident__pss=lambda n: 80 * MIB + n * MIB,
    )


def test_what_grows_only_until_its_bound_is_reached_is_flat() -> None:
    assert not growing(
        rows__history=lambda n: min(25 * n, 25 * WARM_UP),
        disk__adapters=lambda n: min(n, WARM_UP) * 40_000,
        descriptors=lambda n: min(n, WARM_UP),
    )


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("memory__own", lambda n: 80 * MIB + 50_000 * n + noise(n, MIB)),
        ("disk__runs", lambda n: 50_000 + 6000 * n + noise(n, 20_000)),
        ("files__runs", lambda n: 24 + n // 10 + n % 2),
        ("rows__runs", lambda n: 12 + n // 5 + n % 2),
        ("log__bytes", lambda n: 17_000 * n + 300 * n * n),
        ("descriptors", lambda n: 21 + n // 50),
        ("descriptors__socket", lambda n: 5 + (n == 40)),
        ("zombies", lambda n: n // 30),
        ("threads", lambda n: 7 + n // 40),
        ("temporary", lambda n: n),
    ],
)
def test_what_grows_is_found(name: str, figure: Any) -> None:
    assert growing(**{name: figure, "rows__nights": lambda n: 6}) == [name.replace("__", ".")]


def test_what_a_life_of_the_daemon_holds_is_compared_within_it() -> None:
    assert not growing(20, descriptors=lambda n: 21 + 4 * ((n - 1) // 20))
    assert growing(20, descriptors=lambda n: 21 + (n % 20 == 19)) == ["descriptors"]


def test_a_kind_that_appears_late_is_found() -> None:
    late = nights(descriptors=lambda n: 21)
    late[-1].figures["descriptors.inotify"] = 1
    assert [one.name for one in growths(late, WARM_UP, 6)] == ["descriptors.inotify"]


def test_memory_is_compared_within_a_life_of_the_daemon_and_not_at_its_beginning() -> None:
    """Each begins lower than the last one ended, which must not hide that all of them grow."""

    def leak(n: int) -> float:
        return 80 * MIB + MIB * ((n - 1) % 20)

    def settle(n: int) -> float:
        return 80 * MIB + MIB * min((n - 1) % 20, 6)

    assert growing(20, memory__own=leak) == ["memory.own"]
    assert not growing(20, memory__own=settle)


def test_every_tolerance_says_why() -> None:
    assert all(most > 0 and len(why) > 10 for most, why in TOLERANCES.values())


def test_the_clock_moves_on_the_wall_and_the_boot_clock_of_another_process(tmp_path: Path) -> None:
    clock = MovedClock(tmp_path / "clock")
    before = time.monotonic()
    program = (
        "import sys, time; from pathlib import Path; from bench.soak_clock import MovedClock\n"
        "from service.boot_clock import boot_seconds; from storage.clock import now_ms\n"
        "from service.nights.moment import wall_clock\n"
        "with MovedClock(Path(sys.argv[1])).in_this_process():\n"
        "    for line in sys.stdin:\n"
        "        print(now_ms(), wall_clock().timestamp(), boot_seconds(), time.monotonic())\n"
        "        sys.stdout.flush()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "clock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def ask() -> list[float]:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            return [float(one) for one in child.stdout.readline().split()]

        first = ask()
        clock.move_on(timedelta(hours=14))
        clock.move_to(clock.now() - timedelta(hours=1))  # never back
        then = ask()
        child.stdin.close()
    real = time.monotonic() - before
    moved = [(b - a) for a, b in zip(first, then, strict=True)]
    moved[0] /= 1000
    hours = 14 * 3600
    assert all(hours <= one <= hours + real for one in moved[:3])
    assert 0 <= moved[3] <= real


def soak(tmp_path: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--json", "--folder", str(tmp_path), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1, done.stderr  # so few nights can't be flat: the database fills
    found: dict[str, Any] = json.loads(done.stdout)
    assert not list(tmp_path.iterdir())
    return found


@pytest.mark.slow
def test_two_nights_with_a_leak(tmp_path: Path) -> None:
    """Nothing is held at rest but what leaks, and that is found."""
    fault = ("--life-warm-up", "0", "--fault", "descriptor")
    found = soak(tmp_path, "--nights", "2", "--warm-up", "0", *fault)
    assert found["nights"] == 2
    names = {one["name"] for one in found["growing"]}
    assert {"descriptors", "descriptors.null"} <= names
    equal = ("threads", "children", "zombies", "temporary", "descriptors.")
    assert {name for name in names if name.startswith(equal)} == {"descriptors.null"}
    first, last = (night["figures"] for night in found["every_night"])
    assert last["rows.runs"] > first["rows.runs"] > 0
    assert last["rows.versions"] > first["rows.versions"] > 0
