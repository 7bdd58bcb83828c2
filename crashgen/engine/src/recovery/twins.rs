// SPDX-License-Identifier: Apache-2.0
//! Twins: the same history without a crash, closed and reopened, and emptied while it is open (FL012). `runner twins` makes them.
//!
//! Where one thread does everything, the runner makes a twin at each operation boundary on its way. Where several threads do, what had happened
//! at a crash position is no prefix of the workload file. Then a plan names each history that some crash position can show, and the runner
//! executes it, one operation after the other, each on its own thread.

use crate::base::config::Config;
use crate::base::error::{EngineError, bad_input};
use crate::heap::case::add_marker;
use crashgen::trace::{EventKind, Trace};
use oracle::contract::Durable;
use oracle::{HeapReport, History, Linearised, OperationKind, Status, TwinSet, WithoutCrash};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

/// Histories are planned for at most this many operations pending at once: 4 give 65 orders of their subsets.
const PENDING_LIMIT: usize = 4;

/// The twins of a workload, and what they cannot say.
#[derive(Default)]
pub struct MadeTwins {
    /// None when the allocator does not survive them.
    pub twins: Option<TwinSet>,
    /// What they fail with.
    pub without_crash: Vec<WithoutCrash>,
    /// Why something is unknown.
    pub unknown: Vec<String>,
    /// The bound that the plan hit.
    pub bound: Option<String>,
}

impl MadeTwins {
    /// Why a heap may not be judged by them.
    pub fn doubts(&self) -> Vec<String> {
        let without = self.without_crash.iter().map(|failure| format!("{} (FL017)", failure.message));
        self.unknown.iter().cloned().chain(without).collect()
    }
}

/// The twins of the whole workload; none when they are not made by the deadline.
///
/// # Errors
/// When the runner cannot be started.
pub fn make(config: &Config, trace: &Trace, deadline: Option<Instant>) -> Result<MadeTwins, EngineError> {
    let options = config.server("twins")?;
    let mut command = config.twins_command(&options);
    let plan = is_threaded(trace).then(|| Plan::of(config.contract.durable, trace)).transpose()?;
    let bound = plan.as_ref().and_then(Plan::bound);
    if let Some(plan) = &plan {
        command.arg("--plan").arg(plan.write(&options.scratch)?);
    }
    let result = output_by(&mut command, deadline).map_err(|error| {
        EngineError::Infrastructure(format!("{}: cannot be started: {error}", options.runner.display()))
    })?;
    let Some(result) = result else { return Ok(MadeTwins::default()) }; // and nothing is explored any more
    if !result.status.success() {
        let said = String::from_utf8_lossy(&result.stderr);
        let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
        let unknown = vec![format!("the workload without a crash failed: {why}")];
        return Ok(MadeTwins { unknown, bound, ..MadeTwins::default() });
    }
    let mut twins = parse(&result.stdout, plan.as_ref())
        .map_err(|why| EngineError::Infrastructure(format!("the runner's twins: {why}")))?;
    refused(trace).for_each(|operation| twins.insert_refused(operation));
    let out_of_memory = config.contract.out_of_memory;
    let without_crash = twins.without_crash(out_of_memory);
    let unfit = twins.unfit(out_of_memory);
    let unknown = unfit.map(|(name, why)| format!("the heap without a crash, after {name}: {why}")).collect();
    Ok(MadeTwins { twins: Some(twins), without_crash, unknown, bound })
}

/// What a command says; None when it has not ended by the deadline. It is killed then, and its children end with it.
fn output_by(command: &mut Command, deadline: Option<Instant>) -> io::Result<Option<Output>> {
    let Some(deadline) = deadline else { return command.output().map(Some) };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let streams = [read_apart(child.stdout.take()), read_apart(child.stderr.take())];
    let mut texts = Vec::new();
    for stream in streams {
        let Ok(text) = stream.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        };
        texts.push(text?);
    }
    let (status, stderr, stdout) = (child.wait()?, texts.pop().unwrap_or_default(), texts.pop().unwrap_or_default());
    Ok(Some(Output { status, stdout, stderr }))
}

/// All that comes, once it has ended.
fn read_apart(stream: Option<impl Read + Send + 'static>) -> Receiver<io::Result<Vec<u8>>> {
    let (said, heard) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = stream.map_or(Ok(0), |mut stream| stream.read_to_end(&mut text));
        let _ = said.send(read.map(|_| text)); // nobody listens once the deadline is over
    });
    heard
}

/// Operations that had no success when the workload was traced.
fn refused(trace: &Trace) -> impl Iterator<Item = u32> {
    trace.events.iter().filter_map(|event| match event.kind {
        EventKind::OperationReturn { index, status, .. } => (Status::from(status) != Status::Ok).then_some(index),
        _ => None,
    })
}

