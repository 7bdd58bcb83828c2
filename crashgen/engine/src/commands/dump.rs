// SPDX-License-Identifier: Apache-2.0
//! `dump`: a trace as text, one line an event, for people and for grep, diff and awk.
//!
//! The columns and their order are stable; what stands after the kind is for reading.
//!
//!     POSITION  THREAD  OPERATION  KIND  DETAIL  at FUNCTION (FILE:LINE)
//!
//! POSITION is the crash position after the event, as findings and tokens count: power that fails at position 246 fails after
//! the line 246. THREAD is process.thread. OPERATION is the index of the operation that the thread is in, `-` outside.

use crate::findings::event_excerpt::{arguments, kind, value};
use crashgen::symbols::{Symbol, Symbols};
use crashgen::trace::{Event, EventKind, FenceKind, FileEffect, FileId, OperationKind, ThreadId, Trace};
use oracle::Status;
use rustc_hash::FxHashMap;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

/// Prints the trace; a reader that leaves early is no error. `module_root`: where the modules that the trace names by relative
/// paths lie.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(trace: &Trace, module_root: &Path) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(trace, module_root, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            std::mem::forget(out); // its drop would write again
            Ok(())
        }
        result => result,
    }
}

fn write(trace: &Trace, module_root: &Path, out: &mut impl Write) -> io::Result<()> {
    let plural = if trace.processes == 1 { "" } else { "es" };
    let (events, processes) = (trace.events.len(), trace.processes);
    writeln!(out, "# trace {} by {}: {processes} process{plural}, {events} events", trace.hash, trace.tracer)?;
    for text in &trace.unsupported {
        writeln!(out, "# not followed: {}", printable(text))?;
    }
    writeln!(out, "# {:>6}  {:<6}  {:>9}  {:<18}  detail", "position", "thread", "operation", "kind")?;
    let mut symbols = Symbols::under(trace, module_root);
    let mut operations: FxHashMap<ThreadId, u32> = FxHashMap::default();
    for (number, event) in trace.events.iter().enumerate() {
        if let EventKind::OperationBegin { index, .. } = &event.kind {
            operations.insert(event.thread, *index);
        }
        let operation = operations.get(&event.thread).map_or("-".to_owned(), u32::to_string);
        let thread = format!("{}.{}", event.thread.process, event.thread.thread);
        let line = [detail(trace, event), place(&symbols.find(trace, event.site))];
        let text = line.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ");
        let head = format!("{:>10}  {thread:<6}  {operation:>9}  {:<18}  {text}", number + 1, kind(&event.kind));
        writeln!(out, "{}", head.trim_end())?;
        if matches!(event.kind, EventKind::OperationReturn { .. }) {
            operations.remove(&event.thread);
        }
    }
    Ok(())
}

fn detail(trace: &Trace, event: &Event) -> String {
    let at = |file: &FileId, offset: &u64| format!("{}+{offset:#x}", name(trace, *file));
    match &event.kind {
        EventKind::Store { file, offset, bytes, .. } => {
            format!("{}, {} = {}", at(file, offset), count(bytes.len() as u64), value(bytes))
        }
        EventKind::Flush { file, offset, .. } => at(file, offset),
        EventKind::Fence { kind: FenceKind::Sfence } => "sfence".to_owned(),
        EventKind::Fence { kind: FenceKind::Mfence } => "mfence".to_owned(),
        EventKind::Fence { kind: FenceKind::Locked } => "locked".to_owned(),
        EventKind::FileBegin { effect } => effect_text(trace, effect),
        EventKind::FileEnd { effect, is_done } => {
            effect_text(trace, effect) + if *is_done { "" } else { ", failed: no effect" }
        }
        EventKind::Case { number, folder } => format!("{number} in {}/", printable(folder)),
        EventKind::OperationBegin { kind, slot, bytes, object, .. } => begin_text(*kind, *slot, *bytes, *object),
        EventKind::OperationReturn { kind, status, .. } => format!("{}: {}", kind.name(), Status::from(*status)),
    }
}

