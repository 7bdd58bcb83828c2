// SPDX-License-Identifier: Apache-2.0
//! The assembler of builds with hooks (build variant `hooks`): `as` with a pass in front of it, that announces to the runner what
//! instructions do to memory.
//!
//! ```text
//! compiler's output ──> statements ──> `as` on a copy with a label at each ──> bytes ──> instructions
//!                           └──────────────── announcements in front of them <──────────────┘
//! ```
//!
//! Plain accesses of C and C++ are the compiler's to announce: it calls `__tsan_read8` and the like, and the pass puts a question in
//! front of each call ([`near`]). Announced here is
//!
//! 1. every access in inline assembly, and in sources that are assembly;
//! 2. everywhere: flushes, fences, non-temporal stores, locked instructions, and the accesses of other intrinsics. What each
//!    instruction does is a table, [`instruction::what`];
//! 3. of a compiler's code, each access of which no hook is known to tell ([`announced`](mod@announced)).
//!
//! An instruction that may access memory in a way that cannot be said before (a system call, a gather) announces that it is
//! *unseen*: the runner then says that of the run.
//!
//! What stands there is asked of the assembler itself, by its bytes. So it does not matter how an instruction is spelled: AT&T or
//! Intel syntax, a prefix in a statement of its own, `.byte`, a macro.
//!
//! An announcement keeps every register, the flags, and the red zone ([`emit`]); the runner's part is `entry.c`.
//!
//! What was assembled here is marked ([`marks`]), so that a part of a library that was not is found.

mod announced;
mod emit;
mod instruction;
mod layout;
mod marks;
mod near;
mod source;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A hash over these is the version of the assembler, and part of the key of what it made.
const SOURCES: [&str; 8] = [
    include_str!("lib.rs"),
    include_str!("announced.rs"),
    include_str!("emit.rs"),
    include_str!("instruction.rs"),
    include_str!("layout.rs"),
    include_str!("marks.rs"),
    include_str!("near.rs"),
    include_str!("source.rs"),
];

/// One line, another one for each change of the pass.
pub fn version() -> String {
    // FNV-1a, 64 bits: it tells versions of this program apart, nothing else.
    let hash = SOURCES
        .iter()
        .flat_map(|source| source.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("faultline-as {hash:016x}")
}

/// Does what `as` with these arguments does, with announcements. Ends this process by becoming `as`, or with its exit code.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    match assemble(arguments) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("faultline-as: error: {message}");
            ExitCode::from(3)
        }
    }
}

fn assemble(mut arguments: Vec<OsString>) -> Result<ExitCode, String> {
    let assembler = real_assembler()?;
    let scratch = Scratch::new()?;
    let input = take_input(&mut arguments);
    let text = match &input {
        Some(path) => std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?,
        None => {
            let mut text = Vec::new();
            std::io::stdin().read_to_end(&mut text).map_err(|error| format!("standard input: {error}"))?;
            text
        }
    };
    let announced = announce(&text, &assembler, &scratch, &options_of(&arguments))?;
    if let Some(announced) = &announced {
        let marked = scratch.file("marked.s");
        write(&marked, &[announced.text.as_slice(), announced.marks.as_bytes()].concat())?;
        let run = command(&assembler, &arguments, &marked).output();
        let run = run.map_err(|error| format!("{}: {error}", assembler.display()))?;
        if run.status.success() {
            let _ = std::io::stdout().write_all(&run.stdout).and_then(|()| std::io::stderr().write_all(&run.stderr));
            return Ok(ExitCode::SUCCESS);
        }
    }
    // Where nothing is known of the source, `as` says what is wrong with it, line by line.
    let output = match (&announced, input) {
        (None, Some(input)) => input,
        _ => scratch.file("announced.s"),
    };
    if output.starts_with(&scratch.0) {
        write(&output, announced.as_ref().map_or(&text, |announced| &announced.text))?;
    }
    let status = command(&assembler, &arguments, &output).status();
    let status = status.map_err(|error| format!("{}: {error}", assembler.display()))?;
    Ok(ExitCode::from(status.code().map_or(1, |code| code as u8)))
}

