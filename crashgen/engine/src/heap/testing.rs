// SPDX-License-Identifier: Apache-2.0
//! A configuration and a small trace for tests.

use crate::base::config::Config;
use crate::heap::case::HeapCase;
use crate::heap::state::StateRef;
use crashgen::model::{Choice, View};
use crashgen::trace::{Event, EventKind, FileEffect, FileId, OperationKind, SiteId, ThreadId, Trace};
use std::sync::Arc;

const FILE: FileId = FileId(0);

/// It names no file that is there.
pub const CONFIG: &str = r#"{
    "version": 2, "trace": "t", "runner": "r", "adapter": "a", "workload_file": "w", "scratch": "s",
    "heap": {"heap_bytes": 4096, "limit_bytes": 4096, "slots": 1, "slot_layout": "root", "address_hint": 0, "relocates": false,
        "alignment": 64, "smallest_bytes": 64},
    "contract": {"publish": "atomic", "fill": "before", "leaks": "none", "durable": "on-return", "accounting": "none",
        "slack_bytes": 0, "relocatable": false, "detects": [], "after_failed_create": "error",
        "clean_close": false, "threads": 1},
    "model": "px86", "strategy": "mixed", "seed": 1, "stop_at_rule": null, "probe": "full",
    "limits": {"exhaustive_states": 1, "samples": 1, "time_s": null, "cpu_limit_ms": 1, "wall_limit_ms": 1},
    "identity": {"allocator": "a", "mutant": null, "build": "b", "workload": "w", "ops": null, "seed": 1, "flush": "clwb"}
}"#;

/// A file operation that is over.
pub fn done(effect: FileEffect) -> EventKind {
    EventKind::FileEnd { effect: effect.into(), is_done: true }
}

/// Another heap begins.
pub fn case(number: u32) -> EventKind {
    EventKind::Case { number, folder: "case".into() }
}

/// Of one heap whose creation is under way, and these events.
pub fn trace(kinds: Vec<EventKind>) -> Trace {
    let thread = ThreadId { process: 1, thread: 1 };
    let path: Arc<str> = "heap".into();
    let mut events = vec![case(0), done(FileEffect::Create { file: FILE, path: path.clone() })];
    events.push(done(FileEffect::Truncate { file: FILE, bytes: 4096 }));
    events.push(EventKind::OperationBegin { kind: OperationKind::Create, index: 0, slot: 0, bytes: 0, object: 0 });
    events.extend(kinds);
    let events = events.into_iter().map(|kind| Event { thread, site: SiteId(0), kind }).collect();
    Trace { events, files: vec![path], ..Trace::default() }
}

/// What is said at a position of a state that `choose` makes of the prefix state.
pub fn of_state<R>(
    trace: &Trace,
    position: u32,
    choose: impl Fn(&View, &mut Vec<Choice>),
    say: impl FnOnce(&StateRef) -> R,
) -> R {
    let config = Config::parse("test", CONFIG).expect("a configuration");
    let mut case = HeapCase::new(&config, trace, "case");
    let mut view = None;
    for (number, event) in trace.events[..position as usize].iter().enumerate() {
        if matches!(event.kind, EventKind::Case { .. }) {
            case = HeapCase::new(&config, trace, "case");
        }
        view = Some(case.step(number as u32, event).expect("markers in order").0);
    }
    let view = view.expect("at least one event");
    let mut state = view.prefix_state();
    choose(&view, &mut state);
    say(&StateRef { case: &case, view: &view, choices: &state, position })
}
