"""The process that holds a recording's memory on one GPU and runs kernels there.

Started by a CudaRunner as `python -m r3llvm.runner.worker --fd N RECORDING --device ORDINAL`; N is a connected socket
that it inherits, over which it speaks r3llvm.runner.protocol. It ends when the other end is closed, whatever it is
doing, and after a fault that leaves the GPU's context unusable.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import os
import select
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import TypeVar

from r3llvm import _native
from r3llvm.errors import R3Error
from r3llvm.recording.manifest import Launch, Region
from r3llvm.recording.names import demangle
from r3llvm.recording.recording import Recording
from r3llvm.runner.protocol import (
    Binary,
    Comparison,
    Failure,
    Fault,
    Hello,
    Load,
    Loaded,
    Poison,
    Poisoned,
    Ran,
    Reply,
    Request,
    Run,
    Stop,
    Time,
    Timed,
    Tolerance,
)

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_NOT_FOUND = 500
_OUTPUT_BYTES = 64 << 10  # of what a kernel prints: the rest is left out
_AHEAD = 4  # chunks by thread that are read before they are needed

_T = TypeVar("_T")
_Chunk = tuple[int, int, bytes, "bytes | None"]  # region, offset, prologue, epilogue where it is another


class Output:
    """What is printed to file descriptors 1 and 2 from now on: the driver prints there what kernels print. Python's
    own sys.stderr stays where it was.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
        self._file = os.memfd_create("r3llvm-output", os.MFD_CLOEXEC)
        fcntl.fcntl(self._file, fcntl.F_SETFL, os.O_APPEND)  # so that it can be emptied
        os.dup2(self._file, 1)
        os.dup2(self._file, 2)

    def take(self) -> str:
        """What was printed since the last call, or its beginning."""
        _native.flush_output()
        size = os.fstat(self._file).st_size
        text = os.pread(self._file, _OUTPUT_BYTES, 0).decode(errors="backslashreplace")
        os.ftruncate(self._file, 0)
        return text if size <= _OUTPUT_BYTES else f"{text}\n[{size - _OUTPUT_BYTES} bytes more]\n"


class _Unfit(Exception):
    """A binary that cannot take the recorded launch's place."""