fn parse(mut rest: &[u8], plan: Option<&Plan>) -> Result<TwinSet, String> {
    let mut twins = TwinSet::default();
    while !rest.is_empty() {
        let number = take_u32(&mut rest)?;
        let length = take_u32(&mut rest)? as usize;
        let (report, tail) = rest.split_at_checked(length).ok_or("truncated")?;
        let report = HeapReport::parse(report).map_err(|error| error.to_string())?;
        rest = tail;
        let Some(plan) = plan else {
            twins.insert(number, &report);
            continue;
        };
        for history in plan.histories.get(number as usize).ok_or("a twin that was not asked for")? {
            twins.insert_linearised(history.clone(), &report);
        }
    }
    Ok(twins)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, String> {
    let (bytes, tail) = rest.split_first_chunk::<4>().ok_or("truncated")?;
    *rest = tail;
    Ok(u32::from_le_bytes(*bytes))
}

// ---- the plan of a threaded workload ----------------------------------------------------------------------------------------

fn is_threaded(trace: &Trace) -> bool {
    trace.events.iter().any(|event| matches!(event.kind, EventKind::OperationBegin { .. }) && event.thread.thread != 1)
}

/// What the runner executes for one twin: the first `returned` operations of the case's order, then these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sequence {
    case: u32,
    returned: usize,
    pending: Vec<u32>,
}

/// All histories that the crash positions of a trace can show, and what has to be executed for them.
#[derive(Default)]
struct Plan {
    /// For each case, its operations on slots in the order in which they returned with an effect.
    orders: BTreeMap<u32, Vec<u32>>,
    sequences: Vec<Sequence>,
    /// For each sequence, the histories it is a twin of.
    histories: Vec<Vec<Linearised>>,
    /// Somewhere more operations were pending than histories are planned for.
    is_cut: bool,
}

impl Plan {
    fn of(durable: Durable, trace: &Trace) -> Result<Plan, EngineError> {
        let mut wanted: Vec<(Sequence, Linearised)> = Vec::new();
        let mut orders: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut history = History::new(durable);
        let (mut case, mut threads, mut is_cut) = (0, Vec::new(), false);
        for (number, event) in trace.events.iter().enumerate().skip(trace.first_event()) {
            if let EventKind::Case { number, .. } = &event.kind {
                (case, history) = (*number, History::new(durable));
            }
            add_marker(&mut history, &mut threads, number as u32, event)?;
            let order = orders.entry(case).or_default();
            match &event.kind {
                EventKind::OperationReturn { kind, index, status } if Status::from(*status) == Status::Ok => {
                    if kind.has_slot() {
                        order.push(*index);
                    }
                }
                EventKind::OperationBegin { .. } | EventKind::OperationReturn { .. } => {}
                _ => continue,
            }
            is_cut |= !want(&history, case, order.len(), &mut wanted);
        }
        Ok(Plan { is_cut, ..Plan::with(orders, wanted) })
    }

    /// The bound that the plan hit, as the certificate names it.
    fn bound(&self) -> Option<String> {
        self.is_cut.then(|| format!("more than {PENDING_LIMIT} operations are pending at once: no twins there"))
    }

    /// A pending operation that is the next to return makes the same sequence as its return.
    fn with(orders: BTreeMap<u32, Vec<u32>>, wanted: Vec<(Sequence, Linearised)>) -> Plan {
        let mut all: BTreeMap<Sequence, Vec<Linearised>> = BTreeMap::new();
        for (mut sequence, history) in wanted {
            let order = &orders[&sequence.case];
            while sequence.pending.first().is_some_and(|first| order.get(sequence.returned) == Some(first)) {
                sequence.pending.remove(0);
                sequence.returned += 1;
            }
            let histories = all.entry(sequence).or_default();
            if !histories.contains(&history) {
                histories.push(history);
            }
        }
        let (sequences, histories) = all.into_iter().unzip();
        Plan { orders, sequences, histories, is_cut: false }
    }

    /// As `runner twins --plan` reads it.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |head: String, indices: &[u32]| {
            text.push_str(&head);
            indices.iter().for_each(|index| write!(text, " {index}").expect("a string takes all"));
            text.push('\n');
        };
        for (case, order) in &self.orders {
            line(format!("order {case}"), order);
        }
        for sequence in &self.sequences {
            line(format!("twin {} {}", sequence.case, sequence.returned), &sequence.pending);
        }
        text
    }

    fn write(&self, folder: &Path) -> Result<PathBuf, EngineError> {
        let path = folder.with_extension("plan");
        std::fs::write(&path, self.text())
            .map_err(|error| bad_input(format!("{}: cannot be written: {error}", path.display())))?;
        Ok(path)
    }
}