fn begin_text(kind: OperationKind, slot: u32, bytes: u64, object: u32) -> String {
    let arguments = arguments(kind, slot, bytes, object).map(|text| format!(" {text}")).unwrap_or_default();
    format!("{}{arguments}", kind.name())
}

fn effect_text(trace: &Trace, effect: &FileEffect) -> String {
    let file = |file: &FileId| name(trace, *file);
    match effect {
        FileEffect::Create { path, .. }
        | FileEffect::Unlink { path }
        | FileEffect::MakeFolder { path }
        | FileEffect::RemoveFolder { path }
        | FileEffect::SyncFolder { path } => printable(path),
        FileEffect::SyncAll => "every file".to_owned(),
        FileEffect::Truncate { file: of, bytes } | FileEffect::Extend { file: of, bytes } => {
            format!("{} to {}", file(of), count(*bytes))
        }
        FileEffect::Sync { file: of, .. } if effect.is_fsync() => file(of),
        FileEffect::Punch { file: of, offset, bytes } | FileEffect::Sync { file: of, offset, bytes } => {
            format!("{}+{offset:#x}, {}", file(of), count(*bytes))
        }
        FileEffect::Rename { from, to } => format!("{} to {}", printable(from), printable(to)),
        FileEffect::Write { file: of, offset, bytes } => {
            format!("{}+{offset:#x}, {} = {}", file(of), count(bytes.len() as u64), value(bytes))
        }
    }
}

fn count(bytes: u64) -> String {
    format!("{bytes} byte{}", if bytes == 1 { "" } else { "s" })
}

/// The file's first name.
fn name(trace: &Trace, file: FileId) -> String {
    printable(&trace.files[file.0 as usize])
}

/// On one line, whatever a target calls its files.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

