"""_native.compile: what a pass, the code generator or a limit does ends as a status, and never ends this process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from r3llvm import _native
from r3llvm.toolchain import find_llvm_tool
from tests.modules import FOLDER, assemble, bitcode, disassemble

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture(scope="module")
def module() -> bytes:
    return _native.prepare(bitcode("unit"), "scale")


def test_ok(module: bytes) -> None:
    result = _native.compile(module, "default<O3>", features="+ptx80")
    assert (result.status, result.message, result.log) == ("ok", "", "")
    assert b".version 8.0" in result.ptx and b".target sm_90" in result.ptx and b".entry scale(" in result.ptx
    assert disassemble(result.bitcode)
    assert 0 < result.seconds < 30


def test_the_same_build_gives_the_same_bytes(module: bytes) -> None:
    first, second = (_native.compile(module, "default<O2>") for _ in range(2))
    assert (first.bitcode, first.ptx) == (second.bitcode, second.ptx)


UNROLL = "function(loop-unroll<O3>)"


@pytest.fixture(scope="module")
def short_loop() -> bytes:
    return assemble((FOLDER / "loop.ll").read_bytes().replace(b"5000000", b"24"))


def test_options_reach_the_passes(short_loop: bytes) -> None:
    rolled = _native.compile(short_loop, UNROLL, options=["-unroll-threshold=1"])
    unrolled = _native.compile(short_loop, UNROLL, options=["-unroll-threshold=100000"])
    assert rolled.status == unrolled.status == "ok"
    assert disassemble(rolled.bitcode).count("load i32") < 24
    assert disassemble(unrolled.bitcode).count("load i32") == 24


def test_options_do_not_outlive_their_build(short_loop: bytes) -> None:
    before = _native.compile(short_loop, UNROLL).ptx
    assert _native.compile(short_loop, UNROLL, options=["-unroll-threshold=1"]).ptx != before
    assert _native.compile(short_loop, UNROLL).ptx == before


def test_codegen_levels(module: bytes) -> None:
    texts = {level: _native.compile(module, "default<O1>", codegen_level=level).ptx for level in (0, 3)}
    assert texts[0] != texts[3]
    assert _native.compile(module, "default<O1>", codegen_level=4).status == "parse_error"


@pytest.mark.parametrize(
    ("pipeline", "options", "said"),
    [
        ("no-such-pass", [], "unknown pass name 'no-such-pass'"),
        ("function(nvvm-reflect)", [], "unknown function pass 'nvvm-reflect'"),
        ("function(instcombine<bogus>)", [], "bogus"),
        ("function(", [], "invalid pipeline"),
        ("default<O3>", ["-no-such-option=3"], "unknown LLVM option '-no-such-option'"),
        ("default<O3>", ["-help"], "unknown LLVM option '-help'"),
        ("default<O3>", ["unroll-threshold=3"], "begins with '-'"),
        ("default<O3>", ["-unroll-threshold=many"], "'many' value invalid for uint argument"),
    ],
)
def test_what_llvm_refuses(module: bytes, pipeline: str, options: list[str], said: str) -> None:
    result = _native.compile(module, pipeline, options=options)
    assert result.status == "parse_error"
    assert said in result.message and "\n" not in result.message
    assert result.ptx == result.bitcode == b""


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        # LLVM reports a fatal error and exits.
        ("default<O1>,function(loop(licm))", None),
        ("function(loop(loop-rotate,licm))", "LICM requires MemorySSA"),
        # abort(), and a null access
        ("trigger-crash-module", "killed by SIGABRT while running trigger-crash-module on the module"),
        ("function(codegenprepare)", "killed by SIGSEGV while running codegenprepare on function"),
    ],
)
def test_a_pass_that_crashes(pipeline: str, said: str | None) -> None:
    result = _native.compile(bitcode("loop"), pipeline)
    assert result.status == "pass_crash"
    assert "licm on a loop of function spin" in result.message if said is None else said in result.message
    assert "\n" not in result.message


def test_a_code_generator_that_crashes() -> None:
    text = b"""target triple = "nvptx64-nvidia-cuda"
    define ptx_kernel void @f(ptr %p) {
      %old = cmpxchg ptr %p, i128 0, i128 1 seq_cst seq_cst
      %x = extractvalue { i128, i1 } %old, 0
      store i128 %x, ptr %p
      ret void
    }"""
    result = _native.compile(assemble(text), "function(sroa)", cpu="sm_70", features="+ptx70")
    assert result.status == "codegen_crash"
    assert result.message and "\n" not in result.message


def test_unknown_targets(module: bytes) -> None:
    for cpu, features, said in (
        ("sm_1x", "", "unknown GPU architecture 'sm_1x'"),
        ("sm_90", "+ptx99999", "unknown target feature '+ptx99999'"),
        ("sm_90", "+ptx60", "PTX version 6.0 does not support target 'sm_90'"),
    ):
        result = _native.compile(module, "default<O1>", cpu=cpu, features=features)
        assert result.status == "parse_error" and said in result.message


def test_time_limit(module: bytes) -> None:
    started = time.monotonic()
    result = _native.compile(module, ",".join(["default<O3>"] * 3000), seconds=0.5)
    assert result.status == "build_timeout"
    assert result.message.startswith("not finished after 0.5 s while ")
    assert time.monotonic() - started < 10


def test_memory_limit() -> None:
    options = ["-unroll-threshold=2000000000", "-unroll-full-max-count=100000000"]
    result = _native.compile(bitcode("loop"), "function(loop-unroll<O3>)", options=options, memory_bytes=96 << 20)
    assert result.status == "build_memory"
    assert result.message.startswith("out of memory (limit 96 MiB) while running loop-unroll on function spin")


def test_a_target_machine_is_attached() -> None:
    """Without one, jump-threading takes the GPU for a CPU and copies the barrier to both sides of the branch."""
    text = (FOLDER / "barrier.ll").read_bytes()
    result = _native.compile(assemble(text), "function(jump-threading)")
    assert disassemble(result.bitcode).count("call void @llvm.nvvm.membar.cta()") == 1
    opt = find_llvm_tool("opt")
    assert opt
    untargeted = b"\n".join(line for line in text.splitlines() if not line.startswith(b"target"))
    command = [opt, "-passes=function(jump-threading)", "-S", "-o", "-"]
    copied = subprocess.run(command, input=untargeted, capture_output=True, check=True).stdout
    assert copied.count(b"call void @llvm.nvvm.membar.cta()") == 2


def test_threads_each_get_their_own_answer(module: bytes) -> None:
    cases = {
        "default<O3>": "ok",
        "function(loop(licm))": "ok",  # no loop here
        "trigger-crash-module": "pass_crash",
        "no-such-pass": "parse_error",
    }
    wrong: list[str] = []

    def work(offset: int) -> None:
        for i in range(12):
            pipeline = list(cases)[(i + offset) % len(cases)]
            result = _native.compile(module, pipeline)
            if result.status != cases[pipeline]:
                wrong.append(f"{pipeline}: {result.status} {result.message}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_slow_sibling_holds_nobody_up(module: bytes) -> None:
    """A sibling forked meanwhile has this child's pipe ends: its end must not be waited for."""
    slow = threading.Thread(target=lambda: _native.compile(module, ",".join(["default<O3>"] * 3000), seconds=4))
    slow.start()
    try:
        longest = max(_native.compile(module, "globaldce").seconds for _ in range(20))
        assert slow.is_alive() and longest < 2
    finally:
        slow.join()