class Server:
    """Answers requests on the launches of one recording, on the device whose context is current."""

    def __init__(self, recording: Recording, output: Output) -> None:
        self._recording = recording
        self._output = output
        self._device = _native.Device()
        self._memories: dict[int, _native.DeviceReplay] = {}  # by position; the least recently used first
        self._poisoned: dict[tuple[int, int], int] = {}  # bytes, by position and region
        self._threads = len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self._threads)

    def answer(self, request: Request) -> Reply:
        """Never raises."""
        try:
            return self._answer(request)
        except _native.DriverError as error:
            return self._driver_error(error)
        except _Unfit as error:
            return Fault(_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "load", sticky=False, output=str(error))
        except R3Error as error:
            return Failure(str(error))
        except Exception as error:  # a bug: said to the runner, which has the user's terminal
            return Failure(f"the GPU's worker failed: {type(error).__name__}: {error}".replace("\n", " "))

    def _answer(self, request: Request) -> Reply:
        if isinstance(request, Load):
            return self._load(request)
        if isinstance(request, Poison):
            return self._poison(request)
        if isinstance(request, Run):
            return self._run(request)
        if isinstance(request, Time):
            return self._time(request)
        raise R3Error(f"the GPU's worker does not know the request {type(request).__name__}")

    def _driver_error(self, error: _native.DriverError) -> Reply:
        state = _native.synchronize()
        if state or error.step:
            return Fault(error.code, error.name, error.step or "run", sticky=state != 0, output=self._output.take())
        if error.code == _OUT_OF_MEMORY:
            return Failure("the GPU has not enough free memory for this launch; end what else uses it, or record less")
        return Failure(f"the CUDA driver failed: {error}")

    # Memory ----------------------------------------------------------------------------------------------------------

    def _load(self, request: Load) -> Loaded:
        start = time.monotonic()
        memory = self._memory(request.launch.position)
        return Loaded(tuple(memory.changed_bytes), time.monotonic() - start)

    def _launch(self, position: int) -> Launch:
        launches = self._recording.manifest.launches
        if not 0 <= position < len(launches):
            raise R3Error(f"the recording has no launch {position}: it holds {len(launches)}")
        return launches[position]

    def _memory(self, position: int) -> _native.DeviceReplay:
        """The launch's memory, resident."""
        launch = self._launch(position)
        if position in self._memories:
            memory = self._memories.pop(position)
        else:
            regions = [(region.base, region.size, region.kind == "variable") for region in launch.regions]
            memory = _native.DeviceReplay(self._device, regions, self._recording.manifest.chunk_bytes)
        self._memories[position] = memory
        if not memory.resident:
            self._with_room(memory, memory.begin)
            for chunk in self._chunks(launch):
                memory.put(*chunk)
            self._with_room(memory, memory.finish)
        return memory

    def _with_room(self, memory: _native.DeviceReplay, action: Callable[[], _T]) -> _T:
        """Does it; where the device has not enough memory, other launches make room, the least recently used first."""
        while True:
            try:
                return action()
            except _native.DriverError as error:
                others = [other for other in self._memories.values() if other.resident and other is not memory]
                if error.code != _OUT_OF_MEMORY or not others:
                    raise
                others[0].drop()
                self._device.keep([piece for kept in (memory, *others[1:]) for piece in kept.ranges])

    def _chunks(self, launch: Launch) -> Iterator[_Chunk]:
        """All memory of the launch, read and decompressed by the pool."""
        waiting: deque[Future[_Chunk]] = deque()
        wanted = (
            (number, index) for number, region in enumerate(launch.regions) for index in range(len(region.prologue))
        )
        try:
            while True:
                for number, index in itertools.islice(wanted, _AHEAD * self._threads - len(waiting)):
                    waiting.append(self._pool.submit(self._read, launch.regions[number], number, index))
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _read(self, region: Region, number: int, index: int) -> _Chunk:
        step = self._recording.manifest.chunk_bytes
        offset = index * step
        size = min(step, region.size - offset)
        before, after = region.prologue[index], region.epilogue[index]
        prologue = self._recording.chunk(before, size)
        return number, offset, prologue, self._recording.chunk(after, size) if after != before else None

    def _poison(self, request: Poison) -> Poisoned:
        position, region = request.launch.position, request.region
        memory = self._memory(position)
        if not 0 <= region < len(self._launch(position).regions):
            raise R3Error(f"launch {position} has no region {region}")
        n_bytes = self._with_room(memory, lambda: memory.poison(region, request.pattern, request.where))
        self._poisoned[position, region] = n_bytes
        return Poisoned(n_bytes)

    # Launches --------------------------------------------------------------------------------------------------------

    def _run(self, request: Run) -> Ran:
        position = request.launch.position
        memory = self._memory(position)
        if request.binary is None:
            return self._run_nothing(request, memory)
        launch = self._ready(position, memory, request.binary)
        self._output.take()
        seconds = self._with_room(memory, lambda: memory.run(launch))
        consistent = request.learn is None or memory.learn(request.learn)
        return self._ran(memory, launch, request.tolerances, seconds, consistent)

    def _run_nothing(self, request: Run, memory: _native.DeviceReplay) -> Ran:
        regions = self._launch(request.launch.position).regions
        for number in range(len(regions)):
            memory.bind(number, None)
        self._with_room(memory, memory.restore)
        compared = self._with_room(memory, lambda: memory.compare(_tolerances(request.tolerances)))
        comparisons = [_comparison(found) for found in compared.regions]
        for number, region in enumerate(regions):
            if region.kind == "variable":  # without a module there is none that could be compared
                differing = max(memory.changed_bytes[number], self._poisoned.get((request.launch.position, number), 0))
                comparisons[number] = Comparison(differing, first=0 if differing else -1)
        return Ran(tuple(comparisons), compared.canaries, 0.0)

    def _time(self, request: Time) -> Timed:
        position = request.launch.position
        memory = self._memory(position)
        launch = self._ready(position, memory, request.binary)
        self._output.take()
        timing = self._with_room(
            memory,
            lambda: memory.time(
                launch,
                tolerances=_tolerances(request.tolerances),
                cold=request.cache == "cold",
                warmup=request.warmup,
                least=request.least,
                most=request.most,
                precision=request.precision,
                seconds=request.seconds,
                bound=request.bound,
            ),
        )
        ran = self._ran(memory, launch, request.tolerances, timing.first)
        return Timed(tuple(timing.times), ran, timing.batch, timing.hopeless, timing.sm_clock_mhz)

    def _ready(self, position: int, memory: _native.DeviceReplay, binary: Binary) -> _native.DeviceLaunch:
        """Loads the binary, and tells the memory and the arguments where it has its variables."""
        launch = self._launch(position)
        module = self._with_room(memory, lambda: _native.DeviceModule(binary.code))
        for number, region in enumerate(launch.regions):
            if region.kind == "variable":
                memory.bind(number, _address(module, region, launch))
        arguments = bytearray.fromhex(launch.arguments)
        for relocation in launch.relocations:
            found = module.variable(relocation.variable)
            if found is None:
                raise _Unfit(
                    f"an argument of {demangle(launch.kernel)} points into the variable {relocation.variable}, "
                    "which this binary does not have"
                )
            struct.pack_into("<Q", arguments, relocation.offset, found[0] + relocation.addend)
        return _native.DeviceLaunch(
            module,
            binary.name,
            grid=binary.grid or launch.grid,
            block=binary.block or launch.block,
            dynamic_shared=launch.dynamic_shared if binary.dynamic_shared is None else binary.dynamic_shared,
            cooperative=launch.cooperative,
            shared_carveout=launch.shared_carveout,
            arguments=bytes(arguments),
            offsets=[parameter.offset for parameter in launch.parameters],
            attributes=[(attribute.id, bytes.fromhex(attribute.value)) for attribute in launch.attributes],
        )

    def _ran(
        self,
        memory: _native.DeviceReplay,
        launch: _native.DeviceLaunch,
        tolerances: tuple[Tolerance, ...],
        seconds: float,
        consistent: bool = True,
    ) -> Ran:
        compared = self._with_room(memory, lambda: memory.compare(_tolerances(tolerances)))
        return Ran(
            comparisons=tuple(_comparison(found) for found in compared.regions),
            canaries=compared.canaries,
            seconds=seconds,
            output=self._output.take(),
            consistent=consistent,
            resident_blocks=launch.resident_blocks,
            registers=launch.registers,
            local_bytes=launch.local_bytes,
        )


