"""The sandbox holds, the judge believes nothing, and the parent survives both. Hostile notebooks are in test_hostile.py."""

import ast
import os
import signal
import subprocess
import sys
import time

import corpus
import psutil
import pytest
import torch
from conftest import SEED

from kvcourse.checks.base import Broken, NotStarted, Opaque, Unknown, judge
from kvcourse.errors import SetupError
from kvcourse.grader import cells, limits, remote, sandbox, syscalls
from kvcourse.grader.judge import autopsy
from kvcourse.grader.sealed import SealedGrader
from kvcourse.grader.zygote import Zygote

LINUX = sys.platform == "linux"
SOLUTIONS = {task: corpus.text(corpus.answer(corpus.solved(), task)) for task in corpus.ALL}


# What the walls are. On Linux a machine without them is a broken set-up, never a reason to pass.


def test_on_linux_the_walls_are_bubblewrap(the_zygote):
    if not LINUX:
        pytest.skip("bubblewrap is for Linux; elsewhere the report says what is not held")
    assert the_zygote.walls.in_sandbox, the_zygote.walls.held


def test_the_report_names_every_protection(sealed):
    if not LINUX:
        pytest.skip("namespaces are for Linux; elsewhere the report says what is not held")
    sealed.grade("06_kv_cache", {"6.3": SOLUTIONS["6.3"]}, [])
    for claim in (
        "read-only files: Python, torch, numpy, nothing of the course",
        "no network",
        "no environment",
        "own processes: it sees and signals no other",
        "no /proc",
        "own /tmp of 64 MiB, gone with it",
        "10 s of processor time",
        "2 GiB of address space a process",
        "1 GiB of memory in all",
        "files of 16 MiB",
        "24 processes",
        "no privileges",
        "system calls filtered",
    ):
        assert claim in sealed.protections


def test_a_worker_can_import_what_the_exercise_allows_and_nothing_else(worker):
    probe = worker(
        "import importlib, sys\n"
        "def probe(names):\n"
        "    got = {}\n"
        "    for name in names:\n"
        "        try: importlib.import_module(name); got[name] = True\n"
        "        except ImportError: got[name] = False\n"
        "    return got, sorted(name for name in sys.modules if name.startswith('kvcourse'))"
    ).answer
    names = ["torch.nn.functional", "numpy", "json", "kvcourse", "pytest", "matplotlib", "transformers", "pip", "hypothesis"]
    got, ours = probe(names)
    assert got == {name: name in names[:3] for name in names} and ours == []


def test_nothing_of_the_course_nor_of_the_home_folder_is_there(worker):
    found = worker(
        "def probe(places):\n"
        "    names = []\n"
        "    for at, _, files in os.walk('/'):\n"
        "        if not at.startswith(('/usr', '/packages')): names += [os.path.join(at, name) for name in files]\n"
        "    ours = [name for name in names if 'kvcourse' in name or '06_kv' in name or name.endswith('.ipynb')]\n"
        "    return [place for place in places if os.path.exists(place)], ours, os.listdir('/packages')"
    ).answer
    home, course = os.path.expanduser("~"), str(corpus.ROOT)
    exists, names, packages = found(
        [f"{home}/.bashrc", f"{home}/.ssh", f"{course}/sources", f"{course}/kvcourse", "/etc/passwd"]
    )
    assert (exists, names) == ([], [])
    assert {"torch", "numpy"} <= set(packages) and not {"kvcourse", "pytest"} & set(packages)


def test_the_environment_holds_only_what_we_put_there(worker):
    environment = worker("def probe():\n    return dict(os.environ)").answer()
    assert {name: value for name, value in environment.items() if name != "PWD"} == sandbox.ENVIRONMENT


@pytest.mark.parametrize(
    "place",
    ["/x", "/packages/x", "/program/inside/x", "/dev/x", "/dev/shm/x", "/usr/lib/x", "/proc/x", "/sys/x"]
    + [f"/{home}/x" for home in ("root", "home")],
)
def test_nothing_can_be_written_but_in_its_own_tmp(worker, place):
    with pytest.raises(Broken, match=r"Read-only file system|Permission denied|No such file"):
        worker("def probe(place):\n    open(place, 'w').write('x')").answer(place)


