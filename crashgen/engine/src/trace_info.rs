// SPDX-License-Identifier: Apache-2.0
//! `trace-info`: what a trace holds, for people.

use crate::output;
use crashgen::symbols::Symbols;
use crashgen::trace::{Event, EventKind, Trace};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Prints counts, or with `has_events` every event.
pub fn print(trace: &Trace, has_events: bool, module_root: &Path, is_json: bool) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for event in &trace.events {
        *counts.entry(word(&event.kind)).or_default() += 1;
    }
    if is_json {
        output::print(&json!({
            "hash": trace.hash, "tracer": trace.tracer, "processes": trace.processes, "events": trace.events.len(),
            "counts": counts, "files": trace.files.len(), "sites": trace.sites.len(), "unsupported": trace.unsupported,
        }));
        return;
    }
    println!("trace {} by {}, {} processes, {} events", trace.hash, trace.tracer, trace.processes, trace.events.len());
    for (kind, count) in counts {
        println!("{count:10} {kind}");
    }
    for text in &trace.unsupported {
        println!("not followed: {text}");
    }
    if has_events {
        let built = trace.modules.iter().map(|module| module_root.join(&module.path)).collect();
        let mut symbols = Symbols::new(built);
        for (number, event) in trace.events.iter().enumerate() {
            println!("{number:8} {}", describe(trace, &mut symbols, event));
        }
    }
}

fn word(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Store { .. } => "store",
        EventKind::Flush { .. } => "flush",
        EventKind::Fence => "fence",
        EventKind::FileBegin { .. } => "file operation begin",
        EventKind::FileEnd { .. } => "file operation end",
        EventKind::Case { .. } => "case",
        EventKind::OperationBegin { .. } => "operation begin",
        EventKind::OperationReturn { .. } => "operation return",
    }
}

fn describe(trace: &Trace, symbols: &mut Symbols, event: &Event) -> String {
    let symbol = symbols.find(trace, event.site);
    let place = format!("{} {}:{}", symbol.function, symbol.file, symbol.line);
    match &event.kind {
        EventKind::Store { kind, file, offset, bytes } => {
            let value: String = bytes.iter().rev().take(32).map(|byte| format!("{byte:02x}")).collect();
            format!(
                "store {kind:?} {}+{offset:#x} {} bytes 0x{value}  {place}",
                trace.files[file.0 as usize],
                bytes.len()
            )
        }
        EventKind::Flush { kind, file, offset } => {
            format!("flush {kind:?} {}+{offset:#x}  {place}", trace.files[file.0 as usize])
        }
        EventKind::Fence => format!("fence  {place}"),
        EventKind::FileBegin { effect } => format!("file begin {effect:?}"),
        EventKind::FileEnd { effect, is_done } => {
            format!("file end {effect:?} {}", if *is_done { "done" } else { "failed" })
        }
        EventKind::Case { number, .. } => format!("case {number}"),
        EventKind::OperationBegin { kind, index, slot, bytes, object } => {
            format!("begin {} index {index} slot {slot} bytes {bytes} object {object}", kind.name())
        }
        EventKind::OperationReturn { kind, index, status } => {
            format!("return {} index {index} status {status}", kind.name())
        }
    }
}