fn place(symbol: &Symbol) -> String {
    let file = printable(&symbol.file);
    let function = printable(if symbol.function.is_empty() { "?" } else { &symbol.function });
    match (symbol.function.is_empty() && file.is_empty(), symbol.line) {
        (true, _) => String::new(),
        (false, 0) => format!("at {function} ({file})"),
        (false, line) => format!("at {function} ({file}:{line})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashgen::trace::{FlushKind, Site, SiteId, StoreKind};
    use std::sync::Arc;

    fn event(thread: u16, kind: EventKind) -> Event {
        Event { thread: ThreadId { process: 1, thread }, site: SiteId(0), kind }
    }

    fn sample() -> Trace {
        let (file, path) = (FileId(0), Arc::<str>::from("case-0/he\nap"));
        let begin = |kind, index, slot, bytes, object| EventKind::OperationBegin { kind, index, slot, bytes, object };
        let returned = |kind, index, status| EventKind::OperationReturn { kind, index, status };
        let created = Arc::new(FileEffect::Create { file, path: path.clone() });
        let events = vec![
            event(1, EventKind::Case { number: 0, folder: "case-0".into() }),
            event(1, begin(OperationKind::Create, 0, 0, 0, 0)),
            event(1, EventKind::FileBegin { effect: created.clone() }),
            event(1, EventKind::FileEnd { effect: created, is_done: true }),
            event(1, EventKind::FileBegin { effect: FileEffect::Truncate { file, bytes: 4096 }.into() }),
            event(1, EventKind::FileEnd { effect: FileEffect::Truncate { file, bytes: 4096 }.into(), is_done: false }),
            event(1, returned(OperationKind::Create, 0, 0)),
            event(2, begin(OperationKind::Allocate, 1, 3, 100, 2)),
            event(1, EventKind::Store { kind: StoreKind::Plain, file, offset: 64, bytes: vec![0x40, 1].into() }),
            event(2, EventKind::Store { kind: StoreKind::NonTemporal, file, offset: 72, bytes: vec![7; 9].into() }),
            event(2, EventKind::Flush { kind: FlushKind::Clwb, file, offset: 72 }),
            event(2, EventKind::Fence { kind: FenceKind::Sfence }),
            event(2, returned(OperationKind::Allocate, 1, 1)),
            event(2, begin(OperationKind::Free, 2, 3, 0, 0)),
            event(1, begin(OperationKind::Link, 3, 4, 1, 5)),
            event(1, returned(OperationKind::Link, 3, 0)),
            event(1, begin(OperationKind::Unlink, 4, 4, 1, 0)),
            event(1, returned(OperationKind::Unlink, 4, 0)),
            event(1, begin(OperationKind::Load, 5, 6, 1, 4)),
            event(1, returned(OperationKind::Load, 5, 0)),
            event(1, begin(OperationKind::Drop, 6, 4, 0, 0)),
            event(1, returned(OperationKind::Drop, 6, 0)),
            event(2, EventKind::FileBegin { effect: FileEffect::Sync { file, offset: 4096, bytes: 8192 }.into() }),
            event(
                2,
                EventKind::FileEnd {
                    effect: FileEffect::Sync { file, offset: 4096, bytes: 8192 }.into(),
                    is_done: true,
                },
            ),
            event(2, EventKind::FileBegin { effect: FileEffect::Sync { file, offset: 0, bytes: u64::MAX }.into() }),
            event(
                2,
                EventKind::FileEnd {
                    effect: FileEffect::Sync { file, offset: 0, bytes: u64::MAX }.into(),
                    is_done: true,
                },
            ),
        ];
        Trace {
            events,
            sites: vec![Site { module: None, offset: 0, caller: None }],
            files: vec![path],
            hash: "ab12".into(),
            tracer: "valgrind".into(),
            processes: 1,
            ..Trace::default()
        }
    }

    #[test]
    fn the_text_is_stable() {
        let mut text = Vec::new();
        write(&sample(), Path::new("."), &mut text).unwrap();
        let expected = "\
# trace ab12 by valgrind: 1 process, 26 events
# position  thread  operation  kind                detail
         1  1.1             -  case                0 in case-0/
         2  1.1             0  operation begin     create
         3  1.1             0  create file         case-0/he?ap
         4  1.1             0  file created        case-0/he?ap
         5  1.1             0  truncate file       case-0/he?ap to 4096 bytes
         6  1.1             0  file truncated      case-0/he?ap to 4096 bytes, failed: no effect
         7  1.1             0  operation return    create: ok
         8  1.2             1  operation begin     allocate slot 3, 100 bytes, object 2
         9  1.1             -  store               case-0/he?ap+0x40, 2 bytes = 0x140
        10  1.2             1  non-temporal store  case-0/he?ap+0x48, 9 bytes = [070707070707070707]
        11  1.2             1  clwb                case-0/he?ap+0x48
        12  1.2             1  fence               sfence
        13  1.2             1  operation return    allocate: out-of-memory
        14  1.2             2  operation begin     free slot 3
        15  1.1             3  operation begin     link slot 4, field 1, to slot 5
        16  1.1             3  operation return    link: ok
        17  1.1             4  operation begin     unlink slot 4, field 1
        18  1.1             4  operation return    unlink: ok
        19  1.1             5  operation begin     load slot 6, from slot 4, field 1
        20  1.1             5  operation return    load: ok
        21  1.1             6  operation begin     drop slot 4
        22  1.1             6  operation return    drop: ok
        23  1.2             2  msync               case-0/he?ap+0x1000, 8192 bytes
        24  1.2             2  msync return        case-0/he?ap+0x1000, 8192 bytes
        25  1.2             2  fsync               case-0/he?ap
        26  1.2             2  fsync return        case-0/he?ap
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn a_site_is_a_function_and_a_line() {
        let symbol = |function: &str, file: &str, line| Symbol {
            function: function.into(),
            file: file.into(),
            line,
            ..Symbol::default()
        };
        assert_eq!(place(&symbol("set_links", "src/region.c", 80)), "at set_links (src/region.c:80)");
        assert_eq!(place(&symbol("", "libc.so.6", 0)), "at ? (libc.so.6)");
        assert_eq!(place(&Symbol::default()), "");
    }
}