def test_its_tmp_is_small_and_gone_with_it(worker):
    fill = (
        "def probe():\n"
        "    before = os.listdir('/tmp')\n"
        "    for n in range(20):\n"
        "        try:\n"
        "            with open(f'/tmp/{n}', 'wb') as file: file.write(bytes(10 << 20))\n"
        "        except OSError as error:\n"
        "            return before, n, error.errno\n"
    )
    for _ in range(2):
        assert worker(fill).answer() == ([], 6, 28)  # ENOSPC in the seventh file


def test_a_file_has_a_largest_size(worker):
    with pytest.raises(Broken, match=r"File too large|signal"):
        worker("def probe():\n    import tempfile; open(tempfile.gettempdir() + '/x', 'wb').write(bytes(17 << 20))").answer()


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.socket(socket.AF_INET)",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1', timeout=2)",
        "os.unshare(os.CLONE_NEWUSER) if hasattr(os, 'unshare') else libc('unshare', 0x10000000)",
        "libc('ptrace', 16, 1, 0, 0)",
        "libc('mount', b'x', b'/tmp', b'tmpfs', 0, None)",
        "libc('setuid', 0)",
        "libc('chroot', b'/tmp')",
        "libc('memfd_create', b'x', 0)",
        "libc('clone', None, None, 0x10000000, None)",
    ],
)
def test_what_the_kernel_is_not_to_do_for_an_answer_it_does_not(worker, attempt):
    source = (
        "import ctypes\n"
        "def libc(name, *arguments):\n"
        "    library = ctypes.CDLL(None, use_errno=True)\n"
        "    if getattr(library, name)(*arguments) == -1:\n"
        "        raise PermissionError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n"
        f"def probe():\n    {attempt}\n    return 'done'\n"
    )
    with pytest.raises(Broken, match=r"not permitted|Permission denied|URLError|Invalid argument"):
        worker(source).answer()


SHARED = (
    "import mmap\n"
    "def probe(flags, path):\n"
    "    file = os.open(path, os.O_RDWR | os.O_CREAT) if path else -1\n"
    "    if path == 'file': os.truncate(path, 1 << 20)\n"
    "    return mmap.mmap(file, 1 << 20, flags)[:1]\n"
)


@pytest.mark.parametrize(("flags", "path"), [(0x21, ""), (0x01, "/dev/zero"), (0x01, "file"), (0x03, "file")])
def test_memory_that_no_process_is_seen_to_hold_cannot_be_had(worker, flags, path):
    if not LINUX:
        pytest.skip("system calls are filtered on Linux; elsewhere the report says what is not held")
    with pytest.raises(Broken, match="not permitted"):
        worker(SHARED).answer(flags, path)


def test_private_memory_and_torch_work_without_shared_memory(worker):
    if LINUX:
        assert worker(SHARED).answer(0x22, "") == Unknown("bytes")
    x = torch.ones(300, 300)
    value = worker(
        "import threading, numpy\n"
        "def probe(x):\n"
        "    torch.save(x, 'file'); y = torch.load('file', mmap=True)\n"
        "    thread = threading.Thread(target=lambda: torch.rand(9).sort()); thread.start(); thread.join()\n"
        "    layer = torch.nn.Linear(300, 300, bias=False); layer(y).sum().backward()\n"
        "    out = torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])[0]\n"
        "    return out, torch.linalg.svdvals(torch.from_numpy(numpy.asarray(x)))[0], layer.weight.grad, x @ y"
    ).answer(x)
    torch.testing.assert_close(value, (x, torch.tensor(300.0), 300 * x, 300 * x))


def test_it_sees_no_other_process_and_has_no_privileges(worker):
    if not LINUX:
        pytest.skip("process namespaces are for Linux; elsewhere the report says what is not held")
    pid, user, others, proc = worker(
        "def probe():\n"
        "    others = []\n"
        "    for pid in range(2, 300):\n"
        "        try: os.kill(pid, 0); others.append(pid)\n"
        "        except ProcessLookupError: pass\n"
        "        except PermissionError: others.append(pid)\n"
        "    return os.getpid(), os.getuid(), others, os.listdir('/proc')"
    ).answer()
    assert (pid, others, proc) == (1, [], []) and user != 0