def test_nothing_is_left_behind(module: bytes) -> None:
    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())

    descriptors, others = len(list(Path("/proc/self/fd").iterdir())), children()
    for pipeline in ("default<O1>", "trigger-crash-module", "no-such-pass"):
        _native.compile(module, pipeline)
    _native.compile(module, ",".join(["default<O3>"] * 3000), seconds=0.05)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert children() <= others


def test_a_child_runs_no_exit_handler_of_the_parent(tmp_path: Path) -> None:
    """LLVM's fatal error calls exit(1). dprintf(1, text) serves as the handler: it gets status and argument."""
    script = tmp_path / "exit.py"
    script.write_text(
        textwrap.dedent(
            """
            import ctypes, sys
            from r3llvm import _native
            libc = ctypes.CDLL(None)
            libc.on_exit(libc.dprintf, b"handler\\n")
            print("buffered ", end="")
            print(_native.compile(sys.stdin.buffer.read(), "function(loop(licm))").status, flush=True)
            sys.exit(1)
            """
        )
    )
    run = _python(script, bitcode("loop"), status=1)
    assert run.stdout == b"buffered pass_crash\nhandler\n"


def test_an_ignored_sigchld_does_no_harm(module: bytes) -> None:
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert _native.compile(module, "default<O1>").status == "ok"
        assert _native.compile(module, "no-such-pass").status == "parse_error"
    finally:
        signal.signal(signal.SIGCHLD, previous)