/// Every selection of the operations that are pending now, in every order; false when they are too many.
fn want(history: &History, case: u32, returned: usize, wanted: &mut Vec<(Sequence, Linearised)>) -> bool {
    let pending = history.current().pending().iter().map(|pending| &pending.operation);
    let on_slots: Vec<u32> =
        pending.clone().filter(|operation| operation.kind.has_slot()).map(|operation| operation.index).collect();
    // Whoever executes the twin creates the heap in any case.
    let create: Vec<u32> =
        pending.filter(|operation| operation.kind == OperationKind::Create).map(|operation| operation.index).collect();
    if on_slots.len() > PENDING_LIMIT {
        return false;
    }
    arrangements(&on_slots, &mut Vec::new(), &mut |chosen| {
        let happened: Vec<u32> = create.iter().chain(chosen).copied().collect();
        wanted.push((Sequence { case, returned, pending: chosen.to_vec() }, history.linearised(&happened)));
    });
    true
}

/// Calls visit with every selection of the items in every order.
fn arrangements(items: &[u32], chosen: &mut Vec<u32>, visit: &mut impl FnMut(&[u32])) {
    visit(chosen);
    for item in items {
        if !chosen.contains(item) {
            chosen.push(*item);
            arrangements(items, chosen, visit);
            chosen.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crashgen::trace::{Event, OperationKind as Kind, SiteId, ThreadId};

    /// Of one thread that creates the heap, and as many others, each in an allocate.
    fn trace_of_pending(count: u32) -> Trace {
        let begin = |kind, index, object| EventKind::OperationBegin { kind, index, slot: index, bytes: 64, object };
        let mut kinds = vec![(1, EventKind::Case { number: 0, folder: "".into() }), (1, begin(Kind::Create, 0, 0))];
        kinds.push((1, EventKind::OperationReturn { kind: Kind::Create, index: 0, status: 0 }));
        kinds.extend((1..=count).map(|index| (1 + index as u16, begin(Kind::Allocate, index, index))));
        let event = |(thread, kind)| Event { thread: ThreadId { process: 1, thread }, site: SiteId(0), kind };
        Trace { events: kinds.into_iter().map(event).collect(), ..Trace::default() }
    }

    #[test]
    fn more_pending_operations_than_are_planned_for_are_a_bound_that_was_hit() {
        let plan = |count| Plan::of(Durable::OnReturn, &trace_of_pending(count)).expect("the trace is legal");
        assert_eq!(plan(4).bound(), None);
        assert_eq!(plan(4).sequences.len(), 65);
        let bound = plan(5).bound();
        assert_eq!(bound.as_deref(), Some("more than 4 operations are pending at once: no twins there"));
        assert_eq!(plan(5).sequences.len(), 65);
    }

    #[test]
    fn operations_without_success_are_known() {
        let back = |index, status: u32| EventKind::OperationReturn { kind: Kind::Allocate, index, status };
        let mut trace = trace_of_pending(3);
        for kind in [back(2, 1), back(3, 0)] {
            let event = Event { kind, ..trace.events[0].clone() };
            trace.events.push(event);
        }
        assert_eq!(refused(&trace).collect::<Vec<_>>(), [2]);
    }

    fn history(returned: u32, happened: &[u32]) -> Linearised {
        Linearised { create: 0, returned, happened: happened.to_vec() }
    }

    fn sequence(returned: usize, pending: &[u32]) -> Sequence {
        Sequence { case: 0, returned, pending: pending.to_vec() }
    }

    #[test]
    fn arrangements_are_all_orders_of_all_selections() {
        let mut seen = Vec::new();
        arrangements(&[1, 2, 3], &mut Vec::new(), &mut |chosen| seen.push(chosen.to_vec()));
        assert_eq!(seen.len(), 1 + 3 + 6 + 6);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 16);
        let mut count = 0;
        arrangements(&[1, 2, 3, 4], &mut Vec::new(), &mut |_| count += 1);
        assert_eq!(count, 65);
    }

    #[test]
    fn a_pending_operation_that_returns_next_needs_no_twin_of_its_own() {
        let orders = BTreeMap::from([(0, vec![5, 7])]);
        let wanted = vec![
            (sequence(0, &[]), history(1, &[])),
            (sequence(0, &[5]), history(1, &[5])),
            (sequence(0, &[7]), history(1, &[7])),
            (sequence(0, &[5, 7]), history(1, &[5, 7])),
            (sequence(0, &[7, 5]), history(1, &[5, 7])),
            (sequence(1, &[]), history(2, &[])),
            (sequence(2, &[]), history(3, &[])),
        ];
        let plan = Plan::with(orders, wanted);
        assert_eq!(plan.text(), "order 0 5 7\ntwin 0 0\ntwin 0 0 7\ntwin 0 0 7 5\ntwin 0 1\ntwin 0 2\n");
        assert_eq!(plan.histories[3], [history(1, &[5]), history(2, &[])]);
        assert_eq!(plan.histories[4], [history(1, &[5, 7]), history(3, &[])]);
    }
}