def test_the_number_of_processes_is_limited_for_root_too(worker):
    started = worker(
        "import time\n"
        "def probe(most):\n"
        "    for n in range(most):\n"
        "        try:\n"
        "            if os.fork() == 0:\n"
        "                time.sleep(60)\n"
        "                os._exit(0)\n"
        "        except BlockingIOError:\n"
        "            return n\n"
        "    return most"
    ).answer(100)
    assert 0 < started < limits.PROCESSES


def test_what_it_left_behind_ends_with_it(worker, the_zygote):
    made = worker(
        "import time\n"
        "def probe():\n"
        "    for _ in range(3):\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            if os.fork(): os._exit(0)\n"
        "            time.sleep(600)\n"
        "    return 3"
    )
    family = psutil.Process(the_zygote._process.pid)
    assert made.answer() == 3
    assert len(family.children(recursive=True)) >= 5
    the_zygote.stop()
    assert len(family.children(recursive=True)) == 2  # bubblewrap's other half, and the zygote


def test_a_worker_starts_as_if_the_one_before_had_never_been(worker):
    source = "def probe(x):\n    torch.was_here = getattr(torch, 'was_here', 0) + 1\n    return torch.was_here, torch.rand(2)"
    (first, a), (second, b) = (worker(source).answer(1) for _ in range(2))
    assert first == second == 1 and torch.equal(a, b)


def test_withheld_names_are_gone(worker):
    probe = worker(
        "def probe():\n    return hasattr(torch.nn.functional, 'softmax'), hasattr(torch, 'cumsum'), hasattr(torch, 'cat')",
        withheld=("torch.nn.functional.softmax", "torch.cumsum", "torch.no_such.thing", "nothing"),
    )
    assert probe.answer() == (False, False, True)


# How a call goes over and comes back: the same contract as in the notebook.


def test_values_of_every_kind_go_over_and_come_back(worker):
    value = {"a": [1, 2.5, None, True, "ä"], 3: (torch.ones(2, 1), torch.float16), None: {}}
    back = worker("def probe(x, *, y):\n    return [x, y]").answer(value, y=float("inf"))
    assert torch.equal(back[0][3][0], value[3][0]) and back[1] == float("inf")
    assert (back[0]["a"], back[0][3][1], back[0][None]) == (value["a"], torch.float16, {})


def test_an_object_that_is_kept_changes_over_there_and_is_read_when_asked(worker):
    answer = worker("def probe(rows, x):\n    rows.setdefault('all', []).append(x)\n    return rows['all']").answer
    rows = answer.keep({})
    answer(rows, 1)
    returned = answer.returned
    answer(rows, 2)
    assert rows.value() == {"all": [1, 2]} and returned.value() == [1, 2]


def test_methods_of_a_kept_object_can_be_called(worker):
    answer = worker(
        "class probe:\n    def __init__(self, n): self.n = n\n    def add(self, k): self.n += k; return self.n"
    ).answer
    assert answer(3) == Unknown("probe")
    counter = answer.returned
    assert (counter.call("add", 4), counter.call("add", k=1)) == (7, 8)
    with pytest.raises(Broken, match=r"probe\.gone stopped with AttributeError"):
        counter.call("gone")


def test_a_function_that_is_handed_over_runs_here_and_gets_our_own_object_back(worker):
    class Cache:
        length, secret = 0, 42

    cache, seen = Cache(), []

    def model(tokens, cache=None):
        seen.append((os.getpid(), tokens.tolist(), cache))
        cache.length += len(tokens)
        return tokens * 2

    answer = worker(
        "def probe(model, cache):\n"
        "    out = model(torch.tensor([1, 2]), cache=cache)\n"
        "    return out, cache.length, hasattr(cache, 'secret'), cache"
    ).answer
    out, length, secret, back = answer(model, Opaque(cache, ("length",)))
    assert (out.tolist(), length, secret) == ([2, 4], 2, False)
    assert seen == [(os.getpid(), [1, 2], cache)] and back is cache