def test_children_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import sys\nfrom r3llvm import _native\n"
        'print("ready", flush=True)\n'
        '_native.compile(sys.stdin.buffer.read(), ",".join(["default<O3>"] * 5000), seconds=60)\n'
    )
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    ) as parent:
        assert parent.stdin and parent.stdout
        parent.stdout.readline()
        parent.stdin.write(_native.prepare(bitcode("unit"), "scale"))
        parent.stdin.close()
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        child = int(_wait_for(lambda: children.read_text().split())[0])
        parent.kill()
    _wait_for(lambda: not _runs(child))


def _python(script: Path, data: bytes, status: int = 0) -> subprocess.CompletedProcess[bytes]:
    run = subprocess.run([sys.executable, script], input=data, capture_output=True, cwd=script.parent, env=ENVIRONMENT)
    assert run.returncode == status, run.stderr.decode()
    return run


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def _wait_for(condition, seconds: float = 20):  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def test_no_core_file(tmp_path: Path) -> None:
    script = tmp_path / "crash.py"
    script.write_text(
        "import resource, sys\nfrom r3llvm import _native\n"
        "hard = resource.getrlimit(resource.RLIMIT_CORE)[1]\nresource.setrlimit(resource.RLIMIT_CORE, (hard, hard))\n"
        'print(_native.compile(sys.stdin.buffer.read(), "trigger-crash-module").status)\n'
    )
    run = _python(script, bitcode("loop"))
    assert run.stdout == b"pass_crash\n"
    assert list(tmp_path.iterdir()) == [script]


def test_check_pipeline() -> None:
    _native.check_pipeline("module(default<O3>),function(loop-mssa(licm),nvvm-intr-range)")
    for text, said in (("", "empty"), ("sroa,inline", "unknown function pass 'inline'")):
        with pytest.raises(ValueError, match=said):
            _native.check_pipeline(text)


@pytest.mark.parametrize("call", ["check_pipeline('default<O3>')", "list_passes()", "check_target('sm_90')"])
def test_nothing_needs_to_come_first(tmp_path: Path, call: str) -> None:
    script = tmp_path / "first.py"
    script.write_text(f"from r3llvm import _native\n_native.{call}\n")
    _python(script, b"")


def test_check_options() -> None:
    _native.check_options([])
    _native.check_options(["-unroll-threshold=400", "--licm-control-flow-hoisting"])
    for option in ("-nope", "unroll-threshold=1", "-unroll-threshold=x", "-version"):
        with pytest.raises(ValueError, match="LLVM option"):
            _native.check_options([option])


def test_check_target() -> None:
    _native.check_target("sm_90", "+ptx80")
    for cpu, features in (("sm_1x", ""), ("sm_90", "+bogus"), ("sm_90", "+ptx60"), ("", "")):
        with pytest.raises(ValueError, match=r"sm_1x|bogus|PTX version 6.0|architecture ''"):
            _native.check_target(cpu, features)


def test_list_passes() -> None:
    passes = json.loads(_native.list_passes())
    assert {"module", "cgscc", "function", "loop", "loopnest", "parameterised"} <= set(passes)
    assert "globalopt" in passes["module"] and "argpromotion" in passes["cgscc"] and "indvars" in passes["loop"]
    assert {"nvvm-reflect", "generic-to-nvvm"} <= set(passes["module"]) and "nvvm-intr-range" in passes["function"]
    assert any(name.startswith("gvn<") for name in passes["parameterised"]["function"])
    for name in passes["function"]:
        _native.check_pipeline(f"function({name})")


def test_llvm_version() -> None:
    assert _native.LLVM_VERSION.split(".")[0] in ("20", "21", "22")


UNFLAGGED = b"""
target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @axpx(ptr addrspace(1) %p, float %x) {
  %v = load float, ptr addrspace(1) %p
  %product = fmul float %v, %x
  %sum = fadd float %product, %x
  store float %sum, ptr addrspace(1) %p
  ret void
}
"""


def test_arithmetic_is_contracted_as_clang_does_unless_the_build_asked_for_none() -> None:
    module = assemble(UNFLAGGED)
    assert b"fma.rn" in _native.compile(module, "default<O3>").ptx
    assert b"fma.rn" not in _native.compile(module, "default<O3>", options=["-nvptx-fma-level=0"]).ptx
