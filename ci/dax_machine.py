# SPDX-License-Identifier: Apache-2.0
"""The machine of `make dax`: QEMU with a kernel of Debian's, and NVDIMMs that are files of ours. It ends by SIGKILL. Then its files
hold what it had stored, as the emulated medium takes each store at once, and not what its file systems had still to write."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile

from faultline.base.errors import InfrastructureError

HERE = Path(__file__).resolve().parent / "dax"
QEMU = "qemu-system-x86_64"
KERNEL_PACKAGE = "linux-image-cloud-amd64"
MODULES = ("nfit", "nd_pmem", "xfs", "ext4", "crc32c_intel", "crc32c_generic")
"""With what they need; those that the kernel has built in are no files."""
APPLETS = (
    "sh",
    "mount",
    "umount",
    "mkdir",
    "insmod",
    "stty",
    "grep",
    "dmesg",
    "tail",
    "cut",
    "tr",
    "sleep",
    "poweroff",
    "tar",
    "gzip",
    "sync",
    "head",
    "env",
    "cat",
    "sort",
    "rm",
    "touch",
)
GUEST_MIB = 512
DISK_BYTES = 400 << 20
"""xfs makes none that is smaller than 300 MiB. The file is sparse."""
DATA_OFFSET = 2 << 20
"""Where the file system begins, behind the info block of the namespace."""
ALIGNMENT = 2 << 20
PAGE_BYTES = 4096
STRUCT_PAGE_BYTES = 64
BOOT_S = 120.0
"""A guest that has not said what is awaited by then is given up."""
KVM_S = 10.0
"""A host whose KVM does not boot the guest in that time has none that is of use."""
POLL_S = 0.001
LAST_LINES = 3
FILE_SYSTEMS: Mapping[str, Sequence[str]] = {
    "ext4": ("mkfs.ext4", "-q", "-b", str(PAGE_BYTES)),
    "xfs": ("mkfs.xfs", "-q", "-f", "-m", "reflink=0"),
}
"""Those that have DAX, and how they are made. Files of xfs that share blocks are of no use here."""
MOUNT_OPTIONS = {"ext4": ",commit=1", "xfs": ""}
"""ext4 writes its journal each second, and not each fifth: more of it is seen."""


def fletcher64(block: bytes) -> int:
    """The kernel's nd_fletcher64 (drivers/nvdimm/core.c), over little-endian words of 4 bytes."""
    low = high = 0
    for (word,) in struct.iter_unpack("<I", block):
        low = (low + word) & 0xFFFFFFFF
        high = (high + low) & 0xFFFFFFFF
    return high << 32 | low


def info_block(disk_bytes: int) -> bytes:
    """The info block of an fsdax namespace without labels (struct nd_pfn_sb, drivers/nvdimm/pfn.h, version 1.4): its `struct page`s
    are in RAM, its data begin at DATA_OFFSET. Without it the kernel says that the device has no DAX."""
    block = bytearray(PAGE_BYTES)
    block[0:16] = b"NVDIMM_PFN_INFO\0"
    block[16:32] = b"faultline make-d"  # its UUID; that of the namespace it lies in is zeros, as there are no labels
    pages = (disk_bytes - DATA_OFFSET) // PAGE_BYTES
    flags, major, minor, in_ram, start_pad, end_trunc = 0, 1, 4, 1, 0, 0
    numbers = (
        flags,
        major,
        minor,
        DATA_OFFSET,
        pages,
        in_ram,
        start_pad,
        end_trunc,
        ALIGNMENT,
        PAGE_BYTES,
        STRUCT_PAGE_BYTES,
    )
    struct.pack_into("<IHHQQIIIIIH", block, 48, *numbers)
    struct.pack_into("<Q", block, PAGE_BYTES - 8, fletcher64(bytes(block)))
    return bytes(block)