def test_a_function_that_is_handed_over_may_give_out_objects_of_ours_and_gets_them_back(worker):
    class Cache:
        length = 7

    made, seen = [Cache(), Cache()], []
    source = "def probe(new, take):\n    first, last = new(0), new(1)\n    take(last)\n    take(first)\n    return first.length"
    assert worker(source).answer(lambda i: Opaque(made[i], ("length",)), seen.append) == 7
    assert seen[0] is made[1] and seen[1] is made[0]


def test_what_our_function_raises_can_be_caught_there(worker):
    def model(x):
        raise IndexError("out of range")

    answer = worker("def probe(f):\n    try: f(1)\n    except IndexError as error: return str(error)").answer
    assert answer(model) == "out of range"


def test_a_fault_that_our_function_finds_ends_the_call_whatever_the_answer_catches(worker):
    calls = []

    def model(x):
        calls.append(x)
        raise Broken("The cache was left out.")

    answer = worker("def probe(f):\n    try: f(1)\n    except Exception: return 'fine'\n    return 'fine'").answer
    with pytest.raises(Broken, match="The cache was left out"):
        answer(model)
    assert calls == [1]
    with pytest.raises(Broken, match="The cache was left out"):  # and the worker still serves
        answer(model)


def test_a_property_may_ask_while_its_function_is_called(worker):
    answer = worker("def probe(rows, f):\n    rows.append(1)\n    f()\n    rows.append(2)\n    return rows").answer
    rows, during = answer.keep([]), []
    assert answer(rows, lambda: during.append(rows.value())) == [1, 2]
    assert during == [[1]]


def test_a_stub_is_not_started_and_other_exceptions_are_one_line(worker):
    with pytest.raises(NotStarted):
        worker("def probe():\n    raise NotImplementedError('Exercise 6.2: write this function')").answer()
    with pytest.raises(Broken) as broken:
        worker("def probe():\n    raise ValueError('one\\ntwo \\x1b[31m')").answer()
    assert str(broken.value) == "probe stopped with ValueError: one"


def test_a_worker_that_is_silent_is_ended_at_the_limit_and_says_which(worker, monkeypatch):
    monkeypatch.setattr(limits, "TASK_WALL_S", 0.5)
    probe = worker("import time\ndef probe():\n    time.sleep(60)")
    start = time.monotonic()
    for _ in range(2):  # the second property hears the same, at once
        with pytest.raises(Broken, match=r"probe gave no result: it took longer than 0\.5 s\."):
            probe.answer()
    assert time.monotonic() - start < 5


def test_a_worker_is_ended_after_too_many_calls_of_our_functions(worker, monkeypatch):
    monkeypatch.setattr(limits, "CALLBACKS", 10)
    with pytest.raises(Broken, match="more than 10 times"):
        worker("def probe(f):\n    while True: f()").answer(lambda: None)


def test_an_attribute_of_ours_that_is_no_plain_value_is_not_handed_over(worker):
    class Holder:
        inner = object()

    answer = worker("def probe(x):\n    return x.inner").answer
    assert answer(Opaque(Holder(), ("inner",))) is None


# Reading cells.


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("%%time\nx = 1", ["x = 1"]),
        ("%matplotlib inline\nx = 1", ["x = 1"]),
        ("!ls -l | wc\nx = 1", ["x = 1"]),
        ("y = !ls\nx = 1", ["x = 1"]),
        ("x = 1\nx?\n?x", ["x = 1"]),
        ("if True:\n    %timeit 3\nx = 1", ["if True:\n    pass", "x = 1"]),
        ("if True:\n    %time x = 1", ["if True:\n    x = 1"]),
        ("%time\nx = 1", ["x = 1"]),
        ("\ufeffx = 1", ["x = 1"]),
        ("x = '''\n%time\n!ls\n'''", ["x = '\\n%time\\n!ls\\n'"]),
        ("x = (7\n% 4)", ["x = 7 % 4"]),
        ("", []),
    ],
)
def test_magics_are_left_out_and_python_is_not(source, left):
    assert [ast.unparse(one) for one in cells.parse(source, "x") if not isinstance(one, ast.Pass)] == left


