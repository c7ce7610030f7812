"""What a GPU's recording library leaves behind becomes a recording; a shell script stands in for both."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r3llvm.errors import R3Error, UsageError
from r3llvm.recording import Parameter, Profile, Recorder, preload, problems
from r3llvm.recording.application import application_device, check_preloadable
from r3llvm.recording.journal import Journal
from r3llvm.recording.profile import pattern_of
from tests.modules import assemble
from tests.recording.application import Application, launch_line

TEXT = b"""target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
%pair = type { float, float }
@_ZL5total = addrspace(1) externally_initialized global i32 0, align 4
declare ptr @malloc(i64)
define ptx_kernel void @_Z5scalePfi(ptr %p, i32 %n) {
  ret void
}
define ptx_kernel void @_Z5countPi(ptr byval(%pair) align 4 %p) {
  store i32 1, ptr addrspace(1) @_ZL5total
  ret void
}
define ptx_kernel void @_ZN12_GLOBAL__N_14tinyEPi(ptr %p) {
  %f = load ptr, ptr %p
  call void %f()
  ret void
}
define ptx_kernel void @allocates(ptr %p) {
  %q = call ptr @malloc(i64 4)
  ret void
}
"""
WORDS = [{"offset": 0, "size": 8, "alignment": 8, "kind": "scalar"}]
DEVICE = {"type": "device", "name": "Fake GPU", "capability": "9.0"}


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    library = tmp_path / "libr3recorder.so"
    library.symlink_to(some_library())
    monkeypatch.setenv("R3LLVM_RECORDER", str(library))
    monkeypatch.setattr(preload, "has_gpu", lambda: True)
    return Application(tmp_path, assemble(TEXT))


def some_library() -> Path:
    """One that every process has loaded: preloading it does nothing."""
    [path] = set(re.findall(r"/\S*/libc\.so\.6$", Path("/proc/self/maps").read_text(), re.MULTILINE))
    return Path(path)


def _with_image(application: Application) -> tuple[dict[str, object], str]:
    """The image's line, and its hash."""
    image = application.fake.image()
    return {"type": "image", "hash": image, "kind": "cubin", "bytes": 10}, image


def test_a_run_becomes_a_recording(application: Application) -> None:
    line, image = _with_image(application)
    unused = {"type": "image", "hash": application.fake.image(b"other"), "kind": "ptx", "bytes": 5}
    scale, count = application.fake.launches
    parameters = [*WORDS, {"offset": 8, "size": 4, "alignment": 4, "kind": "scalar"}]
    application.writes(
        DEVICE,
        line,
        unused,
        launch_line(
            scale,
            image=image,
            parameters=parameters,
            attributes=[{"id": 4, "value": "02" + "00" * 63}],
            shared_carveout=50,
            relocations=[{"offset": 0, "variable": "total", "addend": 0}],
            warnings=["a word is odd"],
        ),
        launch_line(count, image=image, module="", parameters=WORDS),
        {
            "type": "count",
            "graph_launches": 3,
            "captured_launches": 2,
            "foreign": [{"kind": "managed memory", "bytes": 64}],
        },
        {**_COUNT, "graph_launches": 0, "captured_launches": 0, "foreign": [{"kind": "managed memory", "bytes": 6}]},
        {"type": "other_process", "pid": 7, "launches": 30},
        {"type": "other_process", "pid": 8, "launches": 12},
        {"type": "end", "launches_seen": 9},
        then='touch "$R3LLVM_RECORD/owner"',
    )
    recording = application.record(device="cuda")
    manifest = recording.manifest
    assert (manifest.device, manifest.capability, manifest.launches_seen) == ("Fake GPU", "9.0", 9)
    assert (manifest.graph_launches, manifest.captured_launches) == (3, 2)
    assert (manifest.other_processes, manifest.other_launches) == (2, 42)
    assert [(foreign.kind, foreign.bytes) for foreign in manifest.foreign] == [("managed memory", 70)]
    first, second = manifest.launches
    assert (first.module, first.image, first.shared_carveout) == (application.module, image, 50)
    assert first.parameters == (
        Parameter(offset=0, size=8, alignment=8, kind="pointer"),
        Parameter(offset=8, size=4, alignment=4, kind="scalar"),
    )
    assert (first.attributes[0].id, first.relocations[0].variable) == (4, "total")
    assert first.warnings == ("a word is odd",)
    assert (second.module, second.image, second.parameters[0].kind) == (None, image, "scalar")
    assert [(image.hash, image.kind, image.size) for image in manifest.images] == [(image, "cubin", 10)]
    assert recording.image(image) == b"\x7fELF image"
    assert list(problems(recording)) == []
    assert sorted(path.name for path in application.output.iterdir()) == [
        "chunks",
        "images",
        "manifest.json",
        "modules",
    ]
    assert [path.name for path in (application.output / "images").iterdir()] == [image]