fn command(assembler: &Path, arguments: &[OsString], input: &Path) -> Command {
    let mut command = Command::new(assembler);
    command.args(arguments).arg(input);
    command
}

fn write(path: &Path, text: &[u8]) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A source with announcements, and statements for its end that mark what it makes.
struct Announced {
    text: Vec<u8>,
    marks: String,
}

/// The source with announcements, by the `as` that PATH has; none: that refuses it as it is.
pub fn announced(text: &[u8]) -> Result<Option<Vec<u8>>, String> {
    Ok(announce(text, &real_assembler()?, &Scratch::new()?, &[])?.map(|announced| announced.text))
}

fn announce(
    text: &[u8],
    assembler: &Path,
    scratch: &Scratch,
    options: &[OsString],
) -> Result<Option<Announced>, String> {
    let statements = source::split(text);
    let labelled = scratch.file("labelled.s");
    let object = scratch.file("labelled.o");
    write(&labelled, &source::labelled(&statements))?;
    let run = Command::new(assembler).args(options).arg("-o").arg(&object).arg(&labelled).output();
    if !run.map_err(|error| format!("{}: {error}", assembler.display()))?.status.success() {
        return Ok(None);
    }
    let bytes = std::fs::read(&object).map_err(|error| format!("{}: {error}", object.display()))?;
    let layout = layout::of(&bytes, &statements)?;
    Ok(Some(Announced { text: emit::announced(&statements, &layout), marks: marks::of(&bytes)? }))
}

/// Of the arguments, those that matter for what the bytes are: all but the output and listings.
fn options_of(arguments: &[OsString]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        match text.as_ref() {
            "-o" | "--MD" => drop(rest.next()),
            _ if text.starts_with("-a") || (text.starts_with("-o") && text.len() > 2) => {}
            _ => kept.push(argument.clone()),
        }
    }
    kept
}

/// The file to be assembled is the last argument; none, or `-`: it comes by standard input.
fn take_input(arguments: &mut Vec<OsString>) -> Option<PathBuf> {
    let is_file = arguments.last().is_some_and(|last| Path::new(last).is_file());
    let is_value =
        arguments.len() >= 2 && ["-o", "-I", "--MD"].iter().any(|name| arguments[arguments.len() - 2] == *name);
    if is_file && !is_value {
        return arguments.pop().map(PathBuf::from);
    }
    arguments.retain(|argument| argument != "-");
    None
}

/// `as` as PATH has it, that is not this program.
fn real_assembler() -> Result<PathBuf, String> {
    let own = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("as"))
        .find(|found| found.is_file() && std::fs::canonicalize(found).ok() != own)
        .ok_or_else(|| "as was not found on PATH; it comes with the compiler (Debian: binutils)".to_owned())
}

/// What this program does when it is started as `faultline-as`.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.first().map(|first| first.to_string_lossy()).as_deref() {
        Some("--faultline-version") => {
            println!("{}", version());
            ExitCode::SUCCESS
        }
        Some("--version" | "-v") if arguments.len() == 1 => match real_assembler() {
            Ok(assembler) => {
                let error = Command::new(&assembler).args(&arguments).exec();
                eprintln!("faultline-as: error: {}: {error}", assembler.display());
                ExitCode::from(3)
            }
            Err(message) => {
                eprintln!("faultline-as: error: {message}");
                ExitCode::from(3)
            }
        },
        _ => run(arguments),
    }
}

/// Folders that this process made.
static SCRATCHES: AtomicU32 = AtomicU32::new(0);

/// A folder of our own that goes when we end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let number = SCRATCHES.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("faultline-as.{}.{now}.{number}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