@pytest.mark.parametrize("source", ["def f(:", "x = ", "\0", "(" * 5000, "%" + "\n%" * 500])
def test_what_is_no_python_is_said_to_be_none(source):
    if source.startswith("%"):
        source = source + "\n)("
    with pytest.raises(cells.CannotRead):
        cells.parse(source, "x")


def test_other_cells_give_what_they_define_and_do_nothing_else(worker):
    support = (
        "import math\nLIMIT, (A, B) = 4, (1, 2)\ntorch.cat = None\nos._exit(3)\n1 / 0\nC: int = 5",
        "def helper(): return LIMIT + A",
        "def broken(:",
        "def probe(): return 'a draft'",
    )
    probe = worker("def probe():\n    return math.floor(helper() + 0.5), B, C, torch.cat is None", support=support)
    assert probe.fault is None and probe.answer() == (5, 2, 5, False)


def test_other_cells_may_choose_change_and_fall_back(worker):
    support = (
        "try:\n    import no_such_module as m\nexcept ImportError:\n    m = 1",
        "if m == 1:\n    TABLE, *REST = {}, 2, 3\nTABLE['a'] = 4\nm += 1",
        "torch.cat = None\ntorch.seen += 1\n(m, torch.cat) = 0, 0",
    )
    probe = worker("def probe():\n    return m, TABLE, REST, torch.cat is None", support=support)
    assert probe.answer() == (2, {"a": 4}, [2, 3], False)


def test_what_needs_a_later_cell_is_tried_again_and_overwrites_nothing(worker):
    support = ("alias = helper\nTABLE = {}\nTABLE['f'] = helper\nkept = helper", "kept = 1\ndef helper(): return 2")
    assert worker("def probe():\n    return alias(), TABLE['f'](), kept", support=support).answer() == (2, 2, 1)


def test_what_the_first_cell_imports_is_there_whatever_another_cell_made_of_it(worker):
    assert worker("def probe(): return torch.ones(1)", support=("torch = 3\nos = 4",)).answer() == torch.ones(1)


def test_annotations_may_name_what_is_not_there(worker):
    source = "from __future__ import annotations\ndef probe(x: Missing, *rest: Missing.Inner) -> Missing: return x"
    for cell in (source, source.split("\n")[1], "y: Missing = 1\n" + source):
        assert worker(cell, support=(cell.replace("probe", "other"),)).answer(3) == 3


def test_a_notebook_s_display_does_nothing_and_sources_can_be_read(worker):
    source = (
        "import inspect\ndisplay(3)\n%time y = 1\n\n"
        "def helper(x: torch.Tensor, n: int) -> torch.Tensor:\n    return x + n\n\n"
        "def probe(x):\n    return display(x), y, inspect.getsource(helper), torch.jit.script(helper)(x, 2)"
    )
    nothing, y, text, three = worker(source).answer(torch.ones(1))
    assert (nothing, y, three) == (None, 1, torch.full((1,), 3.0)) and text.startswith("def helper(x: torch.Tensor")


def test_a_slow_definition_is_measured_in_processor_time_and_the_message_says_so(worker):
    waits = "import time\nnow = time.sleep({}) or 1\ndef probe(): return now"
    assert worker(waits.format(limits.STATEMENT_CPU_S + 0.5)).answer() == 1
    fault = worker("def slow():\n    while True: pass\n@(lambda f: slow())\ndef probe(): return 1\n1 / 0").fault
    assert fault is not None and "does not define probe" in fault and "2 s of processor time" in fault


def test_a_draft_in_another_cell_counts_only_if_the_answer_s_cell_has_none(worker):
    draft = ("def probe(): return 'draft'",)
    assert worker("def probe(): return 'answer'", support=draft).answer() == "answer"
    assert worker("x = 1", support=draft).answer() == "draft"


# The judge and its parent.


def test_the_reference_gets_full_points(sealed):
    results = sealed.grade("06", SOLUTIONS, [])
    assert [(one.name, one.points, one.max_points, one.state) for one in results] == [
        (name, task.points, task.points, "passed") for name, task in corpus.TASKS.items()
    ]
    assert all("properties hold" in one.message and one.broken is None for one in results)


