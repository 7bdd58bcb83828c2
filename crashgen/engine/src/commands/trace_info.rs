// SPDX-License-Identifier: Apache-2.0
//! `trace-info`: what a trace holds, for people.

use crate::base::output;
use crashgen::trace::{EventKind, Trace};
use serde_json::json;
use std::collections::BTreeMap;

/// Prints how many events of each kind there are; `dump` prints the events.
pub fn print(trace: &Trace, is_json: bool) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for event in &trace.events {
        *counts.entry(word(&event.kind)).or_default() += 1;
    }
    if is_json {
        output::print(&json!({
            "hash": trace.hash, "tracer": trace.tracer, "processes": trace.processes, "events": trace.events.len(),
            "counts": counts, "files": trace.files.len(), "sites": trace.sites.len(), "unsupported": trace.unsupported,
            "has_unknown_operations": trace.has_unknown_operations(),
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
}

fn word(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Store { .. } => "store",
        EventKind::Flush { .. } => "flush",
        EventKind::Fence { .. } => "fence",
        EventKind::FileBegin { .. } => "file operation begin",
        EventKind::FileEnd { .. } => "file operation end",
        EventKind::Case { .. } => "case",
        EventKind::OperationBegin { .. } => "operation begin",
        EventKind::OperationReturn { .. } => "operation return",
    }
}