def run(*command: str | Path, what: str, hint: str | None = None, cwd: Path | None = None) -> str:
    """Its standard output; what: it is done for."""
    words = [str(word) for word in command]
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", env=environment, cwd=cwd, check=False
        )
    except FileNotFoundError as error:
        raise InfrastructureError(
            f"{what}: {words[0]} is not there", "ci/dax/packages.txt lists what is needed"
        ) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise InfrastructureError(f"{what}: {said[-1] if said else f'exit code {done.returncode}'}", hint)
    return done.stdout


# ---- what the guest boots ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """An unpacked package: nothing of the host's own boot is changed."""

    image: Path
    modules: Path


def find_kernel(place: Path) -> Kernel:
    """Debian's newest, downloaded to place unless one is there."""
    if not list(place.glob("*/boot/vmlinuz-*")):
        place.mkdir(parents=True, exist_ok=True)
        hint = f"`apt-get update`, then again; or unpack a package {KERNEL_PACKAGE} below {place}/kernel"
        depends = run("apt-cache", "depends", KERNEL_PACKAGE, what="no kernel package", hint=hint)
        names = re.findall(r"Depends: (linux-image-\S+)", depends)
        if not names:
            raise InfrastructureError(f"no kernel package: {KERNEL_PACKAGE} is none that apt knows", hint)
        with tempfile.TemporaryDirectory(dir=place) as folder:
            # By root, apt would drop its rights to write here, and say so.
            sandbox = ("-o", "APT::Sandbox::User=root")
            run("apt-get", *sandbox, "download", names[0], what="no kernel package", hint=hint, cwd=Path(folder))
            run("dpkg-deb", "-x", next(Path(folder).glob("*.deb")), f"{folder}/kernel", what="the kernel package")
            (Path(folder) / "kernel").rename(place / names[0])
    image = max(place.glob("*/boot/vmlinuz-*"))
    modules = next(image.parents[1].glob("lib/modules/*"), None)
    if modules is None:
        raise InfrastructureError(f"{image}: no modules lie beside it", f"remove {image.parents[1]}, then again")
    return Kernel(image, modules)


def module_files(modules: Path, wanted: Sequence[str]) -> list[tuple[str, bytes]]:
    """Names and contents, in an order in which they can be loaded."""
    files = {path.name.partition(".ko")[0].replace("-", "_"): path for path in modules.rglob("*.ko*")}
    found: dict[str, bytes] = {}

    def add(name: str) -> None:
        path = files.get(name.replace("-", "_"))
        if path is None or path.name in found:
            return
        content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        for needed in needs_of(content):
            add(needed)
        found[path.name.removesuffix(".xz")] = content

    for name in wanted:
        add(name)
    return list(found.items())


def needs_of(content: bytes) -> list[str]:
    """The modules that must be loaded before it, as its .modinfo says."""
    info = content.split(b"\0")
    depends = [entry.removeprefix(b"depends=") for entry in info if entry.startswith(b"depends=")]
    return [name for entry in depends for name in entry.decode().split(",") if name]


def libraries_of(*programs: Path) -> list[Path]:
    """Shared libraries that they need, the loader among them."""
    found: dict[Path, None] = {}
    for program in programs:
        for line in run("ldd", program, what=f"{program}: its libraries").splitlines():
            path = re.search(r"(/\S+) \(0x", line)
            if path:
                found[Path(path[1])] = None
    return list(found)


@dataclass
class Files:
    """A file system in RAM (initramfs): what the kernel unpacks (Documentation/driver-api/early-userspace/buffer-format.rst)."""

    contents: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def add(self, path: str | Path, content: bytes | str) -> None:
        self.contents[str(path).lstrip("/")] = content.encode() if isinstance(content, str) else content

    def copy(self, path: Path) -> None:
        """To where it is here."""
        self.add(path, path.read_bytes())

    def packed(self) -> bytes:
        paths = [*self.contents, *self.links]
        folders = sorted({str(parent) for path in paths for parent in Path(path).parents} - {"."})
        pieces = [_record(path, stat.S_IFDIR | 0o755, b"") for path in folders]
        pieces += [_record(path, stat.S_IFREG | 0o755, content) for path, content in self.contents.items()]
        pieces += [_record(path, stat.S_IFLNK | 0o777, to.encode()) for path, to in self.links.items()]
        return b"".join([*pieces, _record("TRAILER!!!", 0, b"")])