def test_missing_and_unstarted_answers_are_told_apart(sealed):
    stub = "def my_mask(past, T):\n    raise NotImplementedError('Exercise 6.2: write this function')"
    states = {one.name: (one.state, one.points) for one in sealed.grade("06", {"6.2": stub, "6.3": None}, [])}
    assert states == {"6.1": ("missing", 0), "6.2": ("not started", 0), "6.3": ("missing", 0), "6.4": ("missing", 0)}


def test_the_judge_says_what_the_notebook_s_check_says(sealed):
    from kvcourse.checks import registry
    from kvcourse.checks.local import LocalAnswer

    namespace: dict = {"torch": torch}
    source = corpus.mask("pass")
    exec(source, namespace)
    _exercise, task = registry.find_task("6.2")
    here = judge(task.name, task.title, registry.properties_of(task), LocalAnswer(namespace["my_mask"], "my_mask"), SEED)
    there = sealed.grade("06", {"6.2": source}, [])[1]
    assert (there.message, there.broken, there.state) == (here.message, here.broken, here.state)


def test_a_huge_result_is_broken_before_anything_is_made_of_it(sealed):
    start = time.monotonic()
    huge = "def my_positions(past, T):\n    return torch.full((1 << {},), -(1 << 62))"
    for bits, words in ((22, "returned too much: 32 MiB, the limit is 4"), (18, "262144 numbers")):
        got = sealed.grade("06_kv_cache", {"6.3": huge.format(bits)}, [])[2]
        assert got.state == "failed" and len(got.message) <= 600
        assert words in got.message
    assert time.monotonic() - start < 20


def test_a_huge_answer_costs_its_own_task_and_huge_other_cells_none(sealed):
    answers = dict(SOLUTIONS) | {"6.2": f"# {'x' * 4_300_000}\n{SOLUTIONS['6.2']}"}
    got = {one.name: one for one in sealed.grade("06_kv_cache", answers, [f"big = '{'x' * 4_300_000}'"])}
    assert "too long" in got["6.2"].message
    assert [one.name for one in got.values() if one.points] == ["6.1", "6.3", "6.4"]


def test_the_cells_that_are_to_have_the_last_word_have_it(sealed):
    first, second = ("def span(a, b):\n    return torch.arange(a, b)", "def span(a, b):\n    return None")
    answers = {"6.3": "def my_positions(past, T):\n    return span(past, past + T)"}
    assert sealed.grade("06_kv_cache", answers, [first, second])[2].points == 0
    assert sealed.grade("06_kv_cache", answers, [first, second], {"6.3": (first,)})[2].points == 1


def test_the_same_seed_gives_the_same_results():
    wrong = {"6.1": "def my_append(rows, layer, k, v):\n    rows[layer] = (v, k)\n    return v, k", "6.2": corpus.mask("pass")}
    results = []
    for _ in range(2):
        with SealedGrader(7) as grader:
            results.append(grader.grade("06", wrong, []))
    assert results[0] == results[1]


def test_a_judge_that_is_killed_costs_one_task_and_the_next_one_has_another():
    with SealedGrader(1) as grader:
        grader.grade("06", {"6.3": SOLUTIONS["6.3"]}, [])
        family = [
            grader._judge._process.pid,
            *(one.pid for one in psutil.Process(grader._judge._process.pid).children(recursive=True)),
        ]
        os.kill(family[0], signal.SIGKILL)
        results = grader.grade("06", {"6.2": SOLUTIONS["6.2"], "6.3": SOLUTIONS["6.3"]}, [])
        assert [(one.name, one.state) for one in results[1:3]] == [("6.2", "failed"), ("6.3", "passed")]
        assert "judge was lost" in results[1].message
    _gone, alive = psutil.wait_procs([psutil.Process(pid) for pid in family if psutil.pid_exists(pid)], timeout=5)
    assert alive == []  # a sandbox ends with its judge


def test_a_judge_that_hangs_is_given_up(monkeypatch):
    with SealedGrader(1) as grader:
        grader.grade("06", {"6.3": SOLUTIONS["6.3"]}, [])
        os.kill(grader._judge._process.pid, signal.SIGSTOP)
        monkeypatch.setattr(limits, "START_S", 0.3)
        monkeypatch.setattr(limits, "JUDGE_S", 0.3)
        monkeypatch.setattr(limits, "END_S", 0.3)
        results = grader.grade("06", {"6.2": SOLUTIONS["6.2"]}, [])
        assert "judge was lost" in results[1].message