def test_the_environment_is_the_recorders(
    application: Application, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(some_library()))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/already/there")
    monkeypatch.setenv("R3LLVM_RECORD_EVERY", "77")
    line, image = _with_image(application)
    application.writes(
        line,
        launch_line(application.fake.launches[0], image=image, module=""),
        then='env | grep -E "^(R3LLVM_RECORD|R3LLVM_STORE|LD_)"; echo complaint >&2',
    )
    application.record(
        device="cuda", kernels="a|c", launches=(0, 5, 9), scope="all", max_bytes=1 << 30, ranks="0,2", force=False
    )
    out, err = capfd.readouterr()
    seen = dict(line.split("=", 1) for line in out.splitlines())
    assert err == "complaint\n"
    library = f"{application.folder}/libr3recorder.so"
    assert seen.pop("R3LLVM_RECORD").startswith(str(application.output))
    assert seen == {
        "LD_PRELOAD": f"{library}:{some_library()}",
        "LD_LIBRARY_PATH": "/already/there",
        "R3LLVM_RECORDER": library,
        "R3LLVM_STORE": str(application.store.root),
        "R3LLVM_RECORD_KERNELS": "a|c",
        "R3LLVM_RECORD_MAX": "3",
        "R3LLVM_RECORD_LAUNCHES": "0,5,9",
        "R3LLVM_RECORD_SCOPE": "all",
        "R3LLVM_RECORD_BYTES": str(1 << 30),
        "R3LLVM_RECORD_RANKS": "0,2",
    }


def test_a_layout_that_is_not_the_modules_is_refused(application: Application) -> None:
    line, image = _with_image(application)
    scale, count = application.fake.launches
    application.writes(
        DEVICE,
        line,
        launch_line(scale, image=image, parameters=WORDS),
        launch_line(scale, image=image, parameters=WORDS, index=1),
        launch_line(count, image=image, parameters=WORDS),
    )
    manifest = application.record(device="cuda").manifest
    assert [launch.kernel for launch in manifest.launches] == ["_Z5countPi"]
    assert manifest.launches[0].parameters == (Parameter(offset=0, size=8, alignment=4, kind="aggregate"),)
    assert manifest.launches[0].warnings == (
        "its variable _ZL5total was not found in the program, so its value is not recorded",
    )
    [refusal] = manifest.refusals
    assert (refusal.kernel, refusal.launches) == ("_Z5scalePfi", 2)
    assert "as 0:8 (offset:size), its module as 0:8 8:4" in refusal.reason


def test_a_kernel_keeps_the_name_that_nvcc_gave_it_in_the_image(application: Application) -> None:
    line, image = _with_image(application)
    name = "_ZN32_GLOBAL__N__5128453b_4_n_cu_main4tinyEPi"
    application.writes(
        DEVICE,
        line,
        launch_line(application.fake.launches[0], kernel=name, image=image, parameters=WORDS),
        launch_line(application.fake.launches[1], image=image, parameters=WORDS),
    )
    recording = application.record(device="cuda")
    tiny, count = recording.manifest.launches
    assert (tiny.kernel, tiny.name_in_image, tiny.module) == ("_ZN12_GLOBAL__N_14tinyEPi", name, application.module)
    assert tiny.warnings == ("it calls functions through pointers; one that memory holds means nothing in a replay",)
    assert (count.kernel, count.name_in_image, count.image_kernel) == ("_Z5countPi", "_Z5countPi", "")


def test_what_cannot_be_replayed_is_refused_by_name(application: Application) -> None:
    line, image = _with_image(application)
    application.writes(
        DEVICE, line, launch_line(application.fake.launches[0], kernel="allocates", image=image, parameters=WORDS)
    )
    with pytest.raises(R3Error, match=r"nothing was recorded: allocates: it allocates on the device"):
        application.record(device="cuda")
    assert application.left() == []