def _address(module: _native.DeviceModule, region: Region, launch: Launch) -> int | None:
    """Where the module has the variable; None: it has none, and nothing is lost."""
    found = module.variable(region.name)
    if found is None:
        if region.prologue == region.epilogue:
            return None
        raise _Unfit(f"{demangle(launch.kernel)} changes the variable {region.name}, which this binary does not have")
    address, size = found
    if size != region.size:
        raise _Unfit(f"the variable {region.name} has {size} bytes in this binary, but {region.size} were recorded")
    return address


def _tolerances(tolerances: tuple[Tolerance, ...]) -> list[tuple[str, int, float, float]]:
    return [(given.element, given.ulps, given.absolute, given.relative) for given in tolerances]


def _comparison(found: _native.DeviceComparison) -> Comparison:
    return Comparison(found.differing, found.first, found.max_ulps, found.max_absolute, found.max_relative)


def open_device(ordinal: int) -> Hello:
    """Makes the GPU's primary context current, for good. Raises R3Error when there is none to be had."""
    try:
        import pycuda.driver as cuda
    except ImportError as error:
        raise R3Error(
            f"PyCUDA cannot be loaded ({error}); `pip install r3llvm[cuda]` where a GPU's driver is"
        ) from error
    try:
        cuda.init()
        n_devices = cuda.Device.count()
        if not 0 <= ordinal < n_devices:
            raise R3Error(f"there is no GPU {ordinal}: the driver shows {n_devices}")
        device = cuda.Device(ordinal)
        context = device.retain_primary_context()
        context.push()
        version = cuda.get_driver_version()
        major, minor = device.compute_capability()
        return Hello(
            pid=os.getpid(),
            device=device.name(),
            capability=f"{major}.{minor}",
            driver=f"{version // 1000}.{version % 1000 // 10}",
            memory_bytes=device.total_memory(),
        )
    except cuda.Error as error:
        raise R3Error(f"GPU {ordinal} cannot be used: {error}") from error


def end_with(descriptor: int) -> None:
    """Ends the process when the other end of the socket is closed, even while a kernel runs for ever."""

    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLRDHUP)
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def serve(connection: Connection, recording: str, ordinal: int) -> None:
    """Answers until told to stop."""
    try:
        opened = Recording.open(recording)
        hello = open_device(ordinal)
        try:
            server = Server(opened, Output())
        except RuntimeError as error:  # DriverError too: the arena cannot be had
            raise R3Error(f"GPU {ordinal} cannot be used: {error}") from error
    except R3Error as error:
        connection.send(Failure(str(error)))
        return
    connection.send(hello)
    while True:
        request = connection.recv()
        if isinstance(request, Stop):
            return
        reply = server.answer(request)
        connection.send(reply)
        if isinstance(reply, Fault) and reply.sticky:
            return


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="r3llvm.runner.worker", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("recording")
    parser.add_argument("--fd", type=int, required=True, help="a connected socket")
    parser.add_argument("--device", type=int, default=0, help="the GPU's number")
    options = parser.parse_args()
    end_with(options.fd)
    with contextlib.suppress(EOFError, ConnectionError):
        serve(Connection(options.fd), options.recording, options.device)
    # Without the destructors, which would talk to a context that may be dead: the driver frees it all.
    os._exit(0)


if __name__ == "__main__":
    main()
