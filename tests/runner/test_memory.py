"""Recorded memory as files to map."""

import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3llvm.errors import R3Error
from r3llvm.recording import Recording
from r3llvm.recording.recording import chunk_name
from r3llvm.runner.memory import PAGE, MemoryImage, MemoryImages, Span, spans_of
from tests.recording.fake import BASE, FakeRecording, small_recording

ranges = st.lists(st.tuples(st.integers(0, 40 * PAGE), st.integers(1, 5 * PAGE)), min_size=1, max_size=8)


@given(ranges)
def test_spans_are_the_touched_pages_once_and_in_order(regions: list[tuple[int, int]]) -> None:
    spans = spans_of(regions)
    pages = {page for base, size in regions for page in range(base // PAGE, (base + size - 1) // PAGE + 1)}
    covered = [page for span in spans for page in range(span.address // PAGE, (span.address + span.length) // PAGE)]
    assert covered == sorted(pages)
    offset = 0
    for span in spans:
        assert span.offset == offset
        assert span.length % PAGE == span.address % PAGE == 0
        offset += span.length
    assert all(second.address > first.address + first.length for first, second in pairwise(spans))


def test_regions_that_share_or_touch_pages_are_one_span() -> None:
    assert spans_of([(BASE + 100, 50), (BASE, 4), (BASE + PAGE, 1), (BASE + 10 * PAGE, 1)]) == [
        Span(BASE, 2 * PAGE, 0),
        Span(BASE + 10 * PAGE, PAGE, 2 * PAGE),
    ]


def test_the_files_hold_the_memory_before_and_after(tmp_path: Path) -> None:
    recording = Recording.open(small_recording(tmp_path / "small"))
    array, counter = recording.launches()[1].regions
    with MemoryImage(recording, [array, counter]) as image:
        assert image.spans == [Span(array.base, 75 * PAGE, 0), Span(counter.base, PAGE, 75 * PAGE)]
        before = os.pread(image.prologue_fd, image.size, 0)
        after = os.pread(image.epilogue_fd, image.size, 0)
        assert len(before) == len(after) == 76 * PAGE
        assert before[: array.size] == recording.read_region(array, "prologue")
        assert after[: array.size] == recording.read_region(array, "epilogue")
        assert before[75 * PAGE :] == bytes(PAGE)
        assert after[75 * PAGE :] == b"\1" + bytes(PAGE - 1)
        descriptors = (image.prologue_fd, image.epilogue_fd)
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_unaligned_regions_of_one_page_keep_their_places(tmp_path: Path) -> None:
    fake = FakeRecording(tmp_path / "fake")
    first = fake.region(b"abc", b"ABC", BASE + 5, "first")
    second = fake.region(b"xy", b"XY", BASE + 20, "second")
    fake.launch("k", fake.module(), [first, second])
    fake.finish()
    with MemoryImage(Recording.open(fake.folder), [second, first]) as image:
        assert os.pread(image.prologue_fd, 24, 0) == bytes(5) + b"abc" + bytes(12) + b"xy" + bytes(2)
        assert os.pread(image.epilogue_fd, 24, 0) == bytes(5) + b"ABC" + bytes(12) + b"XY" + bytes(2)


def test_a_damaged_chunk_leaves_no_file_open(tmp_path: Path) -> None:
    recording = Recording.open(small_recording(tmp_path / "small"))
    launch = recording.launches()[0]
    (tmp_path / "small" / chunk_name(launch.regions[0].epilogue[0])).write_bytes(b"")
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(R3Error, match="damaged"):
        MemoryImage(recording, launch.regions)
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


def test_images_are_kept_while_they_fit_and_while_they_are_used(tmp_path: Path) -> None:
    recording = Recording.open(small_recording(tmp_path / "small"))
    large, both, small = recording.launches()
    images = MemoryImages(recording, keep_bytes=75 * PAGE)
    with images.borrow(large) as first:
        pass
    with images.borrow(large) as again, images.borrow(both) as other:
        assert again is first
        with images.borrow(small):
            pass
        os.fstat(again.prologue_fd)  # over the limit, but in use
        os.fstat(other.prologue_fd)
    with images.borrow(large) as after:
        assert after is first  # the one that fits
    with images.borrow(both) as after:
        assert after is not other
    images.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(after.prologue_fd)


def test_threads_that_ask_for_one_launch_share_its_image(tmp_path: Path) -> None:
    recording = Recording.open(small_recording(tmp_path / "small"))
    images = MemoryImages(recording, keep_bytes=1 << 30)
    seen: list[MemoryImage] = []

    def work() -> None:
        for launch in recording.launches() * 5:
            with images.borrow(launch) as image:
                assert os.fstat(image.epilogue_fd).st_size == image.size
                seen.append(image)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 60
    assert len({id(image) for image in seen}) == 3
    images.close()
