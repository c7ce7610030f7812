"""Recordings: made by running an application, read for replays."""

from r3llvm.recording.application import application_device, check_application
from r3llvm.recording.export import export_recording, import_recording
from r3llvm.recording.manifest import Image, Launch, Manifest, Module, Parameter, Refusal, Region
from r3llvm.recording.names import demangle, matches
from r3llvm.recording.preload import recorder_library
from r3llvm.recording.profile import KernelTime, Profile
from r3llvm.recording.recorder import Recorder, host_environment
from r3llvm.recording.recording import Recording
from r3llvm.recording.verify import problems

__all__ = [
    "Image",
    "KernelTime",
    "Launch",
    "Manifest",
    "Module",
    "Parameter",
    "Profile",
    "Recorder",
    "Recording",
    "Refusal",
    "Region",
    "application_device",
    "check_application",
    "demangle",
    "export_recording",
    "host_environment",
    "import_recording",
    "matches",
    "problems",
    "recorder_library",
]