@pytest.mark.parametrize("lost", ["module", "kernel"])
def test_a_module_that_does_not_fit_leaves_the_image(application: Application, lost: str) -> None:
    line, image = _with_image(application)
    changes = {"kernel": "unknown"} if lost == "kernel" else {}
    if lost == "module":
        next(application.store.root.glob("modules/*.bc")).unlink()
    application.writes(DEVICE, line, launch_line(application.fake.launches[0], image=image, **changes))
    [launch] = application.record(device="cuda").manifest.launches
    assert (launch.module, launch.image) == (None, image)
    assert len(launch.warnings) == 1
    application.writes(DEVICE, launch_line(application.fake.launches[0], **changes))
    with pytest.raises(R3Error, match=r"defines no kernel of this name|has no modules/"):
        application.record(device="cuda", force=True)


@pytest.mark.parametrize(
    ("then", "message"),
    [
        ('rm "$R3LLVM_RECORD"/images/*', "the recorder lost image"),
        ('for i in "$R3LLVM_RECORD"/images/*; do echo more >> $i; done', "was not written whole"),
        ('echo "{}" >> "$R3LLVM_RECORD/journal.jsonl"', "journal is damaged"),
    ],
)
def test_a_damaged_run_leaves_nothing(application: Application, then: str, message: str) -> None:
    line, image = _with_image(application)
    application.writes(line, launch_line(application.fake.launches[0], image=image, module=""), then=then)
    with pytest.raises(R3Error, match=message) as error:
        application.record(device="cuda")
    assert "\n" not in str(error.value)
    assert application.left() == []


def test_an_image_that_no_line_describes(application: Application) -> None:
    image = application.fake.image()
    application.writes(launch_line(application.fake.launches[0], image=image, module=""))
    with pytest.raises(R3Error, match=r"names image .* which is not listed"):
        application.record(device="cuda")


_COUNT = {"type": "count", "graph_launches": 4, "captured_launches": 1, "foreign": []}


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ([], {}, "the recorder saw no launch: .*LD_PRELOAD"),
        ([{"type": "end", "launches_seen": 0}], {}, "launched no kernel$"),
        ([{"type": "end", "launches_seen": 7}], {"every": 9}, "launched 7 kernels, none of which --launches"),
        ([{"type": "end", "launches_seen": 7}], {}, "launched 7 kernels, none of which came to its end"),
        ([DEVICE], {}, "ended before the memory of a launch was written"),
        ([], {"ranks": "3"}, "or has no MPI rank of 3, or"),
        ([_COUNT, {"type": "end", "launches_seen": 1}], {}, "CUDA graphs, which are not recorded"),
        ([_COUNT, {"type": "end", "launches_seen": 9}], {"launches": (7,)}, "launched 9 kernels, none of which --lau"),
    ],
)
def test_why_nothing_was_recorded(
    application: Application, lines: list[object], options: dict[str, object], message: str
) -> None:
    application.writes(*lines)
    with pytest.raises(R3Error, match=message):
        application.record(device="cuda", **options)
    assert application.left() == []


def test_what_is_missing_is_told_before_anything_runs(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R3LLVM_RECORDER", str(application.folder / "nowhere"))
    with pytest.raises(R3Error, match=r"the recording library .* is not in .*R3LLVM_RECORDER"):
        application.record(device="cuda")
    spaced = application.folder / "a b"
    spaced.mkdir()
    (spaced / "libr3recorder.so").touch()
    monkeypatch.setenv("R3LLVM_RECORDER", str(spaced))
    with pytest.raises(R3Error, match="holds a space"):
        application.record(device="cuda")
    monkeypatch.setattr(preload, "has_gpu", lambda: False)
    monkeypatch.setattr(preload.toolchain, "gpus", list)
    with pytest.raises(R3Error, match="no NVIDIA GPU here"):
        application.record(device="cuda")


def test_programs_that_nothing_is_preloaded_into_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "static"
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    )
    program.write_bytes(header + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 120, 120, 4096))
    program.chmod(0o755)
    with pytest.raises(UsageError, match="statically linked"):
        check_preloadable([str(program)])
    program.write_bytes(header[:40])  # not our business: the system says what is wrong with it
    check_preloadable([str(program)])
    program.write_text("#!/bin/sh\n")
    check_preloadable([str(program)])
    check_preloadable(["sh"])
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    program.chmod(0o4755)
    with pytest.raises(UsageError, match="setuid"):
        check_preloadable([str(program)])