def _record(path: str, mode: int, content: bytes) -> bytes:
    """In the format `newc`: numbers are hexadecimal, name and content are padded to 4 bytes."""
    name = path.encode() + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08x" % number for number in numbers) + name
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)


def base_files(kernel: Kernel, programs: Mapping[str, Path]) -> Files:
    """Of every start. programs: by their paths in the guest; with the libraries that they need."""
    files = Files()
    files.copy(Path("/bin/busybox"))
    files.links.update({f"bin/{name}": "busybox" for name in APPLETS})
    files.add("init", (HERE / "init").read_bytes())
    modules = module_files(kernel.modules, MODULES)
    files.add("modules/order", "".join(f"{name}\n" for name, _ in modules))
    for name, content in modules:
        files.add(f"modules/{name}", content)
    for path, program in programs.items():
        files.add(path, program.read_bytes())
    for library in libraries_of(*(program for program in programs.values() if is_dynamic(program))):
        files.copy(library)
    return files


def is_dynamic(program: Path) -> bool:
    with program.open("rb") as file:
        return ELFFile(file).get_section_by_name(".dynamic") is not None


# ---- its disks -----------------------------------------------------------------------------------------------------------


def make_disk(path: Path, file_system: str) -> None:
    """An NVDIMM with an empty file system on it."""
    room = shutil.disk_usage(path.parent).free
    if room < DISK_BYTES:
        raise InfrastructureError(
            f"{path}: no room for the disk: {DISK_BYTES >> 20} MiB, and {room >> 20} MiB are free", "free space there"
        )
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "made"
        with made.open("wb") as file:
            file.truncate(DISK_BYTES - DATA_OFFSET)
        run(*FILE_SYSTEMS[file_system], made, what=f"{file_system}: mkfs")
        with path.open("wb") as disk, made.open("rb") as source:
            disk.truncate(DISK_BYTES)
            disk.seek(PAGE_BYTES)
            disk.write(info_block(DISK_BYTES))
            for begin, end in data_of(source.fileno(), DISK_BYTES - DATA_OFFSET):
                source.seek(begin)
                disk.seek(DATA_OFFSET + begin)
                disk.write(source.read(end - begin))


def data_of(file: int, bytes_: int) -> Iterator[tuple[int, int]]:
    """Its ranges that are no holes."""
    at = 0
    while at < bytes_:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
        except OSError:
            return
        at = os.lseek(file, begin, os.SEEK_HOLE)
        yield begin, at


def copy_disk(template: Path, to: Path) -> None:
    run("cp", "--sparse=always", "--reflink=auto", template, to, what=f"{to}: no room for the disk")


