"""Opening recordings, and everything that can be wrong with them."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r3llvm.errors import R3Error, UsageError
from r3llvm.recording import Recording, export_recording, import_recording, problems
from r3llvm.recording.recording import chunk_name
from tests.recording.fake import CHUNK_BYTES, FakeRecording, small_recording


def edit(recording: Path, **changes: object) -> None:
    path = recording / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_reads_what_was_written(recording: Path) -> None:
    opened = Recording.open(recording)
    assert opened.kernels == ["_Z5scalePfi", "_Z5countPi"]
    assert [launch.index for launch in opened.launches("scale")] == [0, 7]
    assert [launch.kernel for launch in opened.launches(r"count\(int\*\)")] == ["_Z5countPi"]
    array, counter = opened.launches()[1].regions
    before, after = opened.read_region(array, "prologue"), opened.read_region(array, "epilogue")
    assert before == bytes(range(256)) * 1200
    assert after == b"\xff" + before[1:]
    assert opened.read_region(counter, "epilogue") == b"\1\0\0\0"
    assert opened.module(opened.launches()[0].module) == b"BC module"
    assert list(problems(opened)) == []


def test_a_filter_that_matches_nothing_names_the_kernels(recording: Path) -> None:
    with pytest.raises(UsageError, match=r"no kernel matches 'sum'.*scale\(float\*, int\), count\(int\*\)"):
        Recording.open(recording).launches("sum")


@given(data=st.binary(min_size=1, max_size=600), repeat=st.integers(1, 1500))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_regions_of_any_size_come_back(tmp_path: Path, data: bytes, repeat: int) -> None:
    memory = data * repeat
    fake = FakeRecording(tmp_path / "fake")
    region = fake.region(memory, memory[::-1])
    fake.launch("k", fake.module(), [region])
    fake.finish()
    opened = Recording.open(fake.folder)
    assert opened.read_region(opened.launches()[0].regions[0], "prologue") == memory
    assert opened.read_region(opened.launches()[0].regions[0], "epilogue") == memory[::-1]


@pytest.mark.parametrize("path", ["missing", "empty", "file", "text.tar"])
def test_what_is_no_recording_is_refused_in_one_line(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("hello")
    (tmp_path / "text.tar").write_bytes(b"\0" * 100)
    with pytest.raises(R3Error, match=r"no such recording|not a recording") as error:
        Recording.open(tmp_path / path)
    assert "\n" not in str(error.value)


def test_a_newer_schema_says_to_upgrade(recording: Path) -> None:
    edit(recording, schema_version=2, launches="something else entirely")
    with pytest.raises(R3Error, match=r"newer r3llvm .*upgrade"):
        Recording.open(recording)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": "1"}, "no schema version"),
        ({"launches": [{}]}, "breaks the schema at launches.0"),
        ({"modules": []}, "is not listed"),
        ({"chunk_bytes": 4096}, "needs 75 chunks"),
        ({"chunk_bytes": 0}, "breaks the schema at chunk_bytes"),
        ({"surprise": 1}, "breaks the schema at surprise"),
    ],
)
def test_a_manifest_that_breaks_the_schema_says_where(
    recording: Path, changes: dict[str, object], message: str
) -> None:
    edit(recording, **changes)
    with pytest.raises(R3Error, match=message) as error:
        Recording.open(recording)
    assert "\n" not in str(error.value)


def test_a_manifest_that_is_cut_off(recording: Path) -> None:
    manifest = recording / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    with pytest.raises(R3Error, match=r"no JSON"):
        Recording.open(recording)


@given(st.binary(max_size=200) | st.integers(900, 2000).map(lambda depth: b"[" * 100 * depth))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_manifest_or_refused(recording: Path, data: bytes) -> None:
    (recording / "manifest.json").write_bytes(data)
    with pytest.raises(R3Error) as error:
        Recording.open(recording)
    assert "\n" not in str(error.value)


@given(st.lists(st.tuples(st.integers(0, 5000), st.sampled_from(b'0123456789abcdef"{}[]:,-x')), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_manifest_with_wrong_characters_is_refused_or_checked(recording: Path, edits: list[tuple[int, int]]) -> None:
    path = recording / "manifest.json"
    good = path.read_bytes()
    wrong = bytearray(good)
    for position, character in edits:
        wrong[position % len(wrong)] = character
    path.write_bytes(wrong)
    try:
        for problem in problems(Recording.open(recording)):
            assert "\n" not in problem
    except R3Error as error:
        assert "\n" not in str(error)
    finally:
        path.write_bytes(good)


def test_a_hash_cannot_point_out_of_the_recording(recording: Path) -> None:
    manifest = json.loads((recording / "manifest.json").read_text())
    manifest["modules"][0]["hash"] = "../../../../etc/passwd"
    edit(recording, modules=manifest["modules"])
    with pytest.raises(R3Error, match=r"breaks the schema at modules\.0\.hash"):
        Recording.open(recording)


@given(cut=st.integers(0, 200), flip=st.integers(0, 200))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_chunk_is_never_taken_for_good(recording: Path, cut: int, flip: int) -> None:
    opened = Recording.open(recording)
    counter = opened.launches()[2].regions[0]
    path = recording / chunk_name(counter.epilogue[0])
    good = path.read_bytes()
    broken = bytearray(good[: max(len(good) - cut, 0)])
    if broken and flip < 8 * len(broken):
        broken[flip // 8] ^= 1 << flip % 8
    path.write_bytes(broken)
    try:
        assert opened.read_region(counter, "epilogue") == b"\1\0\0\0"
        assert list(problems(opened)) == []
    except R3Error as error:
        assert counter.epilogue[0] in str(error)
        assert "\n" not in str(error)
        assert len(list(problems(opened))) == 1
    finally:
        path.write_bytes(good)


def test_a_frame_that_claims_to_be_huge_is_not_unpacked(recording: Path) -> None:
    opened = Recording.open(recording)
    counter = opened.launches()[2].regions[0]
    (recording / chunk_name(counter.epilogue[0])).write_bytes(zstandard.compress(bytes(1 << 26)))
    with pytest.raises(R3Error, match="does not hold 4 bytes"):
        opened.read_region(counter, "epilogue")


def test_verify_names_everything_that_is_bad(recording: Path) -> None:
    opened = Recording.open(recording)
    array, counter = opened.launches()[1].regions
    (recording / chunk_name(counter.prologue[0])).unlink()
    (recording / chunk_name(array.prologue[1])).write_bytes(b"")
    (recording / f"modules/{opened.manifest.modules[0].hash}.bc").write_bytes(b"other")
    found = "\n".join(problems(opened))
    assert found.count("\n") == 2
    assert f"chunk {counter.prologue[0]}" in found
    assert "it is missing" in found
    assert f"chunk {array.prologue[1]}" in found
    assert f"module {opened.manifest.modules[0].hash}" in found


def test_an_export_reads_like_the_folder_and_comes_back(recording: Path, tmp_path: Path) -> None:
    exported = tmp_path / "sent" / "small.tar"
    export_recording(Recording.open(recording), exported)
    first = exported.read_bytes()
    opened = Recording.open(exported)
    assert opened.manifest == Recording.open(recording).manifest
    assert list(problems(opened)) == []
    import_recording(opened, tmp_path / "back")
    shutil.rmtree(recording)
    again = Recording.open(tmp_path / "back")
    assert list(problems(again)) == []
    export_recording(again, tmp_path / "again" / "small.tar")
    assert len(first) == (tmp_path / "again" / "small.tar").stat().st_size
    with tarfile.open(exported) as tar:
        assert {name.split("/")[0] for name in tar.getnames()} == {"small"}


def test_an_export_that_is_cut_off_is_refused(recording: Path, tmp_path: Path) -> None:
    exported = tmp_path / "small.tar"
    export_recording(Recording.open(recording), exported)
    whole = exported.read_bytes()
    with tarfile.open(exported) as tar:
        ends = [member.offset_data + member.size for member in tar]
    for length in (0, 100, *(end - 1 for end in ends), *(end - 600 for end in ends[1:])):
        exported.write_bytes(whole[:length])
        with pytest.raises(R3Error):
            import_recording(Recording.open(exported), tmp_path / "back")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["small", "small.tar"]


def test_an_export_of_a_damaged_recording_leaves_no_file(recording: Path, tmp_path: Path) -> None:
    opened = Recording.open(recording)
    (recording / chunk_name(opened.launches()[0].regions[0].prologue[0])).unlink()
    with pytest.raises(R3Error, match="cannot export"):
        export_recording(opened, tmp_path / "small.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_an_export_is_checked_first(recording: Path, tmp_path: Path) -> None:
    opened = Recording.open(recording)
    (recording / chunk_name(opened.launches()[0].regions[0].prologue[0])).write_bytes(b"cut")
    with pytest.raises(R3Error, match=r"cannot export .*truncated"):
        export_recording(opened, tmp_path / "small.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("index", 1 << 70), ("grid", (1 << 32, 1, 1)), ("block", (1, 1, 1 << 70)), ("dynamic_shared", 1 << 32)],
)
def test_a_manifest_with_a_figure_out_of_range_is_refused(recording: Path, field: str, value: object) -> None:
    manifest = json.loads((recording / "manifest.json").read_text())
    manifest["launches"][0][field] = value
    (recording / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(R3Error, match=rf"breaks the schema at launches\.0\.{field}"):
        Recording.open(recording)


def test_a_manifest_with_an_address_out_of_range_is_refused(recording: Path) -> None:
    manifest = json.loads((recording / "manifest.json").read_text())
    manifest["launches"][0]["regions"][0]["base"] = 1 << 70
    (recording / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(R3Error, match=r"breaks the schema at launches\.0\.regions\.0\.base"):
        Recording.open(recording)


def test_links_and_paths_in_a_foreign_tar_are_not_followed(recording: Path, tmp_path: Path) -> None:
    opened = Recording.open(recording)
    bad = chunk_name(opened.launches()[0].regions[0].prologue[0])
    exported = tmp_path / "evil.tar"
    with tarfile.open(exported, "w") as tar:
        for name in opened.files():
            if name == bad:
                link = tarfile.TarInfo(f"small/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(link)
            else:
                tar.add(recording / name, f"small/{name}")
        tar.add(recording / "manifest.json", "small/../../escaped")
    evil = Recording.open(exported)
    assert len(list(problems(evil))) == 1
    with pytest.raises(R3Error, match="is missing"):
        import_recording(evil, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_chunks_are_shared(tmp_path: Path) -> None:
    small_recording(tmp_path / "small")
    n_chunks = len(list((tmp_path / "small" / "chunks").rglob("*.zst")))
    assert n_chunks == 5  # of the array: two before, one changed; of the counter: two
    assert CHUNK_BYTES < len(bytes(range(256)) * 1200) < 2 * CHUNK_BYTES


def test_images_are_checked_listed_and_sent(tmp_path: Path) -> None:
    fake = FakeRecording(tmp_path / "fake")
    image = fake.image()
    fake.launch("k", None, [fake.region(b"a", b"b")], image=image)
    fake.finish()
    opened = Recording.open(fake.folder)
    assert opened.image(image) == b"\x7fELF image"
    assert opened.describe_image(image).kind == "cubin"
    assert f"images/{image}" in list(opened.files())
    assert opened.stored_bytes() == sum(path.stat().st_size for path in fake.folder.rglob("*") if path.is_file())
    with pytest.raises(R3Error, match=r"k was recorded without its module"):
        opened.module_of(opened.launches()[0])
    export_recording(opened, tmp_path / "sent.tar")
    import_recording(Recording.open(tmp_path / "sent.tar"), tmp_path / "back")
    assert Recording.open(tmp_path / "back").image(image) == b"\x7fELF image"
    (fake.folder / f"images/{image}").write_bytes(b"other")
    [problem] = problems(opened)
    assert f"image {image} of" in problem and "its bytes have another hash" in problem
    (fake.folder / f"images/{image}").unlink()
    [problem] = problems(opened)
    assert f"image {image} of" in problem and "it is missing" in problem
    with pytest.raises(R3Error, match="cannot export"):
        export_recording(opened, tmp_path / "again.tar")
    with pytest.raises(R3Error, match="is incomplete"):
        opened.stored_bytes()


def test_a_launch_needs_a_module_or_an_image(tmp_path: Path) -> None:
    fake = FakeRecording(tmp_path / "fake")
    fake.launch("k", None, [fake.region(b"a", b"b")])
    with pytest.raises(ValueError, match="neither a module nor an image"):
        fake.finish()