def test_a_program_of_the_host_device_is_not_taken_for_the_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "libcudart.so.13").touch()
    monkeypatch.setenv("R3LLVM_HOSTCUDA", str(runtime))
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    for name, option in (("host", f"-Wl,-rpath,/elsewhere:{tmp_path}/./runtime"), ("plain", "-Wl,-rpath,/elsewhere")):
        subprocess.run(["cc", option, "main.c", "-o", name], cwd=tmp_path, check=True)
    host, plain = [str(tmp_path / "host")], [str(tmp_path / "plain")]
    monkeypatch.setattr("r3llvm.capture.toolkit.has_gpu", lambda: True)
    assert [application_device(program, "auto") for program in (host, plain, ["sh"])] == ["host", "cuda", "cuda"]
    assert [application_device(host, device) for device in ("host", "cuda")] == ["host", "cuda"]
    monkeypatch.setattr("r3llvm.capture.toolkit.has_gpu", lambda: False)
    assert application_device(plain, "auto") == "host"
    check_preloadable(host)


def _profile_line(kernels: dict[str, float], launches: int = 10, **changes: object) -> str:
    times = [
        {"kernel": name, "launches": launches, "seconds": seconds, "median_seconds": seconds / launches, "times": []}
        for name, seconds in kernels.items()
    ]
    return json.dumps({"type": "profile", "kernels": times, "graph_launches": 1, "captured_launches": 2} | changes)


def test_profiles_of_several_processes_add_up(application: Application) -> None:
    first, second = _profile_line({"_Z5scalePfi": 1.0, "b$": 3.0}), _profile_line({"_Z5scalePfi": 4.0}, 30)
    application.writes(then=f"echo '{first}' >> $R3LLVM_RECORD_PROFILE; echo '{second}' >> $R3LLVM_RECORD_PROFILE")
    profile = Recorder(application.store, device="cuda", kernels="x").profile([str(application.path)])
    assert [(kernel.kernel, kernel.launches, kernel.seconds) for kernel in profile.kernels] == [
        ("_Z5scalePfi", 40, 5.0),
        ("b$", 10, 3.0),
    ]
    assert profile.kernels[0].median_seconds == 4.0 / 30
    assert (profile.seconds, profile.graph_launches, profile.captured_launches) == (8.0, 2, 4)
    assert [kernel.kernel for kernel in profile.matching(r"scale\(float").kernels] == ["_Z5scalePfi"]
    assert application.left() == []


@pytest.mark.parametrize(
    ("then", "message"),
    [
        ("", "nothing was measured: the recorder saw no launch"),
        (f"echo '{_profile_line({})}' > $R3LLVM_RECORD_PROFILE", "nothing was measured: .*CUDA graphs"),
        ("echo x > $R3LLVM_RECORD_PROFILE", "line 1 of the recorder's profile is damaged"),
        (f"echo '{_profile_line({'k': -1.0})}' > $R3LLVM_RECORD_PROFILE", "damaged .*is no time"),
        ('echo \'{"type": "end"}\' > $R3LLVM_RECORD_PROFILE', "damaged .*unknown"),
        ("exit 3", "exited with status 3"),
        (
            "echo R3LLVM_RECORD_PROFILE cannot be written > $R3LLVM_RECORD/failed",
            "recording failed: R3LLVM_RECORD_PROF",
        ),
    ],
)
def test_why_nothing_was_measured(application: Application, then: str, message: str) -> None:
    application.writes(then=then)
    with pytest.raises(R3Error, match=message):
        Recorder(application.store, device="cuda").profile([str(application.path)])


@given(st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), min_size=1), st.text())
def test_a_pattern_of_names_finds_these_and_no_others(names: list[str], other: str) -> None:
    pattern = re.compile(pattern_of(names))
    assert all(pattern.search(name) for name in names)
    assert bool(pattern.search(other)) == (other.removesuffix("\n") in names)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = [
    "type",
    "kernel",
    "reason",
    "module",
    "image",
    "launches",
    "hash",
    "kind",
    "bytes",
    "foreign",
    "launches_seen",
]
_TYPES = ["launch", "image", "refusal", "skipped", "device", "count", "other_process", "end", "profile"]


@given(
    st.lists(
        st.binary(max_size=20)
        | st.tuples(
            st.sampled_from(_TYPES), st.dictionaries(st.sampled_from(_FIELDS) | st.text(max_size=4), _JSON)
        ).map(lambda line: json.dumps({**line[1], "type": line[0]}).encode()),
        max_size=4,
    )
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_journal_is_read_or_refused_in_one_line(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    for read in (Journal.read, Profile.read):
        try:
            read(path)
        except R3Error as error:
            assert "\n" not in str(error)