# ---- the machine -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """What is started. accelerator: `kvm` or `tcg`."""

    kernel: Kernel
    base: bytes
    accelerator: str

    @contextmanager
    def started(self, order: str, more: Files, disks: Sequence[Path], scratch: Path) -> Iterator[Guest]:
        """Executes the order (ci/dax/init). It is killed at the end, wherever it is. disks: 1 and so on, for `attach`."""
        more.add("order", order)
        (scratch / "initrd").write_bytes(self.base + gzip.compress(more.packed(), 1))
        for name in Guest.NAMES:
            (scratch / name).write_bytes(b"")
        process = subprocess.Popen(
            self._command(disks, scratch),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(scratch / "qemu").open("wb"),
        )
        try:
            yield Guest(process, scratch)
        finally:
            process.kill()
            process.wait()

    def _command(self, disks: Sequence[Path], scratch: Path) -> list[str]:
        mib = DISK_BYTES >> 20
        memory = f"{GUEST_MIB}M,slots={len(disks)},maxmem={GUEST_MIB + (len(disks) + 1) * mib}M"
        processor = {"kvm": "host,-arch-capabilities", "tcg": "max"}[self.accelerator]
        words = [QEMU, "-accel", self.accelerator, "-cpu", processor, "-machine", "pc,nvdimm=on", "-m", memory]
        words += ["-nodefaults", "-display", "none", "-net", "none", "-no-reboot"]
        for number, disk in enumerate(disks):
            backend = f"memory-backend-file,id=disk{number},share=on,mem-path={disk},size={mib}M,align={ALIGNMENT}"
            words += ["-object", backend, "-device", f"nvdimm,memdev=disk{number}"]
        for name in Guest.NAMES:
            words += ["-serial", f"file:{scratch / name}"]
        words += ["-kernel", str(self.kernel.image), "-initrd", str(scratch / "initrd")]
        return [*words, "-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off"]


@dataclass
class Guest:
    """A machine that runs."""

    NAMES = ("console", "markers", "answer")
    """Its serial lines, files in its folder."""
    process: subprocess.Popen[bytes]
    folder: Path
    read: int = 0
    """Of the markers, so many bytes."""

    def markers(self) -> str:
        return (self.folder / "markers").read_text(errors="replace")

    def answer(self) -> bytes:
        return (self.folder / "answer").read_bytes()

    def await_line(self, begins: Sequence[str], limit_s: float) -> str | None:
        """The next whole line of the markers that begins with one of these; None: the time is over.

        Raises InfrastructureError: the guest has ended, or says that it cannot go on."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            for line in self._new_lines():
                if line.startswith(("no-dax", "failed")):
                    raise InfrastructureError(f"the guest says: {line}")
                if line.startswith(tuple(begins)):
                    return line
            if self.process.poll() is not None:
                raise InfrastructureError(f"the guest ended: {self.last_words()}")
            time.sleep(POLL_S)
        return None

    def expect(self, *begins: str, limit_s: float = BOOT_S) -> str:
        """Raises InfrastructureError: it does not come."""
        line = self.await_line(begins, limit_s)
        if line is None:
            raise InfrastructureError(f"the guest did not say {begins[0]!r} within {limit_s:g} s: {self.last_words()}")
        return line

    def _new_lines(self) -> Iterator[str]:
        with (self.folder / "markers").open("rb") as file:
            file.seek(self.read)
            while (line := file.readline()).endswith(b"\n"):
                self.read += len(line)
                yield line.decode(errors="replace").strip()

    def last_words(self) -> str:
        """Of the kernel's console and of QEMU."""
        texts = [(self.folder / name).read_text(errors="replace") for name in ("console", "qemu")]
        lines = [
            re.sub(r"\x1b\[[0-9;?=]*[a-zA-Z]|\x1bc|[^ -~]", "", line).strip()
            for text in texts
            for line in text.splitlines()
        ]
        return " | ".join([line for line in lines if line][-LAST_LINES:]) or "it said nothing"


def machine_for(kernel: Kernel, base: Files, scratch: Path) -> tuple[Machine, str]:
    """With KVM where the host's boots the guest; and a word on what was chosen."""
    if shutil.which(QEMU) is None:
        raise InfrastructureError(f"no {QEMU} is there", "ci/dax/packages.txt names its package")
    packed = gzip.compress(base.packed(), 1)
    machine = Machine(kernel, packed, "kvm")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Machine(kernel, packed, "tcg"), "TCG: there is no KVM"
    with machine.started("say up", Files(), (), scratch) as guest:
        try:
            if guest.await_line(("up",), KVM_S) is not None:
                return machine, "KVM"
        except InfrastructureError:
            pass
    return Machine(kernel, packed, "tcg"), f"TCG: KVM did not boot the guest within {KVM_S:g} s"