def test_a_zygote_that_is_killed_costs_one_task_at_most():
    with SealedGrader(1) as grader:
        grader.grade("06", {"6.3": SOLUTIONS["6.3"]}, [])
        for one in psutil.Process(grader._judge._process.pid).children():
            one.kill()
        states = [one.state for one in grader.grade("06", SOLUTIONS, [])]
        assert states.count("passed") >= 3 and states[-1] == "passed"


def test_what_libraries_print_cannot_be_taken_for_a_verdict():
    """The judge's own standard output is not where its verdicts go once it runs."""
    code = (
        "import os, sys\nfrom kvcourse.grader import judge\n"
        "requests, replies = judge._own_streams()\n"
        "print('{\"state\": \"passed\"}'); os.write(1, b'noise'); assert sys.stdin.read() == ''\n"
        "replies.write(requests.readline()); replies.flush()"
    )
    run = subprocess.run([sys.executable, "-c", code], input="verdict\n", capture_output=True, text=True, check=True)
    assert run.stdout == "verdict\n" and "noise" in run.stderr


def test_the_parent_imports_neither_torch_nor_nbformat():
    code = (
        "import sys\nfrom kvcourse.grader.sealed import SealedGrader\n"
        "SealedGrader(1).grade('06', {}, [])\n"
        "print([name for name in ('torch', 'nbformat', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_modules_in_the_folder_we_grade_from_are_not_ours(tmp_path, monkeypatch):
    for name in ("torch", "json", "kvcourse"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken in')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f".{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with SealedGrader(1) as grader:
        assert grader.grade("06", {"6.3": SOLUTIONS["6.3"]}, [])[2].state == "passed"


# Where there is no bubblewrap.


def test_without_bubblewrap_answers_are_still_graded_and_the_report_says_what_is_not_held(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    zygote = Zygote(("torch", "numpy"))
    try:
        assert not zygote.walls.in_sandbox
        assert "NOT held" in zygote.walls.held[0] and "bubblewrap (bwrap) is not installed" in zygote.walls.held[0]
        line = remote.Line(zygote.start(), lambda why: autopsy(zygote, why))
        held = line.hello()
        line.support((), "import torch\n", ())
        source = "import os, time\ndef probe(x):\n    if os.fork() == 0: time.sleep(600)\n    import kvcourse"
        assert line.load("probe", source) is None
        with pytest.raises(Broken, match="ModuleNotFoundError"):
            remote.RemoteAnswer(line, "probe")(1)
        assert f"{limits.TASK_CPU_S} s of processor time" in held
        line.close()
        zygote.stop()
        assert psutil.Process(zygote._process.pid).children(recursive=True) == []
    finally:
        zygote.close()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("echo 'No permissions to create new namespace' >&2; exit 1", "may not make namespaces here (No permissions"),
        ("exit 3", "may not"),
    ],
)
def test_a_bubblewrap_that_may_not_make_namespaces_is_a_reason_of_its_own(tmp_path, program, reason):
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    fake.chmod(0o755)
    assert reason in (sandbox.why_not(str(fake)) or "")


def test_a_sandbox_that_does_not_start_says_why():
    walls = sandbox.Walls([sys.executable, "-c", "import sys; sys.exit('no torch')", "{control}"], (), True)
    with pytest.raises(SetupError, match="no torch"):
        Zygote(("torch",), walls)


def test_a_dotted_name_lets_in_one_module_and_not_its_package():
    inside = sandbox.packages(("torch", "kvcourse.config"))
    ours = {name for name in inside if name.startswith("kvcourse")}
    assert ours == {"kvcourse/__init__.py", "kvcourse/config.py"}
    assert inside["kvcourse/config.py"].samefile(corpus.ROOT / "kvcourse" / "config.py")


def test_the_filter_of_system_calls_is_well_formed_for_both_machines():
    for machine in syscalls.MACHINES:
        code = syscalls.program(machine)
        assert len(code) % 8 == 0 and len(code) // 8 < 256
    assert syscalls.program("x86_64") != syscalls.program("aarch64")
